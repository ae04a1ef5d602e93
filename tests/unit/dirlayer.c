/* The directory layer: what is in it, and what makes it stale. */
#include "tests/unit/check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/fs.h"
#include "runtime/driver/dirlayer_impl.h"

static const struct ids ids = { .mode = IDS_SINGLE,
                                .outer_uids = { .v = { { 0, 1000, 1 } }, .n = 1 } };

static void shell(const char *script)
{
    if (system(script) != 0) {
        fprintf(stderr, "fixture failed: %s\n", script);
        exit(1);
    }
}

static bool make(const struct dirlayer_spec *s, const char *out)
{
    struct err *e = NULL;
    AUTOCLOSE int fd = mkdir(out, 0700) < 0 ? -1 : open(out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd < 0 ? -1 : dirlayer_make(s, fd, &e);
    AUTOFREE char *text = e ? err_text(e) : NULL;
    CHECK(rc == 0, "%s: %s", out, text ? text : "mkdir");
    err_free(e);
    return rc == 0;
}

/* "type mode size" of what lies there, like find -printf. */
static const char *what(const char *path)
{
    static char buf[64];
    struct stat st;
    if (lstat(path, &st) < 0)
        return "-";
    snprintf(buf, sizeof buf, "%c %o %d",
             S_ISDIR(st.st_mode)   ? 'd'
             : S_ISLNK(st.st_mode) ? 'l'
                                   : 'f',
             st.st_mode & 07777, S_ISREG(st.st_mode) ? (int)st.st_size : 0);
    return buf;
}

static bool opaque(const char *path)
{
    char c = 0;
    return getxattr(path, "user.overlay.opaque", &c, 1) == 1 && c == 'y';
}

static void contents(void)
{
    static const struct {
        const char *path, *dirs, *files, *own;
    } rows[] = {
        { "a/b", "d 755 0", "d 755 0", "d 755 0" },
        { "a/file", "-", "f 644 5", "f 644 5" },
        { "a/secret", "-", "f 640 0", "f 640 5" }, /* not everybody may read it: empty */
        { "a/link", "-", "l 777 0", "l 777 0" },
        { "a/fifo", "-", "-", "-" },
        { "closed", "d 700 0", "d 700 0", "d 700 0" },
        { "closed/in", "-", "-", "f 644 5" },
        { "sticky", "d 1777 0", "d 1777 0", "d 1777 0" },
        { "group", "d 775 0", "d 775 0", "d 775 0" }, /* setgid goes with the group */
        { "info", "d 755 0", "d 755 0", "d 755 0" },
        { "info/file", "-", "-", "f 644 5" }, /* "except" */
        { "a/info/file", "-", "f 644 5", "f 644 5" },
        { "todir", "-", "l 777 0", "l 777 0" },
    };
    struct dirlayer_spec s = { .src = "src", .ids = &ids, .except = "info" };

    shell("mkdir -p src/a/b src/closed src/sticky src/group src/info src/a/info && cd src && "
          "for f in a/file a/secret closed/in info/file a/info/file; do echo text >$f; chmod 644 "
          "$f; done && "
          "chmod 640 a/secret && chmod 700 closed && chmod 1777 sticky && chmod 2775 group && "
          "chmod 755 . a a/* && "
          "chmod 640 a/secret && chmod 644 a/file && ln -s file a/link && ln -s a todir && mkfifo "
          "a/fifo && "
          "touch -d 2001-02-03 a/b a/file");
    if (!make(&s, "dirs"))
        return;
    s.files = true;
    make(&s, "files");
    s.own = true;
    s.except = NULL;
    make(&s, "own");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *const want[] = { rows[i].dirs, rows[i].files, rows[i].own };
        static const char *const top[] = { "dirs", "files", "own" };
        for (size_t k = 0; k < ARRAY_LEN(top); k++) {
            AUTOFREE char *p = path_join(top[k], rows[i].path);
            CHECK(strcmp(what(p), want[k]) == 0, "%s is '%s', not '%s'", p, what(p), want[k]);
        }
    }
    struct stat st;
    CHECK(stat("dirs/a/b", &st) == 0 && st.st_mtime < 1000000000, "a directory's time is kept");
    CHECK(stat("files/a/file", &st) == 0 && st.st_mtime < 1000000000, "a file's time is kept");
    /* the host's directory below it can't be listed: it must not show through */
    CHECK(opaque("dirs/closed"), "a closed directory is opaque");
    CHECK(!opaque("dirs/a") && !opaque("dirs/sticky"), "others are not");
}

static void leaves_out(void)
{
    struct dirlayer_spec s = { .src = "src", .ids = &ids };
    struct stat st;
    if (stat("src/a", &st) < 0)
        return;
    s.skip_dev = st.st_dev;
    s.skip_ino = st.st_ino;
    make(&s, "without");
    CHECK(!fs_exists("without/a") && fs_exists("without/sticky"), "petri's own store stays out");
    s.src = "nowhere";
    AUTOCLOSE int fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(dirlayer_make(&s, fd, NULL) < 0, "a tree that is not there");
}

static uint64_t stamp(const struct dirlayer_spec *s)
{
    uint64_t v = 0;
    CHECK(dirlayer_stamp(s, &v, NULL) == 0, "stamp");
    return v;
}

static void staleness(void)
{
    static const struct {
        const char *change;
        bool dirs, files; /* whether the stamp changes */
    } rows[] = {
        { "true", false, false },
        { "mkdir src/new", true, true },
        { "rmdir src/new", true, true },
        { "touch -d 2002-01-01 src/a", true, true },
        { "touch src/info/more", true, true },
        { "chmod 711 src/sticky", true, true },
        { "echo x >>src/status", true, true }, /* a new name at the top */
        { "touch -d 2003-01-01 src/status", false, true },
        { "mkdir -p src/local/lib", true, true },
        { "touch -d 2004-01-01 src/local/lib", true, false }, /* by hand, one level down */
        { "touch -d 2004-01-01 src/a/b", false, false },
    };
    struct dirlayer_spec d = { .src = "src", .ids = &ids },
                         f = { .src = "src", .ids = &ids, .files = true };
    struct ids other = ids;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint64_t a = stamp(&d), b = stamp(&f);
        shell(rows[i].change);
        CHECK((stamp(&d) != a) == rows[i].dirs, "directories after: %s", rows[i].change);
        CHECK((stamp(&f) != b) == rows[i].files, "files after: %s", rows[i].change);
    }
    other.outer_uids.v[0].outside = 1001;
    d.ids = &other;
    CHECK(stamp(&d) != stamp(&(struct dirlayer_spec){ .src = "src", .ids = &ids }),
          "another owner, another layer");
}

int main(void)
{
    check_scratch();
    contents();
    leaves_out();
    staleness();
    check_scratch_end();
    return check_done();
}
