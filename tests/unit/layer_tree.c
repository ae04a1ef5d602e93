/* The maker of a layer's files: whatever order entries come in, nothing outside is touched. */
#include "tests/unit/check.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/fs.h"
#include "base/str.h"
#include "image/tree.h"

static const struct tree_meta meta = { .mode = 06755, .mtime = 1700000000 };

struct step {
    char kind; /* d directory, f file, s symlink, h hard link, w whiteout */
    const char *path, *to;
    int rc;
};

/* Each is a fresh layer; `there` must exist in the end. */
static const struct {
    struct step steps[6];
    const char *there;
} cases[] = {
    { { { 'f', "a", 0, 0 } }, "a" },
    { { { 'f', "./a//b/./c", 0, 0 } }, "a/b/c" },
    { { { 'f', "/etc/x", 0, 0 } }, "etc/x" },
    { { { 'f', "../x", 0, -ERR_DENIED } }, NULL },
    { { { 'f', "a/../x", 0, -ERR_DENIED } }, NULL },
    { { { 'f', "..", 0, -ERR_DENIED } }, NULL },
    { { { 'f', "", 0, -ERR_INVALID } }, NULL },
    { { { 'f', ".", 0, -ERR_INVALID } }, NULL },
    { { { 'f', "/", 0, -ERR_INVALID } }, NULL },
    { { { 'd', "/", 0, 0 } }, "." },
    { { { 's', "a", "../out", 0 }, { 'f', "a/new", 0, -ERR_DENIED } }, NULL },
    { { { 's', "a", "../out", 0 }, { 'd', "a/new", 0, -ERR_DENIED } }, NULL },
    { { { 's', "a", "../out", 0 }, { 's', "a/new", "x", -ERR_DENIED } }, NULL },
    { { { 's', "a", "../out", 0 }, { 'w', "a/.wh.secret", 0, -ERR_DENIED } }, NULL },
    { { { 's', "a", "../out", 0 }, { 'w', "a/.wh..wh..opq", 0, -ERR_DENIED } }, NULL },
    { { { 's', "a", "../out", 0 }, { 'h', "b", "a/secret", -ERR_INVALID } }, NULL },
    { { { 's', "a", "../out", 0 }, { 'd', "a", 0, 0 }, { 'f', "a/new", 0, 0 } }, "a/new" },
    { { { 's', "a", "../out/secret", 0 }, { 'f', "a", 0, 0 } }, "a" },
    { { { 's', "a", "../out/secret", 0 }, { 'h', "b", "a", 0 }, { 'f', "b", 0, 0 } }, "b" },
    { { { 'd', "a", 0, 0 },
        { 'f', "a/x", 0, 0 },
        { 's', "a", "../out", 0 },
        { 'f', "a/new", 0, -ERR_DENIED } },
      NULL },
    { { { 'h', "a", "../out/secret", -ERR_DENIED } }, NULL },
    { { { 'h', "a", "/out/secret", -ERR_INVALID } }, NULL },
    { { { 'd', "d", 0, 0 }, { 'h', "a", "d", -ERR_DENIED } }, NULL },
    { { { 'f', "x", 0, 0 }, { 'h', "a", "x", 0 }, { 'h', "a", "a", 0 } }, "a" },
    { { { 'f', "a", 0, 0 }, { 'f', "a/b", 0, -ERR_INVALID } }, NULL },
    { { { 'd', "a", 0, 0 }, { 'f', "a/b", 0, 0 }, { 'f', "a", 0, 0 } }, "a" },
    { { { 'w', ".wh.x", 0, 0 }, { 'f', "x", 0, 0 } }, "x" },
    { { { 'w', ".wh.x", 0, 0 }, { 'f', "x/y", 0, 0 } }, "x/y" },
    { { { 'w', ".wh.", 0, -ERR_DENIED } }, NULL },
    { { { 'w', "a/.wh..", 0, -ERR_DENIED } }, NULL },
    { { { 'w', "a/.wh...", 0, -ERR_DENIED } }, NULL },
    { { { 'w', "a/.wh..wh.plnk", 0, 0 } }, "a" },
    { { { 's', "a", "", -ERR_INVALID } }, NULL },
};

static int play(struct tree *t, const struct step *s)
{
    CLEANUP(err_free_p) struct err *e = NULL;
    AUTOCLOSE int fd = -1;
    int rc;

    switch (s->kind) {
    case 'd':
        return tree_dir(t, s->path, &meta, &e);
    case 's':
        return tree_symlink(t, s->path, s->to, &meta, &e);
    case 'h':
        return tree_hardlink(t, s->path, s->to, &e);
    case 'w':
        CHECK(tree_is_whiteout(s->path), "%s", s->path);
        return tree_whiteout(t, s->path, &e);
    default:
        rc = tree_file(t, s->path, &fd, &e);
        if (rc == 0 && fs_write_all(fd, "new", 3) == 0)
            rc = tree_file_done(t, fd, 3, &meta, &e);
        return rc;
    }
}

static void outside_is_whole(size_t i)
{
    AUTOFREE char *text = NULL;
    struct stat st;

    CHECK(fs_read(AT_FDCWD, "out/secret", 100, &text, NULL, NULL) == 0, "case %zu", i);
    CHECK_STR(text, "CANARY");
    CHECK(stat("out/secret", &st) == 0 && (st.st_mode & 07777) == 0600 && st.st_nlink == 1,
          "case %zu: mode %o", i, st.st_mode);
    CHECK(!fs_exists("out/new"), "case %zu", i);
    CHECK(getxattr("out", "user.overlay.opaque", NULL, 0) < 0, "case %zu", i);
}

