#include "runtime/sandbox/caches.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/fs.h"
#include "base/json.h"
#include "runtime/driver/inside.h"

/* Only what a tool can fetch or make again: no settings, no credentials, no installed programs. Those of one directory
 * stand side by side: they are made together. */
const struct cache_place cache_places[] = {
    { "pip", ".cache/pip" },
    { "uv", ".cache/uv" },
    { "node-gyp", ".cache/node-gyp" },
    { "yarn", ".cache/yarn" },
    { "pnpm", ".cache/pnpm" },
    { "deno", ".cache/deno" },
    { "go-build", ".cache/go-build" },
    { "composer", ".cache/composer" },
    { "ccache", ".cache/ccache" },
    { "sccache", ".cache/sccache" },
    { "pypoetry", ".cache/pypoetry/cache" },
    { "npm", ".npm/_cacache" },
    { "yarn-berry", ".yarn/berry/cache" },
    { "pnpm-store", ".local/share/pnpm/store" },
    { "bun", ".bun/install/cache" },
    { "cargo-registry", ".cargo/registry" },
    { "cargo-git", ".cargo/git" },
    { "go-mod", "go/pkg/mod" },
    { "maven", ".m2/repository" },
    { "gradle", ".gradle/caches" },
    { "gradle-wrapper", ".gradle/wrapper/dists" },
    { "nuget", ".nuget/packages" },
    { "bundle", ".bundle/cache" },
    { "hex", ".hex/packages" },
    { "pub", ".pub-cache/hosted" },
    { NULL, NULL },
};

struct cache_key caches_key(const struct plan *p)
{
    return (struct cache_key){ p->project,     p->image, p->project_dev,
                               p->project_ino, p->uid,   &p->image_layers };
}

struct cache_key caches_key_of(const struct state *s)
{
    return (struct cache_key){ s->project,     s->image, s->project_dev,
                               s->project_ino, s->uid,   &s->image_layers };
}

/* The device and inode alone may be another directory's tomorrow. */
char *caches_dir(const struct paths *paths, const struct cache_key *k)
{
    AUTOFREE char *uid = str_printf("%llu", (unsigned long long)k->uid);
    /* with the NUL at its end: "a" "bc" is not "ab" "c" */
    uint64_t h = str_hash(STR_HASH, k->project, strlen(k->project) + 1);

    h = str_hash(h, k->image, strlen(k->image) + 1);
    h = str_hash(h, uid, strlen(uid) + 1);
    for (size_t i = 0; i < k->image_layers->n; i++)
        h = str_hash(h, k->image_layers->v[i], strlen(k->image_layers->v[i]) + 1);
    return str_printf("%s/caches/%llx-%llx-%016llx", paths->data, (unsigned long long)k->dev,
                      (unsigned long long)k->ino, (unsigned long long)h);
}

/* ---- generations -------------------------------------------------------------------------------- */

static uint64_t number_of(const char *name)
{
    uint64_t n;
    return str_starts(name, "gen-") && parse_uint(name + 4, UINT64_MAX - 1, &n, NULL) == 0 ? n : 0;
}

int caches_lock(const char *dir, bool wait, int *ret, struct err **e)
{
    AUTOFREE char *path = path_join(dir, "lock");

    for (int i = 0; i < 10; i++) {
        AUTOCLOSE int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        struct stat mine, there;
        if (fd < 0 && errno == ENOENT)
            break;
        if (fd < 0)
            return err_sys(e, "open '%s'", path);
        if (RETRY(flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB))) < 0)
            return errno == EWOULDBLOCK ? err_new(e, ERR_BUSY, "'%s' is being changed", dir)
                                        : err_sys(e, "lock '%s'", path);
        /* or the base was removed while we waited */
        if (fstat(fd, &mine) == 0 && lstat(path, &there) == 0 && mine.st_ino == there.st_ino) {
            *ret = TAKE_FD(fd);
            return 0;
        }
    }
    return err_new(e, ERR_NOT_FOUND, "'%s' was just removed; try again", dir);
}

