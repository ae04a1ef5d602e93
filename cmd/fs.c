/* cmd/fs.c - petri fs: files of a running sandbox, without starting a process in it. */
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "cmd/fs.h"

static const struct opt read_opts[] = {
    { "offset", 0, "BYTES", "begin there", NULL },
    { "length", 0, "BYTES", "not more than this", NULL },
    { "json", 0, NULL, "print one object with the content", NULL },
};
static const struct opt write_opts[] = {
    { "mode", 'm', "MODE", "permissions, octal (a new file: 644, an existing one keeps its own)",
      NULL },
    { "parents", 'p', NULL, "make the directories above it", NULL },
    { "exclusive", 'x', NULL, "fail where it exists already", NULL },
    { "json", 0, NULL, "print one object", NULL },
};
static const struct opt ls_opts[] = {
    { "long", 'l', NULL, "with type, permissions, size and time", NULL },
    { "json", 0, NULL, "print one object", NULL },
};
static const struct opt stat_opts[] = {
    { "no-follow", 'P', NULL, "a link itself, not what it points to", NULL },
    { "json", 0, NULL, "print one object", NULL },
};
static const struct opt mkdir_opts[] = {
    { "mode", 'm', "MODE", "permissions, octal (755)", NULL },
    { "parents", 'p', NULL, "with the directories above it; existing is fine", NULL },
    { "json", 0, NULL, "print one object", NULL },
};
static const struct opt rm_opts[] = {
    { "recursive", 'r', NULL, "a directory with all that is in it", NULL },
    { "force", 'f', NULL, "what is not there is fine", NULL },
    { "json", 0, NULL, "print one object", NULL },
};
static const struct opt mv_opts[] = {
    { "json", 0, NULL, "print one object", NULL },
};

void fs_flags_free_p(struct fs_flags *f)
{
    target_free_p(&f->t);
}

static void take_opt(struct fs_flags *f, const char *name, const char *value)
{
    const struct {
        const char *name;
        bool *flag;
        const char **word;
    } table[] = {
        { "json", &f->json, NULL },           { "parents", &f->parents, NULL },
        { "exclusive", &f->exclusive, NULL }, { "long", &f->lines, NULL },
        { "no-follow", &f->no_follow, NULL }, { "recursive", &f->recursive, NULL },
        { "force", &f->force, NULL },         { "mode", NULL, &f->mode },
        { "offset", NULL, &f->offset },       { "length", NULL, &f->length },
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        if (strcmp(table[i].name, name) != 0)
            continue;
        if (table[i].flag)
            *table[i].flag = true;
        else
            *table[i].word = value;
    }
}

static int judge(const struct cmd *c, struct fs_flags *f)
{
    char *end = NULL;

    f->count = UINT64_MAX;
    if (f->mode) {
        f->mode_bits = strtoul(f->mode, &end, 8);
        if (!*f->mode || *end || strchr(f->mode, '-') || !f->mode_bits || f->mode_bits > 0777)
            return cmd_usage(c, "--mode '%s': octal permissions, like 644", f->mode);
    }
    if (f->offset && parse_uint(f->offset, INT64_MAX, &f->from, NULL) < 0)
        return cmd_usage(c, "--offset '%s': a number of bytes", f->offset);
    if (f->length && parse_uint(f->length, INT64_MAX, &f->count, NULL) < 0)
        return cmd_usage(c, "--length '%s': a number of bytes", f->length);
    return 0;
}

/* "[SANDBOX:]PATH": opens the sandbox; without one it is the project's own. */
static int open_path(struct fs_flags *f, const char *word)
{
    AUTOFREE char *name = target_prefix(word, &f->path);

    if (!name)
        f->path = word;
    petri_close(f->t.s);
    f->t.s = NULL;
    return target_open(&f->t, name && *name ? name : NULL, &f->e);
}

int fs_fail(const struct fs_flags *f)
{
    return cmd_fail_petri(1, &f->e, f->json);
}

int fs_begin(const struct cmd *c, int argc, char **argv, int min, int max, struct fs_flags *f)
{
    const struct opt *o;
    const char *value = NULL;
    bool bad = false;
    int rc;

    f->e = (struct petri_error)PETRI_ERROR_INIT;
    while ((o = cmd_next_mixed(c, argc, argv, &value, &bad)))
        take_opt(f, o->name, value);
    if (bad)
        return 2;
    if ((rc = judge(c, f)))
        return rc;
    if (argc - optind < min || argc - optind > max)
        return cmd_usage(c, "%s", argc - optind < min ? "a path is missing" : "too many paths");
    return open_path(f, optind < argc ? argv[optind] : ".") < 0 ? fs_fail(f) : 0;
}

