#include <fcntl.h>
#include <string.h>

#include "base/fs.h"
#include "base/termfilter.h"
#include "cmd/fs.h"

enum { JSON_MAX = 16 << 20, CHUNK = 128 << 10 };

/* What a file holds is as hostile as what a command prints. */
static int show(int fd, const struct fs_flags *f)
{
    static char buf[CHUNK], clean[CHUNK + TERMFILTER_ROOM];
    struct termfilter filter;
    bool terminal = isatty(1);
    uint64_t left = f->count;
    ssize_t n = 0;

    termfilter_init(&filter);
    while (left && (n = RETRY(read(fd, buf, left < CHUNK ? (size_t)left : CHUNK))) > 0) {
        const char *p = terminal ? clean : buf;
        size_t len = terminal ? termfilter_run(&filter, buf, (size_t)n, clean) : (size_t)n;
        if (fs_write_all(1, p, len) < 0)
            return cmd_fail(1, "can't write to stdout: %s", strerror(errno));
        left -= (uint64_t)n;
    }
    if (terminal)
        (void)fs_write_all(1, clean, termfilter_end(&filter, clean));
    return n < 0 ? cmd_fail(1, "read '%s': %s", f->path, strerror(errno)) : 0;
}

static int show_json(int fd, const struct petri_stat *st, const struct fs_flags *f,
                     const char *word)
{
    static char buf[CHUNK];
    AUTOJSONW struct jsonw w = { 0 };
    AUTOSTR struct str s = STR_INIT;
    uint64_t left = f->count;
    ssize_t n = 0;

    while (left && (n = RETRY(read(fd, buf, left < CHUNK ? (size_t)left : CHUNK))) > 0) {
        str_addn(&s, buf, (size_t)n);
        left -= (uint64_t)n;
        if (s.len > JSON_MAX) {
            struct petri_error e = { .code = "limit",
                                     .message = "more than 16 MiB do not go into JSON; use "
                                                "--offset and --length, or leave --json out" };
            return cmd_fail_petri(1, &e, true);
        }
    }
    if (n < 0)
        return cmd_fail(1, "read '%s': %s", f->path, strerror(errno));
    jw_obj(&w, NULL);
    cmd_json_bytes(&w, "path", word, strlen(word));
    fs_json_stat(&w, st, NULL);
    cmd_json_bytes(&w, "content", s.p, s.len);
    jw_end_obj(&w);
    puts(w.out.p);
    return 0;
}

int fs_read_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(fs_flags_free_p) struct fs_flags f = { 0 };
    struct petri_stat st = PETRI_STAT_INIT;
    AUTOCLOSE int fd = -1;
    int rc = fs_begin(c, argc, argv, 1, 1, &f);

    if (rc)
        return rc;
    if (petri_fs_open(f.t.s, f.path, &fd, &st, &f.e) < 0)
        return fs_fail(&f);
    if (f.from && lseek(fd, (off_t)f.from, SEEK_SET) < 0)
        return cmd_fail(1, "read '%s': %s", f.path, strerror(errno));
    return f.json ? show_json(fd, &st, &f, argv[optind]) : show(fd, &f);
}

static int make_parents(struct fs_flags *f)
{
    AUTOFREE char *dir = str_dup(f->path);
    char *slash = strrchr(dir, '/');

    if (!slash || slash == dir)
        return 0;
    *slash = '\0';
    return petri_fs_mkdir(f->t.s, dir, 0, PETRI_FS_PARENTS, &f->e);
}

int fs_write_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(fs_flags_free_p) struct fs_flags f = { 0 };
    struct petri_file *file = NULL;
    struct err *e = NULL;
    int rc = fs_begin(c, argc, argv, 1, 1, &f);

    if (rc)
        return rc;
    if ((f.parents && make_parents(&f) < 0) ||
        petri_fs_create(f.t.s, f.path, (unsigned)f.mode_bits, f.exclusive ? PETRI_FS_EXCLUSIVE : 0,
                        &file, &f.e) < 0)
        return fs_fail(&f);
    if (fs_copy_fd(0, petri_file_fd(file), &e) < 0) {
        err_wrap(&e, "'%s' was not written", f.path);
        rc = cmd_fail_err(1, e, f.json);
    } else if (petri_file_commit(file, &f.e) < 0) {
        rc = fs_fail(&f);
    } else {
        rc = fs_done(&f, argv[optind]);
    }
    petri_file_free(file);
    return rc;
}