int caches_new(const char *dir, char **ret_name, struct err **e)
{
    uint64_t most = 0;
    AUTOFREE char *name = NULL, *path = NULL;
    DIR *d = opendir(dir);
    struct dirent *de;

    if (!d)
        return err_sys(e, "read '%s'", dir);
    while ((de = readdir(d)))
        most = number_of(de->d_name) > most ? number_of(de->d_name) : most;
    closedir(d);
    name = str_printf("gen-%llu", (unsigned long long)most + 1);
    path = path_join(dir, name);
    if (mkdir(path, 0755) < 0)
        return err_sys(e, "make '%s'", path);
    *ret_name = TAKE_PTR(name);
    return 0;
}

int caches_commit(const char *dir, const char *name, struct err **e)
{
    AUTOFREE char *new = path_join(dir, ".current"), *at = path_join(dir, "current");
    AUTOCLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    (void)unlink(new);
    if (fd < 0 || symlink(name, new) < 0 || rename(new, at) < 0 || fsync(fd) < 0)
        return err_sys(e, "make '%s' current in '%s'", name, dir);
    return 0;
}

int caches_make_places(int gen, uid_t uid, gid_t gid, struct err **e)
{
    if (uid != (uid_t)-1 && fchown(gen, uid, gid) < 0)
        return err_sys(e, "own a generation of caches");
    for (const struct cache_place *p = cache_places; p->name; p++)
        if (mkdirat(gen, p->name, 0755) == 0
                ? uid != (uid_t)-1 && fchownat(gen, p->name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0
                : errno != EEXIST)
            return err_sys(e, "make the directory of caches '%s'", p->name);
    return 0;
}

#define FULL "user.petri.full"

void caches_note_full(int gen)
{
    AUTOSTR struct str s = STR_INIT;

    for (const struct cache_place *p = cache_places; p->name; p++) {
        /* rmdir says whether it is empty */
        bool empty = unlinkat(gen, p->name, AT_REMOVEDIR) == 0 || errno == ENOENT;
        if (!empty)
            str_addf(&s, "%s ", p->name);
    }
    (void)!fsetxattr(gen, FULL, s.p, s.len, 0);
}

bool caches_full(int gen, struct strv *ret)
{
    char text[1024], *save = NULL;
    ssize_t n = fgetxattr(gen, FULL, text, sizeof text - 1);

    if (n < 0)
        return false;
    text[n] = '\0';
    for (char *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save))
        strv_add(ret, w);
    return true;
}

/* Each is locked while `f` has it: whoever opened it meanwhile must see that it was too late. */
static bool each_unused(const char *dir, int (*f)(const char *path, void *arg), void *arg)
{
    AUTOFREE char *link = path_join(dir, "current"), *current = fs_readlink(AT_FDCWD, link);
    DIR *d = opendir(dir);
    struct dirent *de;
    bool all = true;

    while (d && (de = readdir(d))) {
        AUTOFREE char *path = path_join(dir, de->d_name);
        if (!number_of(de->d_name) || str_eq(current, de->d_name))
            continue;
        AUTOCLOSE int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || f(path, arg) < 0)
            all = false;
    }
    if (d)
        closedir(d);
    return all;
}

static int remove_one(const char *path, void *arg)
{
    (void)arg;
    return inside_remove(path, NULL);
}

bool caches_clean(const char *dir)
{
    return each_unused(dir, remove_one, NULL);
}

static int name_one(const char *path, void *arg)
{
    strv_add(arg, path);
    return 0;
}

void caches_unused(const char *dir, struct strv *ret)
{
    (void)each_unused(dir, name_one, ret);
}

/* ---- taking one --------------------------------------------------------------------------------- */

struct making {
    const char *path;
    uid_t uid;
    gid_t gid;
};

