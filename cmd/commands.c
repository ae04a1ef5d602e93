/* cmd/commands.c - the table of commands. A command appears here once its file exists; everything
 * else about it (parsing, help, man page, completion) follows from its descriptor.
 */
#include "cmd/cmd.h"

extern const struct cmd cmd_run, cmd_image, cmd_doctor, cmd_help, cmd_completion, cmd_version;

const struct cmd *const commands[] = {
#if __has_include("cmd/run.c")
    &cmd_run,
#endif
#if __has_include("cmd/image.c")
    &cmd_image,
#endif
#if __has_include("cmd/doctor.c")
    &cmd_doctor,
#endif
    &cmd_help,
    &cmd_completion,
    &cmd_version,
    NULL,
};
