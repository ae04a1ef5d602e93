/* runtime/init/files.c - files without a process: PROTO_FS.
 *
 * Runs as the sandbox's user within its root: a path or a link can't lead anywhere that a program
 * inside could not go.
 * Owns:  what FS_WRITE made and FS_COMMIT has not yet put into place.
 * Crash: an uncommitted .petri-XXXXXX stays beside its target.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/macros.h"
#include "runtime/init/init.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

struct fs_write {
    int dir, file;
    bool exclusive;
    mode_t mode;
    char temp[16], name[NAME_MAX + 1];
};

/* An answer: struct proto_stat, then at most a name and a link's text. */
struct answer {
    struct proto_stat st;
    char text[NAME_MAX + PATH_MAX + 2];
};

struct fs_write *fs_write_drop(struct fs_write *w)
{
    if (!w)
        return NULL;
    if (w->temp[0])
        unlinkat(w->dir, w->temp, 0);
    close_p(&w->file);
    close_p(&w->dir);
    free(w);
    return NULL;
}

/* Fills an answer about `name` in `dir`; its size, or 0 with errno. */
static size_t describe(int dir, const char *name, const struct stat *st, bool with_name,
                       struct answer *a)
{
    size_t n = 0;
    ssize_t len;

    a->st = (struct proto_stat){ .mode = st->st_mode,
                                 .nlink = (uint32_t)st->st_nlink,
                                 .uid = st->st_uid,
                                 .gid = st->st_gid,
                                 .size = (uint64_t)st->st_size,
                                 .ino = st->st_ino,
                                 .mtime_sec = st->st_mtim.tv_sec,
                                 .mtime_nsec = (uint32_t)st->st_mtim.tv_nsec };
    if (with_name) {
        n = strlen(name) + 1;
        memcpy(a->text, name, n);
    }
    if (S_ISLNK(st->st_mode)) {
        len = readlinkat(dir, name, a->text + n, PATH_MAX - 1);
        if (len < 0)
            return 0;
        a->st.has_target = 1;
        n += (size_t)len;
        a->text[n++] = '\0';
    }
    return sizeof a->st + n;
}

static int fail(int conn, enum proto_stage stage, int error)
{
    struct proto_failed f = { .stage = stage, .error = error };
    return proto_send_now(conn, PROTO_FAILED, &f, sizeof f, NULL, 0);
}

/* Ends a request: FS_OK with what `fd` (or `path`) is, or FAILED with errno. */
static int answer_fd(int conn, int fd, bool send)
{
    struct answer a;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return fail(conn, STAGE_FS, errno);
    return proto_send_now(conn, PROTO_FS_OK, &a, describe(fd, "", &st, false, &a), &fd, send);
}

static int answer_path(int conn, const char *path, int flags)
{
    struct answer a;
    struct stat st;
    size_t n;

    if (fstatat(AT_FDCWD, path, &st, flags) < 0 || !(n = describe(AT_FDCWD, path, &st, false, &a)))
        return fail(conn, STAGE_FS, errno);
    return proto_send_now(conn, PROTO_FS_OK, &a, n, NULL, 0);
}

static int read_open(const char *path)
{
    AUTOCLOSE int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -1;
    if (!S_ISREG(st.st_mode)) {
        errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
        return -1;
    }
    return TAKE_FD(fd);
}

static mode_t usual(mode_t all)
{
    mode_t mask = umask(0);
    umask(mask);
    return all & ~mask;
}

/* With what is missing above it; a directory that is there is fine. */
static int make_dirs(char *path)
{
    struct stat st;

    for (char *p = path + 1;; p++) {
        char c = *p;
        if (c != '/' && c != '\0')
            continue;
        *p = '\0';
        if (mkdir(path, 0777) < 0) {
            int error = errno == EEXIST ? ENOTDIR : errno;
            if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode)) {
                errno = error;
                return -1;
            }
        }
        *p = c;
        if (c == '\0')
            return 0;
    }
}

