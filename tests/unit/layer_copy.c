/* A copied layer has everything that the first one has, and is another one. */
#include "runtime/workspace/layer_copy.h"

#include "tests/unit/check.h"
#include "tests/unit/tree_dump.h"

#include <sys/sysmacros.h>

enum { DEEP = 1200 };

static void times_of(const char *path, long sec, long nsec)
{
    const struct timespec t[2] = { { .tv_sec = sec }, { .tv_sec = sec, .tv_nsec = nsec } };
    CHECK(utimensat(AT_FDCWD, path, t, AT_SYMLINK_NOFOLLOW) == 0, "%s", path);
}

static void file(const char *path, const char *text, mode_t mode)
{
    AUTOCLOSE int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && fs_write_all(fd, text, strlen(text)) == 0 && fchmod(fd, mode) == 0, "%s",
          path);
}

static void sparse(const char *path)
{
    AUTOCLOSE int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && ftruncate(fd, 9 << 20) == 0 && pwrite(fd, "middle", 6, 4 << 20) == 6, "%s",
          path);
}

static void deep(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < DEEP && fd >= 0; i++) {
        int next = mkdirat(fd, "level-of-many", 0755) < 0
                       ? -1
                       : openat(fd, "level-of-many", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(fd);
        fd = next;
    }
    CHECK(fd >= 0 && mkdirat(fd, "bottom", 0700) == 0, "deep");
    close_p(&fd);
}

static int depth_of(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), n = 0, next;
    while ((next = openat(fd, "level-of-many", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) >= 0) {
        close(fd);
        fd = next;
        n++;
    }
    n += faccessat(fd, "bottom", F_OK, 0) == 0;
    close_p(&fd);
    return n;
}

static void set(const char *path, const char *name, const char *value)
{
    CHECK(lsetxattr(path, name, value, strlen(value), 0) == 0, "%s of %s: %s", name, path,
          strerror(errno));
}

static void make_layer(bool root)
{
    static char big[1 << 20];

    CHECK(mkdir("a", 0755) == 0 && mkdir("a/r", 0755) == 0 && mkdir("a/w0", 0755) == 0, "layer");
    CHECK(mkdir("a/work", 0755) == 0 && mkdir("a/work/work", 0) == 0 &&
              mkdir("a/r/shut", 0700) == 0,
          "layer");
    memset(big, 'x', sizeof big - 1);
    file("a/work/rubbish", "x", 0600);
    file("a/r/plain", "hello", 0644);
    file("a/r/big", big, 0600);
    file("a/r/none", "", 0);
    file("a/r/setuid", "s", 06755);
    file("a/r/shut/in", "secret", 0400);
    sparse("a/w0/holes");
    CHECK(truncate("a/r/none", 1 << 20) == 0, "all hole");
    file("a/w0/one", "several names", 0644);
    CHECK(link("a/w0/one", "a/w0/two") == 0 && link("a/w0/one", "a/r/three") == 0, "link");
    CHECK(symlink("/etc/shadow", "a/w0/link") == 0 && link("a/w0/link", "a/w0/link2") == 0, "link");
    CHECK(mkfifo("a/w0/fifo", 0640) == 0 && mknod("a/w0/sock", S_IFSOCK | 0600, 0) == 0, "nodes");
    CHECK(mknod("a/w0/gone", S_IFCHR, makedev(0, 0)) == 0 && link("a/w0/gone", "a/w0/gone2") == 0,
          "whiteouts");
    CHECK(mkdir("a/w0/opaque", 01777) == 0 && chmod("a/w0/opaque", 01777) == 0, "opaque");
    set("a/w0/opaque", root ? "trusted.overlay.opaque" : "user.overlay.opaque", "y");
    set("a/w0/one", "user.note", "a value");
    if (root) {
        set("a/w0/link", "trusted.note", "of a link");
        CHECK(chown("a/r/plain", 524288, 524289) == 0 && lchown("a/w0/link", 5, 6) == 0 &&
                  chown("a/r/setuid", 7, 8) == 0 && chmod("a/r/setuid", 06755) == 0,
              "owner");
    }
    deep("a/r/shut");
    times_of("a/w0/link", 1000000, 123456789);
    times_of("a/w0/fifo", 1000001, 1);
    times_of("a/r/plain", 2000000000, 999999999);
    times_of("a/w0/opaque", 77, 7);
    CHECK(chmod("a/r/shut", 0) == 0, "mode");
    times_of("a/r/shut", 88, 8);
    times_of("a/r", 99, 9);
}

static int test(void *arg, struct err **e)
{
    bool root;
    AUTOFREE char *map = NULL;

    (void)fs_read(AT_FDCWD, "/proc/self/uid_map", 4096, &map, NULL, NULL);
    root = map && strstr(map, "4294967295");
    check_scratch();
    make_layer(root);
    CHECK(mkdir("b", 0755) == 0 && mkdir("b/work", 0755) == 0, "layer");
    AUTOCLOSE int a = open("a", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                  b = open("b", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct err *why = NULL;
    int rc = layer_copy(a, b, &why);
    AUTOFREE char *text = why ? err_text(why) : str_dup("");
    CHECK(rc == 0, "%s", text);
    err_free(why);
    CHECK(depth_of("b/r/shut") == DEEP + 1, "%d deep", depth_of("b/r/shut"));
    CHECK(fs_remove_tree(AT_FDCWD, "a/r/shut/level-of-many", NULL) == 0 &&
              fs_remove_tree(AT_FDCWD, "b/r/shut/level-of-many", NULL) == 0,
          "remove");
    times_of("a/r/shut", 88, 8);
    times_of("b/r/shut", 88, 8);
    CHECK(chmod("a/r/shut", 0) == 0 && chmod("b/r/shut", 0) == 0, "mode");
    AUTOFREE char *want = tree_dump("a", DUMP_OVERLAY | DUMP_BLOCKS | DUMP_LINKS),
                  *got = tree_dump("b", DUMP_OVERLAY | DUMP_BLOCKS | DUMP_LINKS);
    CHECK(same_dump(want, got), "the copy differs");
    CHECK(strstr(got, "sparse") && strstr(got, "n3 same:"), "%s", got);
    CHECK(!fs_exists("b/work/rubbish") && !fs_exists("b/.links"), "left over");
    file("b/r/big", "other", 0600);
    AUTOFREE char *after = tree_dump("a", DUMP_OVERLAY | DUMP_BLOCKS | DUMP_LINKS);
    CHECK(same_dump(want, after), "the copy is not independent");
    CHECK(mkdir("c", 0755) == 0 && mkdir("c/r", 0755) == 0, "layer");
    if (root) {
        CHECK(mknod("c/r/null", S_IFCHR | 0666, makedev(1, 3)) == 0, "device");
        AUTOCLOSE int c = open("c", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        CHECK(mkdir("d", 0755) == 0, "layer");
        AUTOCLOSE int d = open("d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        CHECK(layer_copy(c, d, NULL) < 0, "a device was copied");
    }
    check_scratch_end();
    return check_done() ? err_new(e, ERR_FAILED, "checks failed") : 0;
}

int main(void)
{
    return run_as_root(test);
}
