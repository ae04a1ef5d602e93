/* cmd/main.c - the program `petri`: which command, and the few words that are no command. */
#include <string.h>

#include "cmd/change.h"

int main(int argc, char **argv)
{
    static const char version[] = "petri " PETRI_VERSION "\n";
    const char *verb = argc > 1 ? argv[1] : "--help";

    /* First of all, and without stdio: scripts and prompts ask this often. */
    if (!strcmp(verb, "--version") || !strcmp(verb, "-V"))
        return write(STDOUT_FILENO, version, sizeof version - 1) == sizeof version - 1 ? 0 : 1;
    if (argc < 1)
        return cmd_fail(2, "started without a name in argv[0]");
    if (!strcmp(verb, "--help") || !strcmp(verb, "-h")) {
        static char name[] = "help", *help[] = { name, NULL };
        return cmd_exec(cmd_find("help"), 1, help);
    }
    const struct cmd *c = cmd_find(verb);
    if (!c) {
        AUTOSTR struct str hint = STR_INIT;
        cmd_suggest(commands, verb, &hint);
        return cmd_fail(2, "'%s' is no petri command%s; all of them: petri --help", verb,
                        hint.len ? hint.p : "");
    }
    cmd_recover(c->name);
    return cmd_exec(c, argc - 1, argv + 1);
}
