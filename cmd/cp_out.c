/* cmd/cp_out.c - out of a sandbox. What it says about its files is not trusted: names are single
 * components, each is made in a directory that we hold open, and no link is followed on this side. */
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "cmd/cp.h"

enum { COPY_ROOM = 1 << 18, NO_SIZE_MAX = 64 << 20 };

static void temp_name(char buf[32])
{
    uint64_t r = 0;
    (void)!getrandom(&r, sizeof r, 0);
    snprintf(buf, 32, ".petri-%016llx", (unsigned long long)r);
}

/* As far as the file reaches now, holes as holes: a sandbox can make it grow as fast as it is read, and a
 * file that is one hole costs it nothing. Files of /proc have no size: some of them is enough. */
static int copy_out(int in, int out, struct err **e)
{
    AUTOFREE char *buf = mem_zalloc(COPY_ROOM);
    off_t at = 0, end, data, hole = 0;
    struct stat st;

    if (fstat(in, &st) < 0)
        return err_sys(e, "look at the file");
    end = st.st_size ? st.st_size : NO_SIZE_MAX;
    while (at < end) {
        if (at >= hole) {
            data = st.st_size ? lseek(in, at, SEEK_DATA) : at;
            if (data < 0 && errno == ENXIO)
                break;
            at = data < 0 ? at : data;
            hole = data < 0 || !st.st_size ? end : lseek(in, at, SEEK_HOLE);
            hole = hole < 0 || hole > end ? end : hole;
            if (at >= end)
                break;
        }
        ssize_t n =
            RETRY(pread(in, buf, hole - at < COPY_ROOM ? (size_t)(hole - at) : COPY_ROOM, at));
        if (n < 0)
            return err_sys(e, "read for a copy");
        if (n == 0)
            break;
        if (lseek(out, at, SEEK_SET) < 0 || fs_write_all(out, buf, (size_t)n) < 0)
            return err_sys(e, "write a copy");
        at += n;
    }
    return st.st_size && ftruncate(out, st.st_size) < 0 ? err_sys(e, "size of a copy") : 0;
}

static int file_out(struct cp *c, const char *src, int dir, const char *name)
{
    struct petri_stat st = PETRI_STAT_INIT;
    AUTOCLOSE int in = -1, out = -1;
    struct err *why = NULL;
    char temp[32];
    int rc = 0;

    if (petri_fs_open(c->s, src, &in, &st, &c->e) < 0)
        return -1;
    temp_name(temp);
    out = openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, st.mode & 0777);
    if (out < 0)
        return cp_sys(c, "can't be written", name);
    if (copy_out(in, out, &why) < 0) {
        AUTOFREE char *text = err_text(why);
        err_free(why);
        rc = cp_refuse(c, "failed", name, text);
    } else {
        struct timespec t = { .tv_sec = (time_t)st.mtime_sec,
                              .tv_nsec = (long)(st.mtime_nsec % 1000000000u) };
        (void)futimens(out, (struct timespec[]){ t, t });
        if (renameat(dir, temp, dir, name) < 0)
            rc = cp_sys(c, "can't be written", name);
    }
    if (rc < 0) {
        unlinkat(dir, temp, 0);
        return rc;
    }
    c->files++;
    c->bytes += st.bytes;
    return 0;
}

static int link_out(struct cp *c, const char *text, int dir, const char *name)
{
    char temp[32];

    temp_name(temp);
    if (symlinkat(text, dir, temp) < 0)
        return cp_sys(c, "the link can't be made", name);
    if (renameat(dir, temp, dir, name) < 0) {
        cp_sys(c, "the link can't be made", name);
        unlinkat(dir, temp, 0);
        return -1;
    }
    c->links++;
    return 0;
}

static int any_out(struct cp *c, const char *src, uint32_t mode, const char *text, int dir,
                   const char *name, int depth);

static int content_out(struct cp *c, const char *src, int dir, int depth)
{
    struct petri_dir *d = NULL;
    struct petri_stat st = PETRI_STAT_INIT;
    const char *name, *text;
    int rc = 0;

    if (depth > CP_DEPTH)
        return cp_refuse(c, "limit", src, "nested too deeply");
    if (petri_fs_ls(c->s, src, &d, &c->e) < 0)
        return -1;
    while (rc == 0 && (name = petri_dir_next(d, &st, &text))) {
        AUTOFREE char *from = path_join(src, name);
        rc = any_out(c, from, st.mode, text, dir, name, depth + 1);
    }
    petri_dir_free(d);
    return rc;
}

static int dir_out(struct cp *c, const char *src, uint32_t mode, int dir, const char *name,
                   int depth)
{
    AUTOCLOSE int fd = -1;
    bool made = mkdirat(dir, name, 0700) == 0;
    int rc;

    if (!made && errno != EEXIST)
        return cp_sys(c, "can't be made", name);
    fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return cp_sys(c, "can't be opened", name);
    rc = content_out(c, src, fd, depth);
    if (made) {
        mode_t mask = umask(0);
        umask(mask);
        (void)fchmod(fd, mode & 0777 & ~mask);
    }
    c->dirs += rc == 0;
    return rc;
}

static int any_out(struct cp *c, const char *src, uint32_t mode, const char *text, int dir,
                   const char *name, int depth)
{
    if (S_ISDIR(mode))
        return dir_out(c, src, mode, dir, name, depth);
    if (S_ISREG(mode))
        return file_out(c, src, dir, name);
    if (S_ISLNK(mode) && text)
        return link_out(c, text, dir, name);
    cp_skip(c, src, "neither file, directory nor link");
    return 0;
}

/* The directory that `dst` lies in, open, and its last component. */
static int open_parent(struct cp *c, const char *dst, int *ret_dir, char **ret_name)
{
    AUTOFREE char *dir = str_dup(dst);
    size_t n = strlen(dir);

    while (n > 1 && dir[n - 1] == '/')
        dir[--n] = '\0';
    char *slash = strrchr(dir, '/');
    *ret_name = str_dup(slash ? slash + 1 : dir);
    if (slash)
        slash[slash == dir] = '\0';
    *ret_dir = open(slash ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *ret_dir < 0 ? cp_sys(c, "can't be opened", slash ? dir : ".") : 0;
}

int cp_out(struct cp *c, const char *src, const char *dst)
{
    struct petri_stat from = PETRI_STAT_INIT;
    AUTOFREE char *text = NULL, *name = NULL, *base = cp_base(src);
    AUTOCLOSE int dir = -1;
    bool content = str_ends(src, "/.") || strcmp(src, ".") == 0 || !*base;
    struct stat st;

    if (petri_fs_stat(c->s, src, c->follow ? 0 : PETRI_FS_NOFOLLOW, &from, &text, &c->e) < 0)
        return -1;
    if (stat(dst, &st) == 0 && S_ISDIR(st.st_mode)) {
        if ((dir = open(dst, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
            return cp_sys(c, "can't be opened", dst);
        if (S_ISDIR(from.mode) && content)
            return content_out(c, src, dir, 0);
        if (strcmp(base, "..") == 0)
            return cp_refuse(c, "invalid", src, "has no name of its own; write what it is called");
        return any_out(c, src, from.mode, text, dir, base, 0);
    }
    if (lstat(dst, &st) == 0 && S_ISDIR(from.mode))
        return cp_refuse(c, "exists", dst, "is no directory");
    if (!S_ISDIR(from.mode) && str_ends(dst, "/"))
        return cp_refuse(c, "not_found", dst, "no such directory");
    if (open_parent(c, dst, &dir, &name) < 0)
        return -1;
    return any_out(c, src, from.mode, text, dir, name, 0);
}
