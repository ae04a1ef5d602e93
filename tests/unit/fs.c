/* Files: whole reads and writes, atomic replacement, private directories, removal, safe look-up. */
#include "tests/unit/check.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <pwd.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "base/fs.h"

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f) != 0) {
        perror(path);
        exit(1);
    }
}

static char *get(const char *path)
{
    char *p = NULL;
    return fs_read(AT_FDCWD, path, 1 << 20, &p, NULL, NULL) == 0 ? p : NULL;
}

static void must(int rc, const char *what)
{
    if (rc < 0) {
        perror(what);
        exit(1);
    }
}

static void shell(const char *script)
{
    if (system(script) != 0) {
        fprintf(stderr, "fixture failed: %s\n", script);
        exit(1);
    }
}

static void reading(void)
{
    char *p = NULL;
    size_t n = 0;
    struct err *e = NULL;
    put("five", "12345");
    CHECK(fs_read(AT_FDCWD, "five", 5, &p, &n, NULL) == 0 && n == 5, "at the limit");
    CHECK_STR(p, "12345");
    free(TAKE_PTR(p));
    CHECK(fs_read(AT_FDCWD, "five", 4, &p, &n, &e) == -ERR_INVALID && !p, "past the limit");
    e = err_free(e);
    CHECK(fs_read(AT_FDCWD, "/dev/zero", 1 << 20, &p, &n, NULL) < 0 && !p, "an endless file");
    CHECK(fs_read(AT_FDCWD, "none", 5, &p, &n, &e) < 0 && e->sys == ENOENT, "missing");
    e = err_free(e);
    CHECK(fs_read(AT_FDCWD, ".", 5, &p, &n, NULL) < 0 && !p, "a directory");
    must(mkfifo("fifo", 0600), "mkfifo");
    alarm(10); /* a stranger's FIFO must not hang us */
    (void)fs_read(AT_FDCWD, "fifo", 5, &p, &n, NULL);
    alarm(0);
    free(TAKE_PTR(p));
    put("empty", "");
    CHECK(fs_read(AT_FDCWD, "empty", 0, &p, &n, NULL) == 0 && n == 0 && p, "an empty file");
    free(p);
}

