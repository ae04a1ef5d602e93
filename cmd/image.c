/* cmd/image.c - `petri image`: checks the words and becomes petri-image, which has the libraries.
 * Uses: base/paths.h for the store's place and the helper's.
 */
#include <getopt.h>
#include <string.h>

#include "base/paths.h"
#include "cmd/cmd.h"

/* Options may stand before and after operands: `image inspect NAME --json` reads naturally. */
struct words {
    struct strv flags; /* for petri-image */
    struct strv operands;
    bool json;
};

static void words_free_p(struct words *w)
{
    strv_free_p(&w->flags);
    strv_free_p(&w->operands);
}

static void add_flag(struct words *w, const struct opt *o, const char *value)
{
    if (!strcmp(o->name, "json"))
        w->json = true;
    if (o->arg)
        strv_addf(&w->flags, "%s=%s", o->name, value);
    else
        strv_add(&w->flags, o->name);
}

static bool parse(const struct cmd *c, int argc, char **argv, struct words *ret)
{
    const struct opt *o;
    const char *value;
    bool bad;

    for (;;) {
        while ((o = cmd_next_opt(c, argc, argv, &value, &bad)))
            add_flag(ret, o, value);
        if (bad)
            return false;
        if (optind >= argc)
            return true;
        /* after "--" nothing is an option, and getopt would only come back to it */
        bool last = !strcmp(argv[optind - 1], "--");
        do
            strv_add(&ret->operands, argv[optind++]);
        while (last && optind < argc);
        if (last)
            return true;
    }
}

/* Does not return where it works. */
static int become_helper(const char *verb, const struct words *w)
{
    CLEANUP(paths_free_p) struct paths p = { 0 };
    AUTOSTRV struct strv argv = { 0 };
    AUTOFREE char *helper = NULL;
    struct err *e = NULL;

    if (paths_open(&p, &e) < 0 || !(helper = paths_helper("petri-image", &e)))
        return cmd_fail_err(1, e, w->json);
    strv_add(&argv, "petri-image");
    strv_add(&argv, verb);
    strv_add(&argv, p.data);
    for (size_t i = 0; i < w->flags.n; i++)
        strv_add(&argv, w->flags.v[i]);
    strv_add(&argv, "--");
    for (size_t i = 0; i < w->operands.n; i++)
        strv_add(&argv, w->operands.v[i]);
    execv(helper, argv.v);
    err_sys(&e, "start '%s' (a part of petri; is the installation complete?)", helper);
    return cmd_fail_err(1, e, w->json);
}

static int run_verb(const struct cmd *c, int argc, char **argv, size_t least, size_t most,
                    const char *wanted)
{
    CLEANUP(words_free_p) struct words w = { 0 };

    if (!parse(c, argc, argv, &w))
        return c->usage_exit;
    if (w.operands.n < least)
        return cmd_usage(c, "%s", wanted);
    if (w.operands.n > most)
        return cmd_usage(c, "'%s' is one word too many", w.operands.v[most]);
    return become_helper(c->name, &w);
}

static int import_run(const struct cmd *c, int argc, char **argv)
{
    return run_verb(c, argc, argv, 2, 2, "a tar file or directory and a name are wanted");
}

static int ls_run(const struct cmd *c, int argc, char **argv)
{
    return run_verb(c, argc, argv, 0, 0, "");
}

static int inspect_run(const struct cmd *c, int argc, char **argv)
{
    return run_verb(c, argc, argv, 1, 1, "the name of an image is wanted");
}

static int rm_run(const struct cmd *c, int argc, char **argv)
{
    return run_verb(c, argc, argv, 1, SIZE_MAX, "the name of an image is wanted");
}

static const struct opt import_opts[] = {
    { "change", 'c', "INSTRUCTION",
      "set CMD, ENTRYPOINT, ENV, LABEL, USER or WORKDIR, as in a Dockerfile", NULL },
    { "json", 0, NULL, "print what was imported as JSON", NULL },
    { "max-entries", 0, "N", "refuse more files than this (default 1000000)", NULL },
    { "max-size", 0, "SIZE",
      "refuse what unpacks to more than this (default 32G, and 100 times its own size)", NULL },
    { "message", 'm', "TEXT", "a comment for the image's history", NULL },
    { "platform", 0, "linux/ARCH", "what the image is for (default: this machine)", NULL },
    { "ref", 0, "NAME", "which image of an archive or layout that holds several", NULL },
};

static const struct cmd image_import = {
    .name = "import",
    .summary = "make an image from a tar file or a directory",
    .usage = "[flags] TAR|DIR|- NAME[:TAG]",
    .about =
        "TAR is the tar of a root file system, plain or compressed (gz, zst, xz, bz2), or an "
        "archive of an image as docker save and skopeo write it; - reads it from standard input. "
        "DIR is a root file system or an OCI image layout.\n\n"
        "Names that lead out of the image are refused, and devices, pipes and sockets left out. "
        "Nothing is kept of an import that fails. Prints the new image's digest.",
    .examples =
        "mmdebstrap bookworm - | petri image import - debian:12\ta small Debian\n"
        "petri image import -c 'CMD [\"sh\"]' rootfs/ mine\tfrom a directory\n"
        "skopeo copy docker-daemon:app:1 oci-archive:a.tar; petri image import a.tar app:1\t"
        "from another tool",
    .opts = import_opts,
    .n_opts = ARRAY_LEN(import_opts),
    .complete = "file",
    .usage_exit = 2,
    .run = import_run,
};

static const struct opt ls_opts[] = {
    { "json", 0, NULL, "print a JSON array", NULL },
    { "quiet", 'q', NULL, "print IDs only", NULL },
};

static const struct cmd image_ls = {
    .name = "ls",
    .aliases = "list",
    .summary = "list images",
    .usage = "[-q] [--json]",
    .about =
        "The built-in image `host` (this machine's own system directories) is always there and "
        "not listed.",
    .opts = ls_opts,
    .n_opts = ARRAY_LEN(ls_opts),
    .usage_exit = 2,
    .run = ls_run,
};

static const struct opt json_opts[] = {
    { "json", 0, NULL, "print a JSON object", NULL },
};

static const struct cmd image_inspect = {
    .name = "inspect",
    .summary = "show what an image is made of",
    .usage = "[--json] NAME[:TAG]|ID",
    .opts = json_opts,
    .n_opts = ARRAY_LEN(json_opts),
    .complete = "image",
    .usage_exit = 2,
    .run = inspect_run,
};

static const struct cmd image_rm = {
    .name = "rm",
    .aliases = "remove",
    .summary = "remove images",
    .usage = "[--json] NAME[:TAG]|ID...",
    .about =
        "Takes away the name, then all data that no other image uses. An ID stands for the image "
        "with all its names. What a running sandbox uses stays until it has ended.",
    .opts = json_opts,
    .n_opts = ARRAY_LEN(json_opts),
    .complete = "image",
    .usage_exit = 2,
    .run = rm_run,
};

static const struct cmd *const image_subs[] = { &image_import, &image_ls, &image_inspect, &image_rm,
                                                NULL };

extern const struct cmd cmd_image;
const struct cmd cmd_image = {
    .name = "image",
    .aliases = "images",
    .summary = "import, list and remove images",
    .usage = "COMMAND ...",
    .about =
        "Images live in an OCI image layout that other tools can read; see petri(1) for where.",
    .subs = image_subs,
    .usage_exit = 2,
    .run = cmd_run_sub,
};
