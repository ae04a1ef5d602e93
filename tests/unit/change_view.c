/* tests/unit/change_view.c - layers by the rules of overlayfs, and nothing outside of them. */
#include "tests/unit/check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/fs.h"
#include "runtime/change/view.h"

static const char *const ids[] = { "1111111111111111", "2222222222222222" }; /* bottom first */
static bool trusted;

static char *place(int layer, const char *path)
{
    return layer < 0 ? str_printf("%s/project/%s", check_dir, path)
                     : str_printf("%s/changes/%s/w0/%s", check_dir, ids[layer], path);
}

static void parents(const char *path)
{
    AUTOFREE char *dir = str_dup(path);
    *strrchr(dir, '/') = '\0';
    CHECK(fs_mkdirs(dir, 0755, NULL) == 0, "%s", dir);
}

static void file(int layer, const char *path, const char *text)
{
    AUTOFREE char *p = place(layer, path);
    parents(p);
    CHECK(fs_write_atomic(AT_FDCWD, p, text, strlen(text), 0644, NULL) == 0, "%s", p);
}

static void whiteout(int layer, const char *path)
{
    AUTOFREE char *p = place(layer, path);
    parents(p);
    CHECK(mknod(p, S_IFCHR, 0) == 0, "%s", p);
}

static void opaque(int layer, const char *path, bool by_trusted)
{
    AUTOFREE char *p = place(layer, path);
    CHECK(fs_mkdirs(p, 0755, NULL) == 0, "%s", p);
    CHECK(setxattr(p, by_trusted ? "trusted.overlay.opaque" : "user.overlay.opaque", "y", 1, 0) ==
              0,
          "%s", p);
}

static struct record record(void)
{
    struct record r = { .data = str_dup(check_dir),
                        .id = str_dup("aaaaaaaaaaaa"),
                        .name = str_dup("t"),
                        .project = str_printf("%s/project", check_dir),
                        .ids = trusted ? RECORD_IDS_ROOT : RECORD_IDS_SINGLE,
                        .top = str_dup(ids[1]) };
    strv_add(&r.chain, ids[0]);
    strv_add(&r.workspaces, r.project);
    strv_add(&r.hide, "secret");
    strv_add(&r.hide, "dir/key");
    return r;
}

static void fill(void)
{
    file(-1, "a", "host");
    file(-1, "gone", "host");
    file(-1, "back", "host");
    file(-1, "dir/x", "host");
    file(-1, "dir/key/k", "host");
    file(-1, "op/old", "host");
    file(-1, "notop/old", "host");
    file(-1, "mid/old", "host");
    file(-1, "secret", "host");
    file(-1, "tofile/x", "host");
    file(0, "a", "one");
    file(0, "back", "one");
    file(0, "op/one", "one");
    file(0, "dir/y", "one");
    whiteout(0, "mid");
    whiteout(0, "gone");
    file(1, "gone2", "two");
    file(1, "mid/new", "two");
    file(1, "tofile", "two");
    whiteout(1, "back");
    opaque(1, "op", trusted);
    file(1, "op/new", "two");
    opaque(1, "notop", !trusted && geteuid() == 0); /* the other name space: no mark at all */
    AUTOFREE char *link = place(1, "out"), *loop = place(1, "dirlink");
    CHECK(symlink("/etc", link) == 0 && symlink("dir", loop) == 0, "links");
}

static const struct {
    const char *path, *content; /* NULL: absent; "/": a directory; "@": a link */
} want[] = {
    { "", "/" },          { "a", "one" },
    { "gone", NULL },     { "gone2", "two" },
    { "back", NULL },     { "dir", "/" },
    { "dir/x", "host" },  { "dir/y", "one" },
    { "dir/key", NULL },  { "dir/key/k", NULL },
    { "op", "/" },        { "op/old", NULL },
    { "op/one", NULL },   { "op/new", "two" },
    { "mid", "/" },       { "mid/old", NULL },
    { "mid/new", "two" }, { "secret", NULL },
    { "tofile", "two" },  { "tofile/x", NULL },
    { "out", "@" },       { "out/passwd", NULL },
    { "dirlink", "@" },   { "dirlink/x", NULL },
    { "a/b", NULL },      { "nothing/at/all", NULL },
};

