/* Layers merged into one show exactly what the stack of them shows: random work on real overlays, layer
 * upon layer, then some of them replaced by their merger. As root and as an ordinary user. */
#include "runtime/workspace/layer_merge.h"

#include "tests/unit/check.h"
#include "tests/unit/tree_dump.h"

enum { LAYERS = 7, STEPS = 60, ROUNDS = 12 };

static bool rootless;
static unsigned seed;

static unsigned rnd(unsigned n)
{
    seed = seed * 1103515245 + 12345;
    return (seed >> 16) % n;
}

/* ---- what a program inside does -------------------------------------------------------------- */

static const char *a_path(char buf[64])
{
    static const char *const names[] = { "a", "b", "c", "d" };
    unsigned depth = 1 + rnd(3);
    size_t n = (size_t)snprintf(buf, 64, "m");
    for (unsigned i = 0; i < depth; i++)
        n += (size_t)snprintf(buf + n, 64 - n, "/%s", names[rnd(4)]);
    return buf;
}

static void a_time(const char *path)
{
    const struct timespec t[2] = {
        { .tv_sec = 1 }, { .tv_sec = 1000000 + rnd(1000), .tv_nsec = rnd(1000) * 1000 + 1 }
    };
    (void)utimensat(AT_FDCWD, path, t, AT_SYMLINK_NOFOLLOW);
}

static void write_file(const char *path)
{
    AUTOCLOSE int fd = open(path,
                            O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK |
                                (rnd(2) ? O_APPEND : O_TRUNC),
                            rnd(2) ? 0644 : 0755);
    if (fd >= 0)
        dprintf(fd, "%u\n", rnd(1000));
}

/* Most of these fail, each in its turn: the names are few. */
static void step(void)
{
    char p[64], q[64];

    a_path(p);
    switch (rnd(14)) {
    case 0:
    case 1:
    case 2:
        (void)mkdir(p, rnd(3) ? 0755 : 0700);
        break;
    case 3:
    case 4:
        write_file(p);
        break;
    case 5:
        (void)unlink(p);
        break;
    case 6:
        if (rnd(2))
            (void)fs_remove_tree(AT_FDCWD, p, NULL);
        break;
    case 7: /* gone, and there again: opaque, or over a whiteout of an earlier layer */
        (void)fs_remove_tree(AT_FDCWD, p, NULL);
        (void)mkdir(p, 0711);
        break;
    case 8:
        (void)rename(p, a_path(q));
        break;
    case 9:
        (void)link(p, a_path(q));
        break;
    case 10:
        (void)symlink(a_path(q), p);
        break;
    case 11:
        (void)chmod(p, rnd(2) ? 0751 : 0604);
        break;
    case 12:
        (void)lsetxattr(p, "user.x", p, rnd(5), 0);
        if (rnd(4) == 0)
            (void)mkfifo(p, 0600);
        break;
    default:
        a_time(p);
    }
}

/* ---- overlays -------------------------------------------------------------------------------- */

/* Layers by name, bottom first; `top` may be NULL: read-only. */
static bool mount_stack(const struct strv *layers, const char *top, const char *at)
{
    AUTOSTR struct str o = STR_INIT;

    str_add(&o, "lowerdir=");
    for (size_t i = layers->n; i-- > 0;)
        str_addf(&o, "%s/w0%s", layers->v[i], i ? ":" : "");
    if (layers->n == 1 && !top)
        str_add(&o, ":empty"); /* the kernel wants two */
    if (top)
        str_addf(&o, ",upperdir=%s/w0,workdir=%s/work,volatile", top, top);
    str_addf(&o, ",index=off,metacopy=off%s",
             rootless ? ",userxattr" : ",redirect_dir=off,xino=off");
    return mount("overlay", at, "overlay", 0, o.p) == 0;
}

static void make_layer(const char *name)
{
    AUTOFREE char *w = path_join(name, "w0"), *k = path_join(name, "work");
    CHECK(mkdir(name, 0755) == 0 && mkdir(w, 0755) == 0 && mkdir(k, 0755) == 0, "%s", name);
}

static char *seen(const struct strv *layers)
{
    char *dump;
    if (!mount_stack(layers, NULL, "m"))
        return str_dup("not mounted");
    dump = tree_dump("m", 0);
    CHECK(umount2("m", MNT_DETACH) == 0, "umount");
    return dump;
}

static void base(struct strv *layers)
{
    make_layer("base");
    strv_add(layers, "base");
    CHECK(mkdir("m/a", 0755) == 0, "base");
    for (int i = 0; i < 150; i++)
        step();
    CHECK(rename("m", "base/w1") == 0 && rmdir("base/w0") == 0 &&
              rename("base/w1", "base/w0") == 0 && mkdir("m", 0755) == 0,
          "base");
}

