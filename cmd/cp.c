/* cmd/cp.c - petri cp: files and directories between this machine and a running sandbox. */
#include "cmd/cp.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"

static const struct opt cp_opts[] = {
    { "follow-link", 'L', NULL, "copy what a link points to, where SRC itself is one", NULL },
    { "quiet", 'q', NULL, "no word about what can't be copied", NULL },
    { "json", 0, NULL, "print one object with counts", NULL },
};

int cp_sys(struct cp *c, const char *what, const char *path)
{
    AUTOFREE char *text = str_printf("%s: %s", what, strerror(errno));
    int sys = errno;

    cp_refuse(c,
              sys == ENOENT                                   ? "not_found"
              : sys == EEXIST || sys == ENOTEMPTY             ? "exists"
              : sys == EACCES || sys == EPERM || sys == EROFS ? "denied"
                                                              : "failed",
              path, text);
    c->e.sys = sys;
    return -1;
}

int cp_refuse(struct cp *c, const char *code, const char *path, const char *why)
{
    AUTOSTR struct str shown = STR_INIT;

    c->e = (struct petri_error)PETRI_ERROR_INIT;
    str_add_escaped(&shown, path, strlen(path));
    snprintf(c->e.code, sizeof c->e.code, "%s", code);
    snprintf(c->e.message, sizeof c->e.message, "'%s': %s", shown.p ? shown.p : "", why);
    return -1;
}

char *cp_base(const char *path)
{
    AUTOFREE char *p = str_dup(path);
    size_t n = strlen(p);

    while (n && (p[n - 1] == '/' || (p[n - 1] == '.' && (n == 1 || p[n - 2] == '/'))))
        p[--n] = '\0';
    return str_dup(strrchr(p, '/') ? strrchr(p, '/') + 1 : p);
}

void cp_skip(struct cp *c, const char *path, const char *what)
{
    c->skipped++;
    if (!c->quiet)
        cmd_note("not copied: '%s' is %s", path, what);
}

static int file_in(struct cp *c, int fd, const struct stat *st, const char *dst)
{
    struct petri_file *f = NULL;
    struct err *why = NULL;
    int rc;

    if (petri_fs_create(c->s, dst, st->st_mode & 0777, 0, &f, &c->e) < 0)
        return -1;
    if (fs_copy_fd(fd, petri_file_fd(f), &why) < 0) {
        AUTOFREE char *text = err_text(why);
        err_free(why);
        rc = cp_refuse(c, "failed", dst, text);
    } else {
        /* in the sandbox of a user with many ids the file is not ours to date: then it is new */
        (void)futimens(petri_file_fd(f), (struct timespec[]){ st->st_mtim, st->st_mtim });
        rc = petri_file_commit(f, &c->e);
    }
    petri_file_free(f);
    if (rc == 0) {
        c->files++;
        c->bytes += (uint64_t)st->st_size;
    }
    return rc;
}

/* Files go in without a process; for a link the sandbox's own ln is asked. */
static int link_in(struct cp *c, int dir, const char *name, const char *dst)
{
    AUTOFREE char *text = fs_readlink(dir, name);
    struct petri_exec_options o = PETRI_EXEC_OPTIONS_INIT;
    struct petri_result r = PETRI_RESULT_INIT;
    struct petri_stat st = PETRI_STAT_INIT;
    int rc;

    if (!text)
        return cp_sys(c, "the link can't be read", name);
    if (petri_fs_stat(c->s, dst, PETRI_FS_NOFOLLOW, &st, NULL, NULL) == 0 && S_ISDIR(st.mode))
        return cp_refuse(c, "exists", dst, "a directory can't be replaced by a link");
    o.argv = (const char *const[]){ "ln", "-sfn", "--", text, dst, NULL };
    rc = petri_exec(c->s, &o, &r, &c->e);
    if (rc == 0 && r.status != 0)
        rc = cp_refuse(c, "failed", dst, "the link could not be made in the sandbox");
    petri_result_free(&r);
    c->links += rc == 0;
    return rc;
}

static int any_in(struct cp *c, int dir, const char *name, const char *dst, int depth);

static int dir_in(struct cp *c, int fd, const struct stat *st, const char *dst, int depth)
{
    DIR *d = fdopendir(fd);
    struct dirent *de;
    int rc = 0;

    if (!d) {
        close(fd);
        return cp_sys(c, "can't be opened", dst);
    }
    if (depth > CP_DEPTH)
        rc = cp_refuse(c, "limit", dst, "nested too deeply");
    else
        rc = petri_fs_mkdir(c->s, dst, st->st_mode & 0777, PETRI_FS_PARENTS, &c->e);
    c->dirs += rc == 0;
    while (rc == 0 && (de = fs_next(d))) {
        AUTOFREE char *to = path_join(dst, de->d_name);
        rc = any_in(c, dirfd(d), de->d_name, to, depth + 1);
    }
    closedir(d);
    return rc;
}