static void check_lookups(const struct view *v)
{
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        const char *c = want[i].content;
        enum view_kind kind = !c                    ? VIEW_ABSENT
                              : strcmp(c, "/") == 0 ? VIEW_DIR
                              : strcmp(c, "@") == 0 ? VIEW_LINK
                                                    : VIEW_FILE;
        AUTOCLOSE int fd = -1;
        AUTOFREE char *link = NULL;
        struct entry en;
        char text[16] = "";
        CHECK(view_lookup(v, want[i].path, &en, NULL) == 0 && en.kind == kind, "'%s' is %d",
              want[i].path, en.kind);
        int rc = view_open(v, want[i].path, &fd, NULL, NULL);
        CHECK(kind == VIEW_FILE ? rc == 0 : rc == -ERR_NOT_FOUND, "'%s': %d", want[i].path, rc);
        if (rc == 0)
            CHECK(read(fd, text, sizeof text - 1) > 0 && !strcmp(text, c), "'%s'", want[i].path);
        rc = view_readlink(v, want[i].path, &link, NULL);
        CHECK(kind == VIEW_LINK ? rc == 0 : rc == -ERR_NOT_FOUND, "'%s': %d", want[i].path, rc);
    }
}

static char *names(const struct view *v, const char *path)
{
    AUTOSTRV struct strv l = { 0 };
    struct str out = STR_INIT;
    CHECK(view_list(v, path, &l, NULL) == 0, "list '%s'", path);
    for (size_t i = 0; i < l.n; i++)
        str_addf(&out, "%s%s", i ? " " : "", l.v[i]);
    return str_take(&out);
}

static void check_all(void)
{
    CLEANUP(record_free_p) struct record r = record();
    CLEANUP(view_free_p) struct view v = { 0 }, host = { 0 };
    struct entry en;
    int fd;

    if (view_sandbox(&r, NULL, 0, &v, NULL) < 0 || view_host(&r, 0, &host, NULL) < 0) {
        CHECK(0, "views");
        return;
    }
    check_lookups(&v);
    AUTOFREE char *top = names(&v, ""), *op = names(&v, "op"), *dir = names(&v, "dir"),
                  *mid = names(&v, "mid"), *notop = names(&v, "notop"), *none = names(&v, "out");
    CHECK_STR(top, "a dir dirlink gone2 mid notop op out tofile");
    CHECK_STR(op, "new");
    CHECK_STR(dir, "x y");
    CHECK_STR(mid, "new");
    CHECK_STR(none, "");
    if (geteuid() == 0 || trusted)
        CHECK_STR(notop, "old");
    CHECK(view_lookup(&host, "secret", &en, NULL) == 0 && en.kind == VIEW_ABSENT, "hidden");
    CHECK(view_hidden(&host, "dir/key/k") && !view_hidden(&host, "dir/keys"), "hidden");
    CHECK(view_lookup(&v, "dir/../a", &en, NULL) < 0 && view_open(&v, "..", &fd, NULL, NULL) < 0 &&
              view_lookup(&v, "dir//x", &en, NULL) < 0 && view_lookup(&v, "/etc", &en, NULL) < 0,
          "only normal paths");
}

/* A mount or another directory at the project's place is noticed. */
static void check_project(void)
{
    CLEANUP(record_free_p) struct record r = record();
    struct stat st;
    int fd = -1;

    CHECK(stat(r.project, &st) == 0 && record_open_project(&r, &fd, NULL) == 0, "project");
    close(fd);
    r.project_dev = st.st_dev;
    r.project_ino = st.st_ino;
    CHECK(record_open_project(&r, &fd, NULL) == 0, "project");
    close(fd);
    r.project_ino++;
    CHECK(record_open_project(&r, &fd, NULL) == -ERR_DENIED, "another one");
    free(r.project);
    r.project = str_printf("%s/missing", check_dir);
    CHECK(record_open_project(&r, &fd, NULL) == -ERR_NOT_FOUND, "gone");
}

int main(void)
{
    for (int i = 0; i < (geteuid() == 0 ? 2 : 1); i++) {
        trusted = i == 1;
        check_scratch();
        fill();
        check_all();
        check_project();
        check_scratch_end();
    }
    return check_done();
}
