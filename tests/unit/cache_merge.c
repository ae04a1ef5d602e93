/* What goes from a sandbox into a base of caches, and what does not; the old base stays as it was. */
#include "runtime/workspace/cache_merge.h"

#include "tests/unit/check.h"
#include "tests/unit/tree_dump.h"

#include <sys/sysmacros.h>

static const struct {
    const char *dir, *text;
    bool stays;
} links[] = {
    { "", "a", true },
    { "", "a/b/c", true },
    { "", "./a//b", true },
    { "", "..", false },
    { "", "../x", false },
    { "", "/", false },
    { "", "/var/cache/petri/pip", false },
    { "", "", false },
    { "a", "../b", true },
    { "a", "..", true },
    { "a", "../..", false },
    { "a/b/c", "../../../d", true },
    { "a/b/c", "../../../../d", false },
    { "a/b", "x/../y", false }, /* x may be a link itself */
    { "a/b", "../x/..", false },
    { "a", "..x/y", true },
    { "a", "x/..y", true },
    { "a", ".././../b", false },
};

static void file(const char *path, const char *text, mode_t mode)
{
    const struct timespec t[2] = { { .tv_sec = 5 }, { .tv_sec = 1000, .tv_nsec = 77 } };
    AUTOCLOSE int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && fs_write_all(fd, text, strlen(text)) == 0 && fchmod(fd, mode) == 0 &&
              futimens(fd, t) == 0,
          "%s", path);
}

static void dirs(const char *path)
{
    CHECK(fs_mkdirs(path, 0755, NULL) == 0, "%s", path);
}

static void whiteout(const char *path)
{
    CHECK(mknod(path, S_IFCHR, makedev(0, 0)) == 0, "%s: %s", path, strerror(errno));
}

static char *text_of(const char *path)
{
    char *s = NULL;
    return fs_read(AT_FDCWD, path, 1 << 20, &s, NULL, NULL) < 0 ? NULL : s;
}

static void holds(const char *path, const char *want)
{
    AUTOFREE char *got = text_of(path);
    CHECK_STR(got, want);
}

static bool wanted(const char *path)
{
    return strncmp(path, "other", 5) != 0;
}

static struct cache_counts counts;
static struct cache_rules rules;