static int make_dir(char *path, const struct proto_fs *h)
{
    struct stat st;
    char *end = path + strlen(path);

    while (end > path + 1 && end[-1] == '/')
        *--end = '\0';
    if ((h->flags & FS_PARENTS) && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return 0;
    if (h->flags & FS_PARENTS) {
        char *slash = strrchr(path, '/');
        if (slash && slash != path) {
            *slash = '\0';
            if (make_dirs(path) < 0)
                return -1;
            *slash = '/';
        }
    }
    if (mkdir(path, 0777) < 0)
        return -1;
    return h->mode ? chmod(path, h->mode & 07777) : 0;
}

/* Replaces a path that is a link by where it leads, so that the link stays; 1: something is there. */
static int follow(char path[PATH_MAX], struct stat *ret)
{
    for (int i = 0; i < 40; i++) {
        char to[PATH_MAX], *slash = strrchr(path, '/');
        size_t dir = slash ? (size_t)(slash - path) + 1 : 0;
        ssize_t n;

        if (lstat(path, ret) < 0)
            return errno == ENOENT ? 0 : -1;
        if (!S_ISLNK(ret->st_mode))
            return 1;
        n = readlink(path, to, sizeof to - 1);
        if (n < 0)
            return -1;
        to[n] = '\0';
        if (to[0] == '/')
            dir = 0;
        if (dir + (size_t)n >= PATH_MAX) {
            errno = ENAMETOOLONG;
            return -1;
        }
        memcpy(path + dir, to, (size_t)n + 1);
    }
    errno = ELOOP;
    return -1;
}

static int make_temp(struct fs_write *w)
{
    static const char digits[] = "abcdefghijklmnopqrstuvwxyz012345";

    for (int i = 0; i < 100; i++) {
        unsigned char r[6];
        char temp[sizeof w->temp];
        if (getrandom(r, sizeof r, 0) != sizeof r)
            return -1;
        snprintf(temp, sizeof temp, ".petri-%c%c%c%c%c%c", digits[r[0] % 32], digits[r[1] % 32],
                 digits[r[2] % 32], digits[r[3] % 32], digits[r[4] % 32], digits[r[5] % 32]);
        w->file = openat(w->dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (w->file >= 0)
            memcpy(w->temp, temp, sizeof temp);
        if (w->file >= 0 || errno != EEXIST)
            return w->file;
    }
    return -1;
}

static int write_open(char path[PATH_MAX], const struct proto_fs *h, struct fs_write *w)
{
    struct stat st;
    int there = h->flags & FS_EXCLUSIVE ? lstat(path, &st) == 0 : follow(path, &st);
    char *slash = strrchr(path, '/');

    if (there < 0)
        return -1;
    errno = !slash                    ? EINVAL
            : !slash[1]               ? EISDIR
            : !there                  ? 0
            : h->flags & FS_EXCLUSIVE ? EEXIST
            : S_ISDIR(st.st_mode)     ? EISDIR
            : !S_ISREG(st.st_mode)    ? EINVAL
                                      : 0;
    if (errno || (there && faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) < 0))
        return -1;
    if (strlen(slash + 1) > NAME_MAX) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(w->name, slash + 1, strlen(slash + 1) + 1);
    slash[slash == path] = '\0';
    w->exclusive = h->flags & FS_EXCLUSIVE;
    w->mode = h->mode ? h->mode & 07777 : there ? st.st_mode & 07777 : usual(0666);
    w->dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (w->dir < 0 && errno == ENOENT && (h->flags & FS_PARENTS) && make_dirs(path) == 0)
        w->dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return w->dir < 0 ? -1 : make_temp(w);
}

static int write_start(int conn, char path[PATH_MAX], const struct proto_fs *h, struct fs_write **w)
{
    *w = fs_write_drop(*w);
    *w = calloc(1, sizeof **w);
    if (!*w)
        return fail(conn, STAGE_FS, ENOMEM);
    (*w)->dir = (*w)->file = -1;
    if (write_open(path, h, *w) < 0) {
        int r = fail(conn, STAGE_FS, errno);
        *w = fs_write_drop(*w);
        return r;
    }
    return answer_fd(conn, (*w)->file, true);
}

static int commit(int conn, struct fs_write **w)
{
    int r;

    if (!*w)
        return fail(conn, STAGE_FS, EINVAL);
    if (fchmod((*w)->file, (*w)->mode) < 0 ||
        syscall(SYS_renameat2, (*w)->dir, (*w)->temp, (*w)->dir, (*w)->name,
                (*w)->exclusive ? RENAME_NOREPLACE : 0) < 0) {
        r = fail(conn, STAGE_FS, errno);
    } else {
        (*w)->temp[0] = '\0';
        r = answer_fd(conn, (*w)->file, false);
    }
    *w = fs_write_drop(*w);
    return r;
}

static int list(int conn, const char *path)
{
    struct answer a;
    struct dirent *d;
    struct stat st;
    DIR *dir = opendir(path);
    size_t n;
    int r = 0;

    if (!dir)
        return fail(conn, STAGE_FS, errno);
    while (r == 0 && (d = readdir(dir))) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0 ||
            fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !(n = describe(dirfd(dir), d->d_name, &st, true, &a)))
            continue; /* gone meanwhile */
        r = proto_send(conn, PROTO_FS_ENTRY, &a, n, NULL, 0);
    }
    if (r == 0 && (fstat(dirfd(dir), &st) < 0 || !(n = describe(-1, "", &st, false, &a))))
        r = fail(conn, STAGE_FS, errno);
    else if (r == 0)
        r = proto_send(conn, PROTO_FS_OK, &a, n, NULL, 0);
    closedir(dir);
    return r;
}