static void writing(void)
{
    struct stat st;
    AUTOCLOSE int dir = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    put("target", "keep");
    must(symlink("target", "link"), "symlink");
    umask(022);
    CHECK(fs_write_atomic(dir, "link", "new", 3, 0600, NULL) == 0, "over a link");
    AUTOFREE char *target = get("target"), *link = get("link");
    CHECK_STR(target, "keep"); /* the link was replaced, not followed */
    CHECK_STR(link, "new");
    CHECK(lstat("link", &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 0777) == 0600, "mode");
    must(mkdir("sub", 0755), "mkdir");
    CHECK(fs_write_atomic(AT_FDCWD, "sub/file", "", 0, 0644, NULL) == 0, "empty, in a directory");
    AUTOFREE char *abs = str_printf("%s/sub/file", check_dir);
    CHECK(fs_write_atomic(AT_FDCWD, abs, "abs", 3, 0644, NULL) == 0, "absolute");
    CHECK(fs_write_atomic(AT_FDCWD, "sub", "x", 1, 0644, NULL) < 0, "over a directory");
    CHECK(fs_write_atomic(AT_FDCWD, "no/file", "x", 1, 0644, NULL) < 0, "no such directory");
    CHECK(system("test -z \"$(find . -name '.tmp-*')\"") == 0, "no temporary file is left");
    CHECK(fs_write_at(AT_FDCWD, "target", "KE", NULL) == 0, "in place");
    AUTOFREE char *now = get("target");
    CHECK_STR(now, "KEep");
    CHECK(fs_write_at(AT_FDCWD, "absent", "x", NULL) < 0 && !fs_exists("absent"), "never creates");

    put("long", "the whole of it");
    AUTOCLOSE int in = open("long", O_RDONLY | O_CLOEXEC);
    AUTOCLOSE int out = open("copy", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    must((int)lseek(in, 4, SEEK_SET), "seek");
    CHECK(fs_copy_fd(in, out, NULL) == 0, "copy");
    AUTOFREE char *copy = get("copy");
    CHECK_STR(copy, "whole of it");
    int pipefd[2];
    must(pipe(pipefd), "pipe");
    must((int)write(pipefd[1], "piped", 5), "write");
    close(pipefd[1]);
    AUTOCLOSE int out2 = open("copy2", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fs_copy_fd(pipefd[0], out2, NULL) == 0, "from a pipe");
    close(pipefd[0]);
    AUTOFREE char *copy2 = get("copy2");
    CHECK_STR(copy2, "piped");
}

static void directories(void)
{
    struct stat st;
    struct err *e = NULL;
    umask(022);
    CHECK(fs_mkdirs("m/n/o", 0755, NULL) == 0 && fs_is_dir("m/n/o"), "mkdir -p");
    CHECK(fs_mkdirs("m/n/o", 0700, NULL) == 0 && fs_mkdirs("m/n/o/", 0700, NULL) == 0, "again");
    CHECK(stat("m/n/o", &st) == 0 && (st.st_mode & 0777) == 0755, "keeps its mode");
    put("m/file", "");
    CHECK(fs_mkdirs("m/file", 0755, NULL) < 0 && fs_mkdirs("m/file/x", 0755, NULL) < 0, "a file");
    CHECK(fs_mkdirs("m//d/./e", 0755, NULL) == 0 && fs_is_dir("m/d/e"), "untidy");

    CHECK(fs_private_dir("p/q", NULL) == 0 && stat("p/q", &st) == 0 && (st.st_mode & 0777) == 0700,
          "private");
    must(chmod("p/q", 0755), "chmod");
    CHECK(fs_private_dir("p/q", NULL) < 0 && stat("p/q", &st) == 0 && (st.st_mode & 0777) == 0755,
          "one that others can enter is refused, and left as it was");
    must(symlink("q", "p/link"), "symlink");
    CHECK(fs_private_dir("p/link", NULL) < 0, "never a link");
    put("p/f", "");
    CHECK(fs_private_dir("p/f", NULL) < 0, "never a file");
    if (geteuid() == 0) {
        must(mkdir("other", 0755), "mkdir");
        must(chown("other", 12345, 12345), "chown");
        CHECK(fs_private_dir("other", &e) == -ERR_DENIED, "another user's");
        CHECK(stat("other", &st) == 0 && (st.st_mode & 0777) == 0755, "and left as it was");
        err_free(e);
    }
}

/* A sandbox can nest directories deeper than there are file descriptors. */
static void deep(const char *name, int levels)
{
    AUTOCLOSE int top = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    must(mkdir(name, 0755), "mkdir");
    must(chdir(name), "chdir");
    for (int i = 0; i < levels; i++) {
        must(mkdir("d", 0755), "mkdir d");
        must(chdir("d"), "chdir d");
    }
    must(fchdir(top), "fchdir");
}

static void removal(void)
{
    struct err *e = NULL;
    CHECK(fs_remove_tree(AT_FDCWD, "absent", NULL) == 0, "missing is fine");
    CHECK(fs_remove_tree(AT_FDCWD, "absent/below", NULL) == 0, "missing is fine");
    put("plain", "");
    CHECK(fs_remove_tree(AT_FDCWD, "plain", NULL) == 0 && !fs_exists("plain"), "a file");
    must(mkdir("outside", 0755), "mkdir");
    put("outside/keep", "k");
    must(symlink("outside", "tolink"), "symlink");
    CHECK(fs_remove_tree(AT_FDCWD, "tolink", NULL) == 0 && fs_exists("outside/keep"), "a link");

    shell("mkdir -p t/a/b t/ro t/none t/work/work && touch t/a/b/f t/ro/f 't/a/ odd\n' &&"
          "mkfifo t/fifo && ln -s ../outside t/a/link && ln -s / t/root &&"
          "touch t/none/f && chmod 0500 t/ro && chmod 0 t/none t/work/work");
    CHECK(fs_remove_tree(AT_FDCWD, "t", &e) == 0 && !fs_exists("t"), "%s", e ? e->msg : "");
    e = err_free(e);
    CHECK(fs_exists("outside/keep"), "links are not followed");

    shell("mkdir -p u/d && touch u/d/f && chmod 0500 u");
    CHECK(fs_remove_tree(AT_FDCWD, "u", &e) == 0 && !fs_exists("u"),
          "the top itself is read-only: %s", e ? e->msg : "");
    e = err_free(e);
    (void)chmod("u", 0700);

    struct rlimit old, few;
    must(getrlimit(RLIMIT_NOFILE, &old), "getrlimit");
    few = old;
    few.rlim_cur = 256;
    must(setrlimit(RLIMIT_NOFILE, &few), "setrlimit");
    deep("deep", 3000);
    CHECK(fs_remove_tree(AT_FDCWD, "deep", &e) == 0 && !fs_exists("deep"),
          "deeper than there are descriptors: %s", e ? e->msg : "");
    e = err_free(e);
    must(setrlimit(RLIMIT_NOFILE, &old), "setrlimit");

    if (geteuid() == 0 && mkdir("mnt", 0755) == 0 && mkdir("mnt/in", 0755) == 0 &&
        mount("petri-unit", "mnt/in", "tmpfs", 0, "size=64k") == 0) {
        put("mnt/in/keep", "");
        CHECK(fs_remove_tree(AT_FDCWD, "mnt", NULL) < 0, "another file system is left alone");
        CHECK(fs_exists("mnt/in/keep"), "and what is on it");
        must(umount("mnt/in"), "umount");
    }
    /* a bind mount of the same file system has the same device number */
    if (geteuid() == 0 && mkdir("bnd", 0755) == 0 && mkdir("bnd/in", 0755) == 0 &&
        mount("outside", "bnd/in", NULL, MS_BIND, NULL) == 0) {
        CHECK(fs_remove_tree(AT_FDCWD, "bnd", NULL) < 0, "another mount is left alone");
        CHECK(fs_exists("outside/keep"), "a bind mount of the same file system is emptied");
        must(umount("bnd/in"), "umount");
    }
}

static void beneath(void)
{
    AUTOCLOSE int dir = -1;
    shell("mkdir -p b/in/deep && echo x >b/in/deep/f && ln -s in b/lin && ln -s /etc b/abs &&"
          "ln -s ../outside b/up && echo o >b-secret");
    dir = open("b", O_PATH | O_DIRECTORY | O_CLOEXEC);
    static const struct {
        const char *path;
        int flags, sys; /* 0: opens */
    } rows[] = {
        { "in/deep/f", O_RDONLY, 0 },       { "in/../in/deep/f", O_RDONLY, 0 },
        { "in//deep/./f", O_RDONLY, 0 },    { ".", O_PATH, 0 },
        { "../b-secret", O_RDONLY, EXDEV }, { "in/../../b-secret", O_RDONLY, EXDEV },
        { "/etc/passwd", O_RDONLY, EXDEV }, { "..", O_PATH, EXDEV },
        { "lin/deep/f", O_RDONLY, ELOOP },  { "abs/passwd", O_RDONLY, ELOOP },
        { "up/keep", O_RDONLY, ELOOP },     { "lin", O_RDONLY, ELOOP },
        { "none", O_RDONLY, ENOENT },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTOCLOSE int fd = fs_open_beneath(dir, rows[i].path, rows[i].flags, 0, 0);
        CHECK(rows[i].sys ? fd < 0 && errno == rows[i].sys : fd >= 0, "%s: %s", rows[i].path,
              fd < 0 ? strerror(errno) : "opened");
        if (fd >= 0)
            CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC, "%s: close-on-exec", rows[i].path);
    }
    AUTOCLOSE int made = fs_open_beneath(dir, "in/new", O_WRONLY | O_CREAT | O_EXCL, 0640, 0);
    struct stat st;
    umask(0);
    CHECK(made >= 0 && fstat(made, &st) == 0 && (st.st_mode & 0777 & ~022) == 0640, "creates");
    AUTOCLOSE int proc = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
    AUTOCLOSE int magic = fs_open_beneath(proc, "cwd/b-secret", O_RDONLY, 0, 0);
    CHECK(magic < 0, "a magic link");
    AUTOCLOSE int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    AUTOCLOSE int xdev = fs_open_beneath(root, "proc/self", O_PATH, 0, RESOLVE_NO_XDEV);
    CHECK(xdev < 0, "more rules can be added");
}