static void table(void)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct stat st;
        CHECK(mkdir("in", 0755) == 0, "mkdir");
        AUTOCLOSE int in = open("in", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        CLEANUP(tree_free_p) struct tree *t = tree_new(in);
        bool failed = false;
        for (const struct step *s = cases[i].steps; s->kind; s++) {
            int rc = play(t, s);
            failed = rc < 0;
            CHECK(rc == s->rc, "case %zu: %c '%s' gave %d, want %d", i, s->kind, s->path, rc,
                  s->rc);
        }
        if (!failed)
            CHECK(tree_finish(t, NULL) == 0, "case %zu", i);
        if (cases[i].there) {
            CHECK(fstatat(in, cases[i].there, &st, AT_SYMLINK_NOFOLLOW) == 0, "case %zu: '%s'", i,
                  cases[i].there);
            CHECK(!(st.st_mode & S_ISUID) && !S_ISLNK(st.st_mode), "case %zu: mode %o", i,
                  st.st_mode);
        }
        outside_is_whole(i);
        CHECK(fs_remove_tree(AT_FDCWD, "in", NULL) == 0, "remove");
    }
}

static void names(void)
{
    char longest[PATH_MAX + 10], deep[1000];
    AUTOCLOSE int in = -1, fd = -1;
    CHECK(mkdir("in", 0755) == 0, "mkdir");
    in = open("in", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CLEANUP(tree_free_p) struct tree *t = tree_new(in);

    memset(longest, 'a', sizeof longest);
    longest[256] = 0;
    CHECK(tree_file(t, longest, &fd, NULL) == -ERR_INVALID, "256 bytes");
    longest[255] = 0;
    CHECK(tree_file(t, longest, &fd, NULL) == 0, "255 bytes");
    close_p(&fd);
    memset(longest, '/', sizeof longest);
    longest[PATH_MAX] = 0;
    CHECK(tree_dir(t, longest, &meta, NULL) == -ERR_INVALID, "a path without end");
    for (size_t i = 0; i < sizeof deep; i++)
        deep[i] = i % 2 ? '/' : 'd';
    deep[401] = 0;
    CHECK(tree_dir(t, deep, &meta, NULL) == -ERR_LIMIT, "201 levels");
    deep[399] = 0;
    CHECK(tree_dir(t, deep, &meta, NULL) == 0, "200 levels");
    CHECK(tree_finish(t, NULL) == 0, "finish");
    CHECK(fs_remove_tree(AT_FDCWD, "in", NULL) == 0, "remove");
}

/* Modes of directories come last, children first, the last word counts. */
static void modes(void)
{
    static const struct tree_meta locked = { .mode = 0, .mtime = 5 },
                                  plain = { .mode = 0750, .mtime = 7 };
    struct stat st;
    AUTOCLOSE int in = -1;
    CHECK(mkdir("in", 0755) == 0, "mkdir");
    in = open("in", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CLEANUP(tree_free_p) struct tree *t = tree_new(in);

    CHECK(tree_dir(t, "a", &locked, NULL) == 0 && tree_dir(t, "a/b", &plain, NULL) == 0 &&
              tree_dir(t, "-", &plain, NULL) == 0 && tree_dir(t, "c", &locked, NULL) == 0 &&
              tree_dir(t, "c", &plain, NULL) == 0 && tree_dir(t, ".", &locked, NULL) == 0,
          "make");
    umask(0077);
    CHECK(tree_symlink(t, "new/below/link", "x", &plain, NULL) == 0, "without its directories");
    umask(0022);
    CHECK(stat("in/new/below", &st) == 0 && (st.st_mode & 07777) == 0755, "mode %o", st.st_mode);
    CHECK(stat("in/new", &st) == 0 && (st.st_mode & 07777) == 0755, "mode %o", st.st_mode);
    CHECK(tree_finish(t, NULL) == 0, "finish");
    CHECK(stat("in", &st) == 0 && (st.st_mode & 07777) == 0 && st.st_mtime == 5, "root %o",
          st.st_mode);
    CHECK(chmod("in", 0700) == 0 && stat("in/c", &st) == 0 && (st.st_mode & 07777) == 0750,
          "twice");
    CHECK(stat("in/a", &st) == 0 && (st.st_mode & 07777) == 0 && st.st_mtime == 5, "locked");
    CHECK(chmod("in/a", 0700) == 0 && stat("in/a/b", &st) == 0 && st.st_mtime == 7, "below");
    CHECK(fs_remove_tree(AT_FDCWD, "in", NULL) == 0, "remove");
}

static void mount_places(void)
{
    static const char *const places[] = { "dev", "proc", "sys", "run", "tmp", "etc", "workspace" };

    for (size_t i = 0; i < 2 * ARRAY_LEN(places); i++) {
        const char *name = places[i / 2];
        CHECK(mkdir("in", 0755) == 0, "mkdir");
        AUTOCLOSE int in = open("in", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        CLEANUP(tree_free_p) struct tree *t = tree_new(in);
        int rc =
            i % 2 ? tree_symlink(t, name, "../out", &meta, NULL) : tree_dir(t, name, &meta, NULL);
        CHECK(rc == 0, "make");
        CHECK(tree_finish(t, NULL) == (i % 2 ? -ERR_DENIED : 0), "%s %zu", name, i % 2);
        CHECK(fs_remove_tree(AT_FDCWD, "in", NULL) == 0, "remove");
    }
}

int main(void)
{
    check_scratch();
    CHECK(mkdir("out", 0755) == 0, "mkdir");
    CHECK(fs_write_atomic(AT_FDCWD, "out/secret", "CANARY", 6, 0600, NULL) == 0, "canary");
    table();
    names();
    modes();
    mount_places();
    check_scratch_end();
    return check_done();
}