/* Goes on after an error, as rm does; the first one is the result. */
static int remove_tree(int at, const char *name)
{
    struct dirent *d;
    int fd, error = 0;
    DIR *dir;

    if (unlinkat(at, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return errno;
    fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        error = errno;
        close_p(&fd);
        return unlinkat(at, name, AT_REMOVEDIR) == 0 ? 0 : error;
    }
    while ((d = readdir(dir))) {
        int e = 0;
        if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
            e = remove_tree(dirfd(dir), d->d_name);
        error = error ? error : e;
    }
    closedir(dir);
    if (unlinkat(at, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
        error = error ? error : errno;
    return error;
}

static int remove_path(int conn, const char *path, bool recursive)
{
    struct answer a;
    struct stat st;
    size_t n;
    int error;

    if (fstatat(AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        !(n = describe(AT_FDCWD, path, &st, false, &a)))
        return fail(conn, STAGE_FS, errno);
    if (S_ISDIR(st.st_mode) && !recursive)
        return fail(conn, STAGE_FS, EISDIR);
    error = recursive ? remove_tree(AT_FDCWD, path) : unlink(path) < 0 ? errno : 0;
    return error ? fail(conn, STAGE_FS, error) : proto_send_now(conn, PROTO_FS_OK, &a, n, NULL, 0);
}

bool files_slow(const struct proto_fs_request *r)
{
    return r->head.op == FS_LS || (r->head.op == FS_RM && (r->head.flags & FS_RECURSIVE));
}

/* Absolute: PID 1 stands nowhere that could be taken away. */
static int full_path(const char *cwd, const char *path, char ret[PATH_MAX])
{
    int n;

    errno = ENOENT;
    if (!path || !path[0])
        return -1;
    n = path[0] == '/' ? snprintf(ret, PATH_MAX, "%s", path)
                       : snprintf(ret, PATH_MAX, "%s/%s", cwd, path);
    errno = ENAMETOOLONG;
    return n < PATH_MAX ? 0 : -1;
}

int files_answer(int conn, const char *cwd, const struct proto_fs_request *r, struct fs_write **w)
{
    const struct proto_fs *h = &r->head;
    char path[PATH_MAX], to[PATH_MAX];
    AUTOCLOSE int fd = -1;

    if (h->op == FS_COMMIT)
        return commit(conn, w);
    if (full_path(cwd, r->path[0], path) < 0 ||
        (h->op == FS_MV && full_path(cwd, r->path[1], to) < 0))
        return fail(conn, STAGE_FS, errno);
    switch (h->op) {
    case FS_READ:
        fd = read_open(path);
        return answer_fd(conn, fd, true);
    case FS_WRITE:
        return write_start(conn, path, h, w);
    case FS_STAT:
        return answer_path(conn, path, h->flags & FS_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0);
    case FS_LS:
        return list(conn, path);
    case FS_MKDIR:
        return make_dir(path, h) < 0 ? fail(conn, STAGE_FS, errno) : answer_path(conn, path, 0);
    case FS_RM:
        return remove_path(conn, path, h->flags & FS_RECURSIVE);
    case FS_MV:
        return syscall(SYS_renameat2, AT_FDCWD, path, AT_FDCWD, to,
                       h->flags & FS_EXCLUSIVE ? RENAME_NOREPLACE : 0) < 0
                   ? fail(conn, STAGE_FS, errno)
                   : answer_path(conn, to, AT_SYMLINK_NOFOLLOW);
    default:
        return fail(conn, STAGE_FS, ENOSYS);
    }
}