static int any_in(struct cp *c, int dir, const char *name, const char *dst, int depth)
{
    bool follow = c->follow && depth == 0;
    struct stat st;
    int fd, rc;

    if (fstatat(dir, name, &st, follow ? 0 : AT_SYMLINK_NOFOLLOW) < 0)
        return cp_sys(c, "can't be looked at", name);
    if (S_ISLNK(st.st_mode))
        return link_in(c, dir, name, dst);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) {
        cp_skip(c, name, "neither file, directory nor link");
        return 0;
    }
    fd =
        openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (follow ? 0 : O_NOFOLLOW));
    if (fd < 0 || fstat(fd, &st) < 0) {
        rc = cp_sys(c, "can't be opened", name);
        close_p(&fd);
        return rc;
    }
    if (S_ISDIR(st.st_mode))
        return dir_in(c, fd, &st, dst, depth);
    rc = S_ISREG(st.st_mode) ? file_in(c, fd, &st, dst)
                             : cp_refuse(c, "failed", name, "changed while it was copied");
    close(fd);
    return rc;
}

/* Where `src` goes: into a directory that is there, onto or beside what is not. */
static int copy_in(struct cp *c, const char *src, const char *dst)
{
    struct petri_stat to = PETRI_STAT_INIT;
    struct stat st;
    AUTOFREE char *base = cp_base(src), *inside = NULL, *bare = str_dup(src);
    bool content = str_ends(src, "/.") || strcmp(src, ".") == 0, exists;

    /* a slash at the end would follow a link */
    for (size_t n = strlen(bare); n > 1 && bare[n - 1] == '/'; n--)
        bare[n - 1] = '\0';
    if ((c->follow ? stat(bare, &st) : lstat(bare, &st)) < 0)
        return cp_sys(c, "can't be looked at", src);
    exists = petri_fs_stat(c->s, *dst ? dst : ".", 0, &to, NULL, &c->e) == 0;
    if (!exists && strcmp(c->e.code, "not_found") != 0)
        return -1;
    if (exists && S_ISDIR(to.mode) && !(S_ISDIR(st.st_mode) && content)) {
        if (!*base)
            return cp_refuse(c, "invalid", src, "has no name of its own; write what it is called");
        inside = path_join(*dst ? dst : ".", base);
    } else if (exists && !S_ISDIR(to.mode) && S_ISDIR(st.st_mode)) {
        return cp_refuse(c, "exists", dst, "is no directory in the sandbox");
    } else if (!exists && !S_ISDIR(st.st_mode) && str_ends(dst, "/")) {
        return cp_refuse(c, "not_found", dst, "no such directory in the sandbox");
    }
    return any_in(c, AT_FDCWD, bare, inside ? inside : dst, 0);
}

static int report(const struct cp *c, bool json)
{
    AUTOJSONW struct jsonw w = { 0 };
    /* the one thing that was asked for can't be copied */
    const int status = c->skipped && !(c->files || c->dirs || c->links);

    if (!json)
        return status;
    jw_obj(&w, NULL);
    jw_u64(&w, "files", c->files);
    jw_u64(&w, "directories", c->dirs);
    jw_u64(&w, "links", c->links);
    jw_u64(&w, "bytes", c->bytes);
    jw_u64(&w, "skipped", c->skipped);
    jw_end_obj(&w);
    puts(w.out.p);
    return status;
}

static int cp_run(const struct cmd *cmd, int argc, char **argv)
{
    CLEANUP(target_free_p) struct target t = { 0 };
    struct cp c = { .e = PETRI_ERROR_INIT };
    AUTOFREE char *from = NULL, *to = NULL;
    const struct opt *o;
    const char *value = NULL, *src, *dst;
    bool bad = false, json = false;

    while ((o = cmd_next_mixed(cmd, argc, argv, &value, &bad))) {
        json |= strcmp(o->name, "json") == 0;
        c.follow |= strcmp(o->name, "follow-link") == 0;
        c.quiet |= strcmp(o->name, "quiet") == 0;
    }
    if (bad)
        return 2;
    if (argc - optind != 2)
        return cmd_usage(cmd, "two paths are needed, like: petri cp file :/tmp/");
    for (int i = optind; i < argc; i++)
        if (strcmp(argv[i], "-") == 0)
            return cmd_usage(cmd, "'-': there are no archives here; a file of that name is ./-");
    from = target_prefix(argv[optind], &src);
    to = target_prefix(argv[optind + 1], &dst);
    if (!from == !to)
        return cmd_usage(cmd, "%s",
                         from ? "both paths are in a sandbox; copy by way of this machine"
                              : "no path is in a sandbox; write it [SANDBOX]:PATH");
    if (target_open(&t, from ? (*from ? from : NULL) : (*to ? to : NULL), &c.e) < 0)
        return cmd_fail_petri(1, &c.e, json);
    c.s = t.s;
    if ((from ? cp_out(&c, src, argv[optind + 1]) : copy_in(&c, argv[optind], dst)) < 0)
        return cmd_fail_petri(1, &c.e, json);
    return report(&c, json);
}

const struct cmd cmd_cp = {
    .name = "cp",
    .summary = "copy files between this machine and a running sandbox",
    .usage = "[flags] SRC DST",
    .about =
        "One of SRC and DST is in a sandbox: [SANDBOX]:PATH, without SANDBOX the project's own. "
        "Into a directory that exists SRC is copied under its own name; SRC/. copies what is in "
        "it. Links are copied as links, permissions without set-uid bits; sockets and devices "
        "are not copied.\n"
        "A path of this machine that has a colon is written ./PATH.",
    .examples = "petri cp dump.sql :/tmp/\tinto the project's own sandbox\n"
                "petri cp web:build/report ./report\tout of the one named web",
    .opts = cp_opts,
    .n_opts = ARRAY_LEN(cp_opts),
    .complete = "file",
    .usage_exit = 2,
    .run = cp_run,
};