static void small_ones(void)
{
    shell("mkdir s && ln -s s sl && ln -s nowhere dangling && touch sf");
    CHECK(fs_is_dir("s") && fs_is_dir("sl") && !fs_is_dir("sf") && !fs_is_dir("none"), "is_dir");
    CHECK(fs_exists("dangling") && fs_exists("sf") && !fs_exists("none"), "exists");
    AUTOFREE char *l = fs_readlink(AT_FDCWD, "sl"), *r = fs_realpath("sl/../sl");
    AUTOFREE char *want = str_printf("%s/s", check_dir);
    CHECK_STR(l, "s");
    CHECK_STR(r, want);
    CHECK(!fs_readlink(AT_FDCWD, "s") && errno == EINVAL, "not a link");
    CHECK(!fs_realpath("dangling") && errno == ENOENT, "dangling");
}

/* The same again as an ordinary user, for whom modes mean something. */
static int everything(void)
{
    check_scratch();
    reading();
    writing();
    directories();
    removal();
    beneath();
    small_ones();
    check_scratch_end();
    return check_done();
}

int main(void)
{
    if (geteuid() == 0) {
        pid_t pid = fork();
        if (pid == 0) {
            struct passwd *pw = getpwnam("nobody");
            if (!pw || setgid(pw->pw_gid) < 0 || setuid(pw->pw_uid) < 0)
                return 1;
            return everything();
        }
        int st = 1;
        CHECK(pid > 0 && waitpid(pid, &st, 0) == pid && st == 0, "as an ordinary user: %x", st);
    }
    return everything();
}
