/* tests/unit/changes.c - what an upper layer changed over a lower one, counted. */
#include "tests/unit/check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/fs.h"
#include "runtime/workspace/workspace.h"

static char top[] = "/tmp/petri-unit-changes-XXXXXX";

static void file(const char *path, const char *text, mode_t mode)
{
    AUTOFREE char *p = path_join(top, path);
    *strrchr(p, '/') = '\0';
    fs_mkdirs(p, 0755, NULL);
    p[strlen(p)] = '/';
    AUTOCLOSE int fd = open(p, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    CHECK(fd >= 0 && fs_write_all(fd, text, strlen(text)) == 0 && fchmod(fd, mode) == 0, "%s",
          path);
}

static void whiteout(const char *path)
{
    AUTOFREE char *p = path_join(top, path);
    CHECK(mknod(p, S_IFCHR, 0) == 0, "%s", path);
}

static struct changes count(void)
{
    AUTOFREE char *u = path_join(top, "u"), *l = path_join(top, "l");
    AUTOCLOSE int up = open(u, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                  low = open(l, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct changes c = { 0 };
    CHECK(workspace_changes(up, low, &c, NULL) == 0, "changes");
    return c;
}

static void expect(const char *what, uint64_t added, uint64_t modified, uint64_t deleted)
{
    struct changes c = count();
    CHECK(c.added == added && c.modified == modified && c.deleted == deleted, "%s: +%d ~%d -%d",
          what, (int)c.added, (int)c.modified, (int)c.deleted);
}

int main(void)
{
    AUTOFREE char *dir = NULL;

    CHECK(mkdtemp(top) != NULL, "scratch");
    file("l/same", "x", 0644);
    file("l/mode", "x", 0644);
    file("l/text", "old", 0644);
    file("l/gone", "x", 0644);
    file("l/d/a", "1", 0644);
    file("l/d/b", "2", 0644);
    file("l/o/kept", "k", 0644);
    file("l/o/lost", "k", 0644);
    file("l/swap/in", "k", 0644);
    file("u/x", "", 0644);
    expect("one new file", 1, 0, 0);
    file("u/same", "x", 0644);
    expect("copied up, equal", 1, 0, 0);
    file("u/mode", "x", 0755);
    file("u/text", "new", 0644);
    expect("mode and content", 1, 2, 0);
    whiteout("u/gone");
    whiteout("u/d");
    whiteout("u/never");
    expect("a file and a directory of two", 1, 2, 3);
    file("u/o/kept", "k", 0644);
    dir = path_join(top, "u/o");
    if (setxattr(dir, "user.overlay.opaque", "y", 1, 0) == 0)
        expect("opaque: what only the lower has", 1, 2, 4);
    else
        fprintf(stderr, "no user xattrs on /tmp: opaque directories not tried\n");
    file("u/swap", "a file now", 0644);
    CHECK(count().added == 2, "a directory became a file");
    CHECK(fs_remove_tree(AT_FDCWD, top, NULL) == 0, "clean-up");
    return check_done();
}