static void merge(const struct strv *layers, size_t from, size_t to, const char *name)
{
    CLEANUP(err_free_p) struct err *e = NULL;
    AUTOCLOSE int dst = -1;
    int fds[LAYERS];

    CHECK(mkdir(name, 0755) == 0 && (dst = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) >= 0,
          "new");
    for (size_t i = from; i < to; i++)
        fds[i - from] = open(layers->v[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = layer_merge(fds, to - from, dst, rootless, &e);
    for (size_t i = from; i < to; i++)
        close(fds[i - from]);
    AUTOFREE char *text = e ? err_text(e) : str_dup("");
    CHECK(rc == 0, "merge %zu to %zu: %s", from, to, text);
}

/* Replaces layers [from, to) of the stack by one and compares what is seen. */
static void check_merge(const struct strv *layers, size_t from, size_t to, const char *want)
{
    AUTOSTRV struct strv l = { 0 };

    merge(layers, from, to, "merged");
    for (size_t i = 0; i < from; i++)
        strv_add(&l, layers->v[i]);
    strv_add(&l, "merged");
    for (size_t i = to; i < layers->n; i++)
        strv_add(&l, layers->v[i]);
    AUTOFREE char *got = seen(&l);
    CHECK(same_dump(want, got), "seed %u, layers %zu to %zu of %zu", seed, from, to, layers->n);
    CHECK(fs_remove_tree(AT_FDCWD, "merged", NULL) == 0, "remove");
}

static void round_of(unsigned start)
{
    AUTOSTRV struct strv layers = { 0 };

    seed = start;
    CHECK(mkdir("round", 0755) == 0 && chdir("round") == 0 && mkdir("m", 0755) == 0 &&
              mkdir("empty", 0755) == 0,
          "directory");
    base(&layers);
    for (int i = 1; i < LAYERS; i++) {
        char name[32];
        snprintf(name, sizeof name, "layer%d", i);
        make_layer(name);
        CHECK(mount_stack(&layers, name, "m"), "overlay: %s", strerror(errno));
        for (int k = 0; k < STEPS; k++)
            step();
        CHECK(umount2("m", MNT_DETACH) == 0, "umount");
        strv_add(&layers, name);
    }
    AUTOFREE char *want = seen(&layers);
    CHECK(strlen(want) > 100, "seed %u: hardly anything: %s", start, want);
    check_merge(&layers, 0, LAYERS, want);
    check_merge(&layers, 0, 3, want);
    for (int i = 0; i < 4; i++) {
        size_t from = rnd(LAYERS - 1), to = from + 2 + rnd((unsigned)(LAYERS - 1 - from));
        check_merge(&layers, from, to > LAYERS ? LAYERS : to, want);
    }
    AUTOFREE char *after = seen(&layers);
    CHECK(same_dump(want, after), "the merged layers themselves changed");
    CHECK(chdir("..") == 0 && fs_remove_tree(AT_FDCWD, "round", NULL) == 0, "remove");
}

/* An entry that only some layers have; work/ of the layers; what a redirect would mean. */
static void test_entries(void)
{
    const char *mark = rootless ? "user.overlay.redirect" : "trusted.overlay.redirect";
    AUTOSTRV struct strv layers = { 0 };
    int fds[2], dst;

    CHECK(mkdir("e", 0755) == 0 && chdir("e") == 0, "directory");
    make_layer("one");
    make_layer("two");
    CHECK(mkdir("one/r", 0711) == 0 && mkdir("two/w1", 0755) == 0 && mkdir("two/work/x", 0) == 0,
          "entries");
    CHECK(mknod("two/w0/gone", S_IFCHR, 0) == 0 && mkdir("one/w0/gone", 0755) == 0, "entries");
    strv_add(&layers, "one");
    strv_add(&layers, "two");
    merge(&layers, 0, 2, "both");
    struct stat st;
    CHECK(stat("both/r", &st) == 0 && (st.st_mode & 0777) == 0711, "r");
    CHECK(fs_is_dir("both/w1") && fs_is_dir("both/w0") && !fs_exists("both/work"), "entries");
    CHECK(lstat("both/w0/gone", &st) == 0 && S_ISCHR(st.st_mode), "a whiteout hides what is below");
    CHECK(mkdir("two/w0/moved", 0755) == 0 && setxattr("two/w0/moved", mark, "x", 1, 0) == 0,
          "mark");
    fds[0] = open("one", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fds[1] = open("two", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(mkdir("no", 0755) == 0, "directory");
    dst = open("no", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(layer_merge(fds, 2, dst, rootless, NULL) == -ERR_UNSUPPORTED, "a redirect was merged");
    CHECK(layer_merge(fds, 0, dst, rootless, NULL) < 0, "none at all");
    close(fds[0]);
    close(fds[1]);
    close(dst);
    CHECK(chdir("..") == 0, "back");
}

static int test(void *arg, struct err **e)
{
    AUTOFREE char *map = NULL;
    unsigned first = getenv("PETRI_TEST_SEED") ? (unsigned)atoi(getenv("PETRI_TEST_SEED")) : 1;

    (void)fs_read(AT_FDCWD, "/proc/self/uid_map", 4096, &map, NULL, NULL);
    rootless = !map || !strstr(map, "4294967295");
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return err_sys(e, "no user namespace with mounts");
    umask(022);
    check_scratch();
    test_entries();
    for (unsigned i = 0; i < ROUNDS && !check_failed; i++)
        round_of(first + i);
    check_scratch_end();
    return check_done() ? err_new(e, ERR_FAILED, "checks failed") : 0;
}

int main(void)
{
    return run_as_root(test);
}