static int merge(const char *base, const char *a, const char *b, const char *to, struct err **e)
{
    const char *const names[] = { a, b };
    int from = base ? open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1, fds[2], dst, rc;
    size_t n = 0;

    dirs(to);
    dst = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < 2 && names[i]; i++)
        fds[n++] = open(names[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    rc = cache_merge(&rules, from, fds, n, dst, &counts, e);
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
    close(dst);
    close_p(&from);
    return rc;
}

static void plain(void)
{
    struct stat st, old;

    dirs("base/pip/sub");
    file("base/pip/kept", "kept", 0644);
    file("base/pip/gone", "gone", 0644);
    file("base/pip/changed", "older", 0644);
    file("base/pip/sub/deep", "deep", 0644);
    dirs("base/pip/replaced");
    file("base/pip/replaced/hidden", "hidden", 0644);
    file("base/pip/dir-to-file", "", 0644);
    dirs("base/npm");
    file("base/npm/all", "all", 0644);
    dirs("one/pip/new/er");
    file("one/pip/new/er/f", "new", 04755);
    file("one/pip/changed", "new", 0600);
    whiteout("one/pip/gone");
    dirs("one/pip/replaced");
    CHECK(setxattr("one/pip/replaced",
                   geteuid() == 0 ? "trusted.overlay.opaque" : "user.overlay.opaque", "y", 1,
                   0) == 0,
          "opaque");
    file("one/pip/replaced/only", "only", 0644);
    dirs("one/pip/dir-to-file");
    CHECK(symlink("new/er", "one/pip/l") == 0, "link");
    dirs("two/pip/new");
    file("two/pip/gone", "again", 0644);
    whiteout("two/npm");
    whiteout("two/pip/never-was");

    CHECK(merge("base", "one", "two", "to", NULL) == 0, "merge");
    holds("to/pip/kept", "kept");
    holds("to/pip/gone", "again");
    holds("to/pip/changed", "new");
    holds("to/pip/sub/deep", "deep");
    holds("to/pip/new/er/f", "new");
    holds("to/pip/l/f", "new");
    holds("to/pip/replaced/only", "only");
    CHECK(!fs_exists("to/pip/replaced/hidden") && !fs_exists("to/npm"), "what was removed");
    CHECK(fs_is_dir("to/pip/dir-to-file"), "a file became a directory");
    CHECK(stat("to/pip/new/er/f", &st) == 0 && (st.st_mode & 07777) == 0755, "setuid: %o",
          st.st_mode);
    CHECK(stat("to/pip/changed", &st) == 0 && (st.st_mode & 07777) == 0644 &&
              st.st_mtim.tv_nsec == 77,
          "mode and time");
    CHECK(stat("to/pip/kept", &st) == 0 && stat("base/pip/kept", &old) == 0 &&
              st.st_ino == old.st_ino,
          "an unchanged file is the same one");
    CHECK(counts.added == 5 && counts.removed == 1, "%llu, %llu", (unsigned long long)counts.added,
          (unsigned long long)counts.removed);
    /* the base is what it was */
    holds("base/pip/gone", "gone");
    holds("base/pip/changed", "older");
    holds("base/npm/all", "all");
    holds("base/pip/replaced/hidden", "hidden");
    CHECK(stat("base/pip/kept", &old) == 0 && (old.st_mode & 07777) == 0644, "mode of the base");

    /* the same again brings nothing */
    CHECK(merge("to", "two", NULL, "again", NULL) == 0 && !counts.added && !counts.removed,
          "again");
    CHECK(merge(NULL, "one", NULL, "first", NULL) == 0, "without a base");
    holds("first/pip/new/er/f", "new");
    CHECK(!fs_exists("first/pip/gone"), "a whiteout of nothing");
}

static void hostile(void)
{
    char name[300] = "bad/pip/", deep[1000] = "bad/pip";
    struct stat st;

    dirs("bad/pip/d");
    memset(name + 8, 'n', 255);
    file(name, "long", 0644);
    file("bad/pip/\x1b[31m\n\xff", "odd", 0644);
    CHECK(symlink("/etc/passwd", "bad/pip/abs") == 0 && symlink("../../..", "bad/pip/up") == 0 &&
              symlink("loop", "bad/pip/loop") == 0 && symlink("d/../..", "bad/pip/round") == 0,
          "links");
    CHECK(mkfifo("bad/pip/fifo", 0666) == 0, "fifo");
    if (geteuid() == 0)
        CHECK(mknod("bad/pip/dev", S_IFCHR | 0666, makedev(1, 3)) == 0, "device");
    file("bad/pip/x", "attributes", 0644);
    CHECK(setxattr("bad/pip/x", "user.evil", "1", 1, 0) == 0, "attribute");
    CHECK(link("bad/pip/x", "bad/pip/y") == 0, "hard link");
    for (int i = 0; i < 300; i++) {
        size_t n = strlen(deep);
        snprintf(deep + n, sizeof deep - n, "/d");
    }
    dirs(deep);
    dirs("bad/other-thing");
    file("bad/other-thing/f", "not a cache", 0644);
    /* in the base a directory, here a link: nothing is written through it */
    dirs("outside");
    dirs("base2/pip/t");
    file("base2/pip/t/f", "base", 0644);
    CHECK(symlink("../../outside", "bad/pip/t") == 0, "link");

    CHECK(merge("base2", "bad", NULL, "good", NULL) == 0, "merge");
    holds("good/pip/\x1b[31m\n\xff", "odd");
    CHECK(!fs_exists("good/pip/abs") && !fs_exists("good/pip/up") && !fs_exists("good/pip/round") &&
              !fs_exists("good/pip/fifo") && !fs_exists("good/pip/dev") &&
              !fs_exists("good/other-thing"),
          "what stays out");
    CHECK(fs_exists("good/pip/loop"), "a loop leads nowhere outside");
    CHECK(getxattr("good/pip/x", "user.evil", NULL, 0) < 0, "attribute");
    CHECK(stat("good/pip/x", &st) == 0 && st.st_nlink == 1, "a file of its own");
    holds("good/pip/y", "attributes");
    CHECK(counts.left_out >= 6, "%llu", (unsigned long long)counts.left_out);
    /* refused links leave what was there */
    holds("good/pip/t/f", "base");
    CHECK(fs_exists("outside") && rmdir("outside") == 0, "something was written through a link");
}

static void limits(void)
{
    struct err *e = NULL;
    AUTOCLOSE int fd = -1;

    dirs("big/pip");
    fd = open("big/pip/sparse", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    CHECK(ftruncate(fd, 1LL << 40) == 0, "sparse");
    CHECK(merge(NULL, "big", NULL, "big-to", &e) == -ERR_LIMIT && e && strstr(e->msg, "--max"),
          "a file of a terabyte");
    err_free(e);
    e = NULL;
    /* what was removed again does not count */
    dirs("gone/pip");
    whiteout("gone/pip/sparse");
    CHECK(merge(NULL, "big", "gone", "gone-to", NULL) == 0 && counts.files == 1 && !counts.bytes,
          "%llu", (unsigned long long)counts.files);
    dirs("many/pip");
    for (int i = 0; i < 30; i++) {
        char path[40];
        snprintf(path, sizeof path, "many/pip/%d", i);
        file(path, "", 0644);
    }
    rules.max_files = 20;
    CHECK(merge(NULL, "many", NULL, "many-to", &e) == -ERR_LIMIT, "many files");
    err_free(e);
    rules.max_files = 31;
    CHECK(merge(NULL, "many", NULL, "many-to2", NULL) == 0 && counts.files == 31, "%llu",
          (unsigned long long)counts.files);
}

int main(void)
{
    for (size_t i = 0; i < ARRAY_LEN(links); i++)
        CHECK(cache_link_stays(links[i].dir, links[i].text) == links[i].stays, "'%s' in '%s'",
              links[i].text, links[i].dir);
    check_scratch();
    rules = (struct cache_rules){ wanted, 1 << 20, 10000, (uid_t)-1, (gid_t)-1 };
    plain();
    hostile();
    limits();
    check_scratch_end();
    return check_done();
}