static const char *type_word(uint32_t mode)
{
    return S_ISREG(mode)    ? "file"
           : S_ISDIR(mode)  ? "directory"
           : S_ISLNK(mode)  ? "symlink"
           : S_ISFIFO(mode) ? "fifo"
           : S_ISSOCK(mode) ? "socket"
                            : "device";
}

static void when(const struct petri_stat *st, char buf[64])
{
    struct tm tm;
    time_t t = (time_t)st->mtime_sec;
    char day[32];

    if (!gmtime_r(&t, &tm))
        memset(&tm, 0, sizeof tm);
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(buf, 64, "%s.%09uZ", day, st->mtime_nsec % 1000000000u);
}

void fs_json_stat(struct jsonw *w, const struct petri_stat *st, const char *target)
{
    char time[64];

    when(st, time);
    jw_str(w, "type", type_word(st->mode));
    jw_strf(w, "mode", "%04o", st->mode & 07777);
    jw_u64(w, "size", st->bytes);
    jw_str(w, "mtime", time);
    jw_u64(w, "uid", st->uid);
    jw_u64(w, "gid", st->gid);
    jw_u64(w, "nlink", st->nlink);
    jw_u64(w, "inode", st->ino);
    if (target)
        cmd_json_bytes(w, "target", target, strlen(target));
}

int fs_done(const struct fs_flags *f, const char *word)
{
    AUTOJSONW struct jsonw w = { 0 };

    if (!f->json)
        return 0;
    jw_obj(&w, NULL);
    cmd_json_bytes(&w, "path", word, strlen(word));
    jw_end_obj(&w);
    puts(w.out.p);
    return 0;
}

/* --- looking --------------------------------------------------------------------------------------- */

static void print_name(const char *name)
{
    AUTOSTR struct str s = STR_INIT;
    if (isatty(1))
        str_add_escaped(&s, name, strlen(name));
    else
        str_add(&s, name);
    fputs(s.p ? s.p : "", stdout);
}

static void print_line(const struct petri_stat *st, const char *name, const char *target)
{
    char time[64], mode[11] = "?rwxrwxrwx";

    when(st, time);
    mode[0] = S_ISREG(st->mode) ? '-' : S_ISLNK(st->mode) ? 'l' : type_word(st->mode)[0];
    for (int i = 0; i < 9; i++)
        if (!(st->mode & 0400u >> i))
            mode[i + 1] = '-';
    printf("%s %u %u %12llu %s ", mode, st->uid, st->gid, (unsigned long long)st->bytes, time);
    print_name(name);
    if (target) {
        fputs(" -> ", stdout);
        print_name(target);
    }
    putchar('\n');
}

static int fs_ls_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(fs_flags_free_p) struct fs_flags f = { 0 };
    AUTOJSONW struct jsonw w = { 0 };
    struct petri_stat st = PETRI_STAT_INIT;
    struct petri_dir *d = NULL;
    const char *name, *target;
    int rc = fs_begin(c, argc, argv, 0, 1, &f);

    if (rc)
        return rc;
    if (petri_fs_ls(f.t.s, *f.path ? f.path : ".", &d, &f.e) < 0)
        return fs_fail(&f);
    if (f.json) {
        jw_obj(&w, NULL);
        jw_arr(&w, "entries");
    }
    while ((name = petri_dir_next(d, &st, &target))) {
        if (f.json) {
            jw_obj(&w, NULL);
            cmd_json_bytes(&w, "name", name, strlen(name));
            fs_json_stat(&w, &st, target);
            jw_end_obj(&w);
        } else if (f.lines) {
            print_line(&st, name, target);
        } else {
            print_name(name);
            putchar('\n');
        }
    }
    if (f.json) {
        jw_end_arr(&w);
        jw_end_obj(&w);
        puts(w.out.p);
    }
    petri_dir_free(d);
    return 0;
}

static int fs_stat_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(fs_flags_free_p) struct fs_flags f = { 0 };
    AUTOJSONW struct jsonw w = { 0 };
    AUTOFREE char *target = NULL;
    struct petri_stat st = PETRI_STAT_INIT;
    int rc = fs_begin(c, argc, argv, 1, 1, &f);

    if (rc)
        return rc;
    if (petri_fs_stat(f.t.s, f.path, f.no_follow ? PETRI_FS_NOFOLLOW : 0, &st, &target, &f.e) < 0)
        return fs_fail(&f);
    if (!f.json) {
        print_line(&st, f.path, target);
        return 0;
    }
    jw_obj(&w, NULL);
    cmd_json_bytes(&w, "path", argv[optind], strlen(argv[optind]));
    fs_json_stat(&w, &st, target);
    jw_end_obj(&w);
    puts(w.out.p);
    return 0;
}

