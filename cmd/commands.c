/* cmd/commands.c - the table of commands. Everything else about a command (parsing, help, man page,
 * completion) follows from its descriptor.
 */
#include "cmd/cmd.h"

extern const struct cmd cmd_start, cmd_stop, cmd_restart, cmd_refresh, cmd_fork, cmd_snapshot,
    cmd_rollback, cmd_status, cmd_jobs, cmd_wait, cmd_kill, cmd_logs, cmd_events, cmd_inspect,
    cmd_prune, cmd_fsck, cmd_net, cmd_port;
extern const struct cmd cmd_run, cmd_exec_, cmd_shell, cmd_fs, cmd_cp, cmd_ls, cmd_rm, cmd_image,
    cmd_doctor, cmd_help, cmd_completion, cmd_version, cmd_diff;
extern const struct cmd cmd_promote, cmd_undo, cmd_redo, cmd_history;
extern const struct cmd cmd_config, cmd_init, cmd_tool, cmd_cache;

const struct cmd *const commands[] = {
    &cmd_run,        &cmd_start,    &cmd_stop,    &cmd_restart, &cmd_refresh, &cmd_fork,
    &cmd_snapshot,   &cmd_rollback, &cmd_status,  &cmd_inspect, &cmd_jobs,    &cmd_wait,
    &cmd_kill,       &cmd_logs,     &cmd_events,  &cmd_prune,   &cmd_exec_,   &cmd_shell,
    &cmd_fs,         &cmd_cp,       &cmd_ls,      &cmd_rm,      &cmd_diff,    &cmd_promote,
    &cmd_undo,       &cmd_redo,     &cmd_history, &cmd_config,  &cmd_init,    &cmd_tool,
    &cmd_image,      &cmd_doctor,   &cmd_fsck,    &cmd_net,     &cmd_port,    &cmd_help,
    &cmd_completion, &cmd_version,  &cmd_cache,   NULL,
};
