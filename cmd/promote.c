/* cmd/promote.c - petri promote, undo, redo and history: check the words and become petri-change, which
 * has the libraries.
 */
#include <fcntl.h>
#include <getopt.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "cmd/change.h"

struct change_words {
    struct strv flags, operands;
    bool json;
};

static void change_words_free_p(struct change_words *w)
{
    strv_free_p(&w->flags);
    strv_free_p(&w->operands);
}

/* Options may stand before and after operands; what follows "--" are paths, where a command has any. */
static bool parse(const struct cmd *c, int argc, char **argv, bool paths, struct change_words *w)
{
    const struct opt *o;
    const char *value;
    bool bad;

    for (;;) {
        while ((o = cmd_next_opt(c, argc, argv, &value, &bad))) {
            w->json |= !strcmp(o->name, "json");
            if (o->arg)
                strv_addf(&w->flags, "%s=%s", o->name, value);
            else
                strv_add(&w->flags, o->name);
        }
        if (bad)
            return false;
        bool last = optind > 0 && !strcmp(argv[optind - 1], "--");
        for (; last && paths && optind < argc; optind++)
            strv_addf(&w->flags, "path=%s", argv[optind]);
        if (optind >= argc)
            return true;
        if (!*argv[optind]) {
            cmd_usage(c, "an empty word names nothing");
            return false;
        }
        do
            strv_add(&w->operands, argv[optind++]);
        while (last && optind < argc);
        if (last)
            return true;
    }
}

static int promote_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(change_words_free_p) struct change_words w = { 0 };
    mode_t mask = umask(022);

    umask(mask);
    if (!parse(c, argc, argv, true, &w))
        return c->usage_exit;
    strv_addf(&w.flags, "umask=%03o", mask);
    /* a person wants what this sandbox made: what it fetched for that is kept, too */
    AUTOFREE char *self = fs_readlink(AT_FDCWD, "/proc/self/exe");
    if (self)
        strv_addf(&w.flags, "petri=%s", self);
    return cmd_become_change("promote", &w.flags, &w.operands, w.json);
}

static int numbered_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(change_words_free_p) struct change_words w = { 0 };

    if (!parse(c, argc, argv, false, &w))
        return c->usage_exit;
    if (w.operands.n > 1)
        return cmd_usage(c, "'%s' is one word too many", w.operands.v[1]);
    return cmd_become_change(c->name, &w.flags, &w.operands, w.json);
}

static int history_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(change_words_free_p) struct change_words w = { 0 };

    if (!parse(c, argc, argv, false, &w))
        return c->usage_exit;
    if (w.operands.n)
        return cmd_usage(c, "'%s': history takes no names", w.operands.v[0]);
    return cmd_become_change("history", &w.flags, &w.operands, w.json);
}

static const struct opt promote_opts[] = {
    { "again", 0, NULL, "with -p: ask about everything, also what was answered before", NULL },
    { "allow", 0, "PATH",
      "take a change that is held back otherwise: a path, or the code of a risk", "file" },
    { "branch", 0, "NAME", "commit to a git branch instead; the working tree stays as it is",
      NULL },
    { "dry-run", 'n', NULL, "say what would be done, change nothing", NULL },
    { "json", 0, NULL, "print a JSON object", NULL },
    { "on-conflict", 0, "WHAT",
      "files that changed in the project too: fail (default), theirs (keep the project's), ours "
      "(the sandbox's), merge",
      "fail|theirs|ours|merge" },
    { "patch", 'p', NULL, "choose hunk by hunk, as git add -p does", NULL },
    { "review", 0, "ID", "apply exactly the change of this id (petri diff prints it) or nothing",
      NULL },
    { "yes", 'y', NULL, "do not ask", NULL },
};

extern const struct cmd cmd_promote;
const struct cmd cmd_promote = {
    .name = "promote",
    .aliases = "apply",
    .summary = "bring what a sandbox changed into the project",
    .usage = "[flags] [SANDBOX] [PATH...] [-- PATH...]",
    .about =
        "Applies the changes of a sandbox (the project's own without a name) to the project: all "
        "of them, or those at and below PATH. The first word is a sandbox where there is one of "
        "that name. Everything happens or nothing: what is replaced goes to a journal first, and "
        "petri undo brings it back. What the sandbox wrote to caches of package managers goes to "
        "the "
        "project's next sandboxes (petri cache).\n\n"
        "A file that changed in the project since the sandbox was made is a conflict: nothing is "
        "applied and all conflicts are listed, unless --on-conflict says otherwise. Changes that "
        "would run code on this machine are held back until --allow names them; hidden files, "
        "pipes, sockets and devices never go. Ignored files go only where PATH names them.\n\n"
        "The repository's own files are never copied. Commits that were made inside come home as "
        "refs/petri/SANDBOX/..., next to the project's own.",
    .examples = "petri promote\tlook at it, then say yes\n"
                "petri promote -y src docs/a.md\tonly these paths, without asking\n"
                "petri promote -p\thunk by hunk\n"
                "petri promote --review 3f9ac01d77e2 -y\texactly what was reviewed\n"
                "petri promote --branch try-1 -y\tto a branch, for a pull request",
    .opts = promote_opts,
    .n_opts = ARRAY_LEN(promote_opts),
    .complete = "file",
    .usage_exit = 2,
    .run = promote_run,
};

static const struct opt json_opts[] = {
    { "json", 0, NULL, "print a JSON object", NULL },
};

extern const struct cmd cmd_undo;
const struct cmd cmd_undo = {
    .name = "undo",
    .summary = "take a promotion back",
    .usage = "[--json] [ID]",
    .about =
        "Restores what the last promotion into this project (or the one with the number ID) "
        "replaced, byte for byte, with modes and times. Twice goes back two. A file that was "
        "changed since stays as it is, and that is said. To go back inside a sandbox see petri "
        "rollback.",
    .examples = "petri undo\tthe last promotion\n"
                "petri undo 12\tthat one (petri history)",
    .opts = json_opts,
    .n_opts = ARRAY_LEN(json_opts),
    .usage_exit = 2,
    .run = numbered_run,
};

extern const struct cmd cmd_redo;
const struct cmd cmd_redo = {
    .name = "redo",
    .summary = "apply again what petri undo took back",
    .usage = "[--json] [ID]",
    .opts = json_opts,
    .n_opts = ARRAY_LEN(json_opts),
    .usage_exit = 2,
    .run = numbered_run,
};

static const struct opt history_opts[] = {
    { "all", 'a', NULL, "of all projects", NULL },
    { "json", 0, NULL, "print an array of objects", NULL },
};

extern const struct cmd cmd_history;
const struct cmd cmd_history = {
    .name = "history",
    .summary = "list promotions, undos and redos of this project",
    .usage = "[-a] [--json]",
    .opts = history_opts,
    .n_opts = ARRAY_LEN(history_opts),
    .usage_exit = 2,
    .run = history_run,
};