/* --- changing -------------------------------------------------------------------------------------- */

static int fs_mkdir_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(fs_flags_free_p) struct fs_flags f = { 0 };
    int rc = fs_begin(c, argc, argv, 1, 1, &f);

    if (rc)
        return rc;
    if (petri_fs_mkdir(f.t.s, f.path, (unsigned)f.mode_bits, f.parents ? PETRI_FS_PARENTS : 0,
                       &f.e) < 0)
        return fs_fail(&f);
    return fs_done(&f, argv[optind]);
}

static int fs_rm_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(fs_flags_free_p) struct fs_flags f = { 0 };
    int rc = fs_begin(c, argc, argv, 1, 1, &f);

    if (rc)
        return rc;
    if (petri_fs_rm(f.t.s, f.path, f.recursive ? PETRI_FS_RECURSIVE : 0, &f.e) < 0 &&
        !(f.force && strcmp(f.e.code, "not_found") == 0)) {
        if (f.e.sys == EISDIR) {
            size_t n = strlen(f.e.message);
            snprintf(f.e.message + n, sizeof f.e.message - n, "; petri fs rm -r removes it");
        }
        return fs_fail(&f);
    }
    return fs_done(&f, argv[optind]);
}

static int fs_mv_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(fs_flags_free_p) struct fs_flags f = { 0 };
    const char *to = NULL, *from_path;
    AUTOFREE char *first = NULL, *second = NULL;
    int rc = fs_begin(c, argc, argv, 2, 2, &f);

    if (rc)
        return rc;
    first = target_prefix(argv[optind], &from_path);
    second = target_prefix(argv[optind + 1], &to);
    if (second && !str_eq(first ? first : "", second))
        return cmd_usage(c, "both paths must be in one sandbox; petri cp copies between places");
    if (!second)
        to = argv[optind + 1];
    if (petri_fs_mv(f.t.s, f.path, to, &f.e) < 0)
        return fs_fail(&f);
    return fs_done(&f, argv[optind]);
}

#define FS_CMD(word, what, words)                                                                  \
    static const struct cmd cmd_fs_##word = {                                                      \
        .name = #word,                                                                             \
        .summary = what,                                                                           \
        .usage = words,                                                                            \
        .opts = word##_opts,                                                                       \
        .n_opts = ARRAY_LEN(word##_opts),                                                          \
        .usage_exit = 2,                                                                           \
        .run = fs_##word##_run,                                                                    \
    }
FS_CMD(read, "print a file, byte for byte", "[flags] [SANDBOX:]PATH");
FS_CMD(write, "write stdin to a file, all of it or nothing", "[flags] [SANDBOX:]PATH");
FS_CMD(ls, "what is in a directory", "[flags] [[SANDBOX:]PATH]");
FS_CMD(stat, "what a path is", "[flags] [SANDBOX:]PATH");
FS_CMD(mkdir, "make a directory", "[flags] [SANDBOX:]PATH");
FS_CMD(rm, "remove a file or directory", "[flags] [SANDBOX:]PATH");
FS_CMD(mv, "rename", "[SANDBOX:]PATH PATH");

static const struct cmd *const fs_subs[] = { &cmd_fs_read,  &cmd_fs_write, &cmd_fs_ls, &cmd_fs_stat,
                                             &cmd_fs_mkdir, &cmd_fs_rm,    &cmd_fs_mv, NULL };

const struct cmd cmd_fs = {
    .name = "fs",
    .summary = "read and write files of a running sandbox",
    .usage = "COMMAND [flags] [SANDBOX:]PATH",
    .about =
        "No process is started for it. Paths are as a program in the sandbox sees them: absolute, "
        "or relative to where you are in the project; links never lead out of the sandbox. "
        "SANDBOX: names another sandbox than the project's own; a path that has a colon itself "
        "is written :PATH or ./PATH.",
    .examples = "petri fs read src/main.c\tas the sandbox has it now\n"
                "petri fs write -p web:/tmp/a/b <file\tinto the sandbox named web\n"
                "petri fs ls -l /workspace\twhat is in a directory",
    .subs = fs_subs,
    .usage_exit = 2,
    .run = cmd_run_sub,
};