static int make_inside(void *arg, struct err **e)
{
    const struct making *m = arg;
    AUTOCLOSE int gen = open(m->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (gen < 0)
        return err_sys(e, "open '%s'", m->path);
    caches_note_full(gen);
    return caches_make_places(gen, m->uid, m->gid, e);
}

static int write_about(const char *dir, const struct cache_key *k, struct err **e)
{
    AUTOFREE char *path = path_join(dir, "about.json");
    AUTOJSONW struct jsonw w = { .pretty = true };

    jw_obj(&w, NULL);
    jw_int(&w, "schema", 1);
    jw_bytes(&w, "project", k->project, strlen(k->project));
    jw_str(&w, "image", k->image);
    jw_u64(&w, "uid", k->uid);
    jw_u64(&w, "dev", k->dev);
    jw_u64(&w, "ino", k->ino);
    jw_end_obj(&w);
    str_addc(&w.out, '\n');
    return fs_write_atomic(AT_FDCWD, path, w.out.p, w.out.len, 0600, e);
}

int caches_open(const char *dir, const struct cache_key *k, int *ret_lock, struct err **e)
{
    AUTOFREE char *about = path_join(dir, "about.json");
    AUTOCLOSE int lock = -1;
    int rc = fs_mkdirs(dir, 0700, e);

    if (rc < 0 || (rc = caches_lock(dir, true, &lock, e)) < 0 ||
        (!fs_exists(about) && (rc = write_about(dir, k, e)) < 0))
        return rc;
    *ret_lock = TAKE_FD(lock);
    return 0;
}

/* The first generation: empty, but there for sandboxes that stay to write over. */
static int make_base(const char *dir, const struct plan *p, struct err **e)
{
    AUTOFREE char *link = path_join(dir, "current"), *name = NULL, *path = NULL;
    bool many = geteuid() != 0 && p->uid != getuid() && strcmp(p->image, "host") == 0;
    struct cache_key k = caches_key(p);
    AUTOCLOSE int lock = -1;
    struct ids ids;
    int rc;

    if ((rc = caches_open(dir, &k, &lock, e)) < 0 || fs_exists(link))
        return rc;
    if ((rc = ids_plan(p, many, &ids, e)) < 0 || (rc = caches_new(dir, &name, e)) < 0)
        return rc;
    path = path_join(dir, name);
    struct making m = { path, ids.user_uid, ids.user_gid };
    /* on disk they are the project owner's, whose id is changed to the user's by the mount */
    if (ids.mode == IDS_ROOT && !ids.direct) {
        m.uid = p->owner_uid;
        m.gid = p->owner_gid;
    }
    rc = ids.mode == IDS_SUB    ? inside_run(&ids, make_inside, &m, e)
         : ids.mode == IDS_ROOT ? make_inside(&m, e)
                                : make_inside(&(struct making){ path, (uid_t)-1, (gid_t)-1 }, e);
    return rc < 0 ? rc : caches_commit(dir, name, e);
}

/* 1: held; 0: it went away meanwhile. */
static int hold(const char *path, int *ret, struct err **e)
{
    AUTOCLOSE int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat mine, there;

    if (fd < 0)
        return errno == ENOENT ? 0 : err_sys(e, "open '%s'", path);
    if (flock(fd, LOCK_SH | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? 0 : err_sys(e, "lock '%s'", path);
    if (fstat(fd, &mine) < 0 || lstat(path, &there) < 0 || mine.st_ino != there.st_ino)
        return 0;
    *ret = TAKE_FD(fd);
    return 1;
}

int caches_hold(const struct paths *paths, const struct plan *p, bool make, char **ret_path,
                int *ret_fd, struct err **e)
{
    struct cache_key k = caches_key(p);
    AUTOFREE char *dir = caches_dir(paths, &k), *link = path_join(dir, "current");
    int rc = 0;

    *ret_path = NULL;
    for (int i = 0; rc == 0 && i < 20; i++) {
        AUTOFREE char *name = fs_readlink(AT_FDCWD, link);
        AUTOFREE char *path = name ? path_join(dir, name) : NULL;
        if (!name && errno != ENOENT)
            return err_sys(e, "read '%s'", link);
        if (name && !number_of(name))
            return err_new(e, ERR_CORRUPT, "'%s' leads to '%s'; petri cache rm", link, name);
        if (!make && !name)
            return 0;
        if (!name) {
            if ((rc = make_base(dir, p, e)) == -ERR_NOT_FOUND && i < 19) {
                rc = 0;
                if (e)
                    *e = err_free(*e);
            }
            continue;
        }
        rc = hold(path, ret_fd, e);
        if (rc == 1)
            *ret_path = TAKE_PTR(path);
    }
    if (rc == 0)
        return err_new(e, ERR_BUSY,
                       "the caches in '%s' can't be had; try again, or petri cache rm begins anew",
                       dir);
    return rc < 0 ? rc : 0;
}
