#include "runtime/driver/dirlayer.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "base/fs.h"
#include "runtime/driver/dirlayer_impl.h"
#include "runtime/driver/inside.h"

enum { WAIT_SECONDS = 180, TRIES = 3 };

/* One layer that is looked for or made. */
struct job {
    struct dirlayer_spec spec;
    int dir; /* LAYERS/dirs-... */
    char gen[32];
};

static void set_gen(struct job *j, uint64_t stamp)
{
    snprintf(j->gen, sizeof j->gen, "gen-%016llx", (unsigned long long)stamp);
}

/* Takes the layer if it is there. It may be removed between open and lock: then it has no name. */
static int take(const struct job *j)
{
    AUTOCLOSE int fd = openat(j->dir, j->gen, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat a, b;
    if (fd < 0 || RETRY(flock(fd, LOCK_SH)) < 0 || fstat(fd, &a) < 0 ||
        fstatat(j->dir, j->gen, &b, AT_SYMLINK_NOFOLLOW) < 0 || a.st_ino != b.st_ino)
        return -1;
    return TAKE_FD(fd);
}

/* Removes what nobody uses any more; what can't be removed waits for the next time. */
static void sweep(const struct job *j)
{
    DIR *d = fs_list(j->dir);
    AUTOSTRV struct strv dead = { 0 };
    struct dirent *de;

    while (d && (de = readdir(d))) {
        if (str_starts(de->d_name, "tmp-"))
            strv_add(&dead, de->d_name);
        if (!str_starts(de->d_name, "gen-") || strcmp(de->d_name, j->gen) == 0)
            continue;
        AUTOCLOSE int gen =
            openat(j->dir, de->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        AUTOFREE char *old = str_printf("tmp-%s", de->d_name);
        if (gen >= 0 && flock(gen, LOCK_EX | LOCK_NB) == 0 &&
            renameat(j->dir, de->d_name, j->dir, old) == 0)
            strv_add(&dead, old);
    }
    if (d)
        closedir(d);
    for (size_t i = 0; i < dead.n; i++)
        (void)fs_remove_tree(j->dir, dead.v[i], NULL);
}

static int build_once(struct job *j, struct err **e)
{
    static const char tmp[] = "tmp-new";
    AUTOCLOSE int gen = -1, tree = -1;
    int rc = fs_remove_tree(j->dir, tmp, e);

    if (rc < 0)
        return rc;
    if (mkdirat(j->dir, tmp, 0700) < 0 ||
        (gen = openat(j->dir, tmp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0 ||
        mkdirat(gen, "tree", 0700) < 0 ||
        (tree = openat(gen, "tree", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0)
        return err_sys(e, "make a directory for the directory layer");
    if ((rc = dirlayer_make(&j->spec, tree, e)) < 0)
        return rc;
    return syncfs(gen) < 0 ? err_sys(e, "sync the directory layer") : 0;
}

/* In the builder: until the tree did not change meanwhile. */
static int build(void *arg, struct err **e)
{
    struct job *j = arg;
    uint64_t before, after;
    int rc;

    umask(022);
    for (int i = 0; i < TRIES; i++) {
        if ((rc = dirlayer_stamp(&j->spec, &before, e)) < 0 || (rc = build_once(j, e)) < 0 ||
            (rc = dirlayer_stamp(&j->spec, &after, e)) < 0) {
            (void)fs_remove_tree(j->dir, "tmp-new", NULL);
            return rc;
        }
        if (before != after)
            continue;
        set_gen(j, after);
        if (renameat(j->dir, "tmp-new", j->dir, j->gen) < 0)
            return err_sys(e, "rename the directory layer");
        sweep(j);
        return 0;
    }
    (void)fs_remove_tree(j->dir, "tmp-new", NULL);
    return err_new(e, ERR_BUSY,
                   "'%s' keeps changing; wait until packages are installed, then try again",
                   j->spec.src);
}

/* flock with an end: a stopped builder must not stop everybody for good. */
static int lock_wait(int fd, const char *dir, struct err **e)
{
    for (int i = 0; i < WAIT_SECONDS * 50; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return 0;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_sys(e, "lock '%s/lock'", dir);
        nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    }
    return err_new(e, ERR_BUSY, "another petri has been preparing '%s' for %d s; end it", dir,
                   WAIT_SECONDS);
}

static int find(struct job *j, int *ret_fd, struct err **e)
{
    uint64_t stamp;
    int rc = dirlayer_stamp(&j->spec, &stamp, e);
    if (rc < 0)
        return rc;
    set_gen(j, stamp);
    *ret_fd = take(j);
    return 0;
}

/* Finds the layer, or makes it and finds it then. */
static int open_layer(struct job *j, const char *dir, void (*on_build)(void), bool *told,
                      int *ret_fd, struct err **e)
{
    AUTOCLOSE int lock = -1;
    int rc = find(j, ret_fd, e);

    if (rc < 0 || *ret_fd >= 0)
        return rc;
    if (on_build && !*told)
        on_build();
    *told = true;
    lock = openat(j->dir, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (lock < 0)
        return err_sys(e, "open '%s/lock'", dir);
    if ((rc = lock_wait(lock, dir, e)) < 0)
        return rc;
    for (int i = 0; i < TRIES; i++) {
        if ((rc = find(j, ret_fd, e)) < 0 || *ret_fd >= 0)
            return rc;
        if (inside_run(j->spec.ids, build, j, e) < 0)
            return err_wrap(e, "prepare the system's directory layer");
    }
    if ((rc = find(j, ret_fd, e)) == 0 && *ret_fd < 0)
        rc = err_new(e, ERR_BUSY,
                     "'%s' keeps changing; wait until packages are installed, then try again",
                     j->spec.src);
    return rc;
}

/* What the launcher's `id` is on the host. */
static uint32_t outside(const struct idmap *m, uint32_t id)
{
    for (size_t i = 0; i < m->n; i++)
        if (id - m->v[i].inside < m->v[i].count)
            return m->v[i].outside + (id - m->v[i].inside);
    return UINT32_MAX;
}

static char *layer_dir(const char *layers, const char *dst, const struct ids *ids)
{
    AUTOFREE char *name = str_dup(dst + strspn(dst, "/"));
    for (char *c = name; (c = strchr(c, '/'));)
        *c = '-';
    return str_printf("%s/dirs-%s-%s-%u", layers, name, ids_mode_name(ids->mode),
                      outside(&ids->outer_uids, ids->root_uid));
}

static bool wanted(const struct plan_mount *m, const struct ids *ids, struct dirlayer_spec *ret)
{
    struct stat st;

    if (m->kind != MOUNT_BIND || !m->overlay || m->ro || m->user || stat(m->src, &st) < 0)
        return false;
    *ret = (struct dirlayer_spec){ .src = m->src, .ids = ids };
    if (st.st_uid == geteuid()) {
        /* petri's copy of /etc: with a range of ids the user is not the sandbox's root */
        ret->files = ret->own = true;
        return ids->mode == IDS_SUB && strcmp(m->dst, "/etc") == 0;
    }
    ret->files = path_below(m->dst, "/var/lib");
    /* thousands of small files that are read, replaced and removed, never changed */
    ret->except = strcmp(m->dst, "/var/lib/dpkg") == 0 ? "info" : NULL;
    return true;
}

static int open_tree_layer(const char *layers, const struct plan_mount *m,
                           struct dirlayer_spec *spec, void (*on_build)(void), bool *told,
                           struct dirlayer *ret, struct err **e)
{
    AUTOFREE char *dir = layer_dir(layers, m->dst, spec->ids);
    struct job j = { .spec = *spec, .dir = -1 };
    struct stat st;
    int fd = -1, rc = fs_mkdirs(dir, 0700, e);

    if (rc < 0)
        return rc;
    if (stat(layers, &st) < 0)
        return err_sys(e, "stat '%s'", layers);
    j.spec.skip_dev = st.st_dev;
    j.spec.skip_ino = st.st_ino;
    j.dir = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (j.dir < 0)
        return err_sys(e, "open '%s'", dir);
    rc = open_layer(&j, dir, on_build, told, &fd, e);
    close(j.dir);
    if (rc < 0)
        return rc;
    ret->v[ret->n++] = (struct dirlayer_tree){
        .dst = str_dup(m->dst),
        .path = str_printf("%s/%s/tree", dir, j.gen),
        .whole = spec->files && !spec->except,
        .hold = fd,
    };
    return 0;
}

int dirlayer_open(const char *layers, const struct plan *p, const struct ids *ids,
                  void (*on_build)(void), struct dirlayer *ret, struct err **e)
{
    CLEANUP(dirlayer_free_p) struct dirlayer d = { 0 };
    bool told = false;
    int rc;

    *ret = d;
    if (p->uid != 0 || ids->mode == IDS_ROOT)
        return 0;
    d.v = mem_zalloc((p->mounts.n + 1) * sizeof *d.v);
    for (size_t i = 0; i < p->mounts.n; i++) {
        struct dirlayer_spec spec;
        if (wanted(&p->mounts.v[i], ids, &spec) &&
            (rc = open_tree_layer(layers, &p->mounts.v[i], &spec, on_build, &told, &d, e)) < 0)
            return rc;
    }
    *ret = d;
    d = (struct dirlayer){ 0 };
    return 0;
}

const struct dirlayer_tree *dirlayer_for(const struct dirlayer *d, const char *dst)
{
    for (size_t i = 0; d && i < d->n; i++)
        if (strcmp(d->v[i].dst, dst) == 0)
            return &d->v[i];
    return NULL;
}

void dirlayer_free_p(struct dirlayer *d)
{
    for (size_t i = 0; i < d->n; i++) {
        free(d->v[i].dst);
        free(d->v[i].path);
        close_p(&d->v[i].hold);
    }
    free(d->v);
    *d = (struct dirlayer){ 0 };
}
