/* runtime/change/main.c - petri-change, the program behind petri diff, promote, undo, redo and history: it
 * alone loads libgit2. Its words are petri's own (the files of cmd/ check what people write):
 *
 *   petri-change VERB DATA [SWITCH | KEY=VALUE]... -- OPERAND...
 *
 * Exit status: 0, 1 failed (diff exit-code: there are changes), 2 wrong words.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "runtime/change/diff.h"
#include "runtime/change/promote.h"
#include "runtime/change/talk.h"
#include "runtime/change/undo.h"

static void set_up(void)
{
    struct rlimit nofile;

    umask(0077);
    signal(SIGPIPE, SIG_IGN);
    /* a directory of a view holds a descriptor per layer */
    if (getrlimit(RLIMIT_NOFILE, &nofile) == 0) {
        nofile.rlim_cur = nofile.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &nofile);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(const char *data, int argc, char **argv);
    } verbs[] = {
        { "diff", diff_main },       { "count", count_main },     { "risks", risks_main },
        { "undo", undo_main },       { "redo", redo_main },       { "history", history_main },
        { "recover", recover_main }, { "promote", promote_main },
    };

    set_up();
    for (size_t i = 0; argc > 2 && i < ARRAY_LEN(verbs); i++) {
        if (strcmp(argv[1], verbs[i].name) != 0)
            continue;
        int status = verbs[i].run(argv[2], argc - 3, argv + 3);
        errno = 0;
        /* who closed the pipe has read enough */
        if ((fflush(stdout) || ferror(stdout)) && errno != EPIPE && errno && !status) {
            talk_note("can't write the answer to stdout");
            return 1;
        }
        return status;
    }
    talk_note("petri-change is a part of petri; use: petri diff --help");
    return 2;
}
