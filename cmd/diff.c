/* cmd/diff.c - `petri diff`: checks the words and becomes petri-change, which has the libraries.
 * Uses: base/paths.h for the store's place and the helper's.
 */
#include <getopt.h>
#include <string.h>

#include "base/paths.h"
#include "cmd/change.h"

int cmd_become_change(const char *verb, const struct strv *flags, const struct strv *operands,
                      bool json)
{
    CLEANUP(paths_free_p) struct paths p = { 0 };
    AUTOSTRV struct strv argv = { 0 };
    AUTOFREE char *helper = NULL;
    struct err *e = NULL;

    if (paths_open(&p, &e) < 0 || !(helper = paths_helper("petri-change", &e)))
        return cmd_fail_err(1, e, json);
    strv_add(&argv, "petri-change");
    strv_add(&argv, verb);
    strv_add(&argv, p.data);
    for (size_t i = 0; i < flags->n; i++)
        strv_add(&argv, flags->v[i]);
    strv_add(&argv, "--");
    for (size_t i = 0; i < operands->n; i++)
        strv_add(&argv, operands->v[i]);
    execv(helper, argv.v);
    err_sys(&e, "start '%s' (a part of petri; is the installation complete?)", helper);
    return cmd_fail_err(1, e, json);
}

struct diff_words {
    struct strv flags, operands;
    const char *format; /* which of --stat --name-status --patch */
    bool json, risks, rootfs, paths;
};

static void diff_words_free_p(struct diff_words *w)
{
    strv_free_p(&w->flags);
    strv_free_p(&w->operands);
}

static bool is_format(const char *name)
{
    return !strcmp(name, "stat") || !strcmp(name, "name-status") || !strcmp(name, "patch");
}

static bool take_option(const struct cmd *c, const struct opt *o, const char *value,
                        struct diff_words *w)
{
    if (is_format(o->name)) {
        if (w->format && strcmp(w->format, o->name) != 0) {
            cmd_usage(c, "--%s and --%s exclude each other", w->format, o->name);
            return false;
        }
        w->format = o->name;
    }
    w->json |= !strcmp(o->name, "json");
    w->risks |= !strcmp(o->name, "risks");
    w->rootfs |= !strcmp(o->name, "rootfs");
    if (o->arg)
        strv_addf(&w->flags, "%s=%s", o->name, value);
    else
        strv_add(&w->flags, o->name);
    return true;
}

/* Options may stand before and after the sandboxes; what follows "--" are paths. */
static bool parse(const struct cmd *c, int argc, char **argv, struct diff_words *w)
{
    const struct opt *o;
    const char *value;
    bool bad;

    for (;;) {
        while ((o = cmd_next_opt(c, argc, argv, &value, &bad)))
            if (!take_option(c, o, value, w))
                return false;
        if (bad)
            return false;
        bool last = optind > 0 && !strcmp(argv[optind - 1], "--");
        for (; last && optind < argc; optind++) {
            strv_addf(&w->flags, "path=%s", argv[optind]);
            w->paths = true;
        }
        if (optind >= argc)
            return true;
        strv_add(&w->operands, argv[optind++]);
    }
}

static int diff_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(diff_words_free_p) struct diff_words w = { 0 };

    if (!parse(c, argc, argv, &w))
        return c->usage_exit;
    if (w.operands.n > 2)
        return cmd_usage(c, "'%s' is one word too many (paths follow --)", w.operands.v[2]);
    if (w.json && w.format && strcmp(w.format, "patch") != 0)
        return cmd_usage(c, "--json has it all; leave --%s away", w.format);
    if (w.rootfs && (w.paths || str_eq(w.format, "patch")))
        return cmd_usage(c, "--rootfs lists paths; it takes no --patch and no PATH");
    return cmd_become_change(w.risks ? "risks" : "diff", &w.flags, &w.operands, w.json);
}

static const struct opt diff_opts[] = {
    { "exit-code", 0, NULL, "exit with 1 where there are changes", NULL },
    { "from", 0, "SNAP|SANDBOX", "compare with a snapshot, another sandbox or its SANDBOX@SNAP",
      "snapshot" },
    { "json", 0, NULL, "print a JSON object (with --patch: each change's patch too)", NULL },
    { "name-status", 0, NULL, "print letters and names only", NULL },
    { "patch", 'p', NULL, "print the patch only, as git apply takes it", NULL },
    { "risks", 0, NULL, "print the table of risk flags", NULL },
    { "rootfs", 0, NULL, "list what changed outside of the workspace", NULL },
    { "stat", 0, NULL, "print flags and a line per file", NULL },
};

extern const struct cmd cmd_diff;
const struct cmd cmd_diff = {
    .name = "diff",
    .summary = "show what a sandbox changed",
    .usage = "[flags] [SANDBOX[@SNAP] [SANDBOX[@SNAP]]] [-- PATH...]",
    .about =
        "Compares a sandbox (the project's own without a name) with the project as it is now, or, "
        "given two, the first with the second. Flags that a reviewer must see come first, then the "
        "files, then a patch. Content that was only touched is no change. What the project's own "
        "rules ignore is counted, not shown; the repository itself (.git) is never compared.\n\n"
        "On a terminal it goes through a pager: PETRI_PAGER, GIT_PAGER, PAGER, core.pager of the "
        "user's "
        "own git configuration, else less. Elsewhere the summary's lines start with #, so that git "
        "apply "
        "takes the whole output. The change's id is what petri promote --review wants.",
    .examples =
        "petri diff\twhat the project's sandbox changed\n"
        "petri diff --stat try-2\tonly flags and numbers of sandbox try-2\n"
        "petri diff --from s1\tsince the snapshot s1\n"
        "petri diff try-1 try-2 -- src\twhat the second has in src/ that the first has not\n"
        "petri diff --patch | git apply --check\ta patch for other tools",
    .opts = diff_opts,
    .n_opts = ARRAY_LEN(diff_opts),
    .complete = "sandbox",
    .usage_exit = 2,
    .run = diff_run,
};
