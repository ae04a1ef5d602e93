/* The store as a whole: which layers are garbage, long chains made short, and what petri fsck finds. */
#include "runtime/sandbox/layers.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "runtime/driver/inside.h"
#include "runtime/sandbox/fsck.h"
#include "runtime/sandbox/store_lock.h"
#include "tests/unit/check.h"

static struct paths paths;

static void make_dirs(const char *path)
{
    CHECK(fs_mkdirs(path, 0700, NULL) == 0, "%s", path);
}

static void text_file(const char *path, const char *text)
{
    CHECK(fs_write_atomic(AT_FDCWD, path, text, strlen(text), 0600, NULL) == 0, "%s", path);
}

static void make_layer(unsigned n)
{
    AUTOFREE char *w = str_printf("data/changes/%016x/w0", n), *file = str_printf("%s/f%u", w, n);
    AUTOFREE char *same = str_printf("%s/same", w), *k = str_printf("data/changes/%016x/work", n);
    char text[16];
    snprintf(text, sizeof text, "%u", n);
    make_dirs(w);
    make_dirs(k);
    text_file(file, text);
    text_file(same, text);
}

static bool has_layer(unsigned n)
{
    AUTOFREE char *path = str_printf("data/changes/%016x", n);
    return fs_is_dir(path);
}

static void chain_of(struct strv *l, unsigned from, unsigned to)
{
    for (unsigned i = from; i <= to; i++)
        strv_addf(l, "%016x", i);
}

/* A stopped sandbox over layers 1..n with a snapshot after each `step`-th, and its record. */
static void make_sandbox(const char *id, unsigned from, unsigned n, unsigned step)
{
    AUTOSTATE struct state s = { .schema = STATE_SCHEMA, .id = str_dup(id) };
    AUTOCLOSE int lock = -1;

    s.ids = str_dup(ids_mode_name(geteuid() ? IDS_SINGLE : IDS_ROOT));
    s.uid = s.owner_uid = getuid();
    s.gid = s.owner_gid = getgid();
    s.top = str_printf("%016x", from + n);
    chain_of(&s.chain, from, from + n - 1);
    s.snaps = mem_zalloc((n + 1) * sizeof *s.snaps);
    for (unsigned i = step; step && i <= n; i += step) {
        s.snaps[s.n_snaps] = (struct snapshot){ .id = str_printf("s%u", i) };
        chain_of(&s.snaps[s.n_snaps++].chain, from, from + i - 1);
    }
    for (unsigned i = from; i <= from + n; i++)
        make_layer(i);
    CHECK(state_create(&paths, id, &lock, NULL) == 0 && state_write(&paths, &s, NULL) == 0, "%s",
          id);
}

/* What is seen at `name` through a chain: the topmost layer that has it. */
static char *look(const struct strv *chain, const char *name)
{
    for (size_t i = chain->n; i-- > 0;) {
        AUTOFREE char *path = str_printf("data/changes/%s/w0/%s", chain->v[i], name);
        char *text = NULL;
        if (fs_read(AT_FDCWD, path, 64, &text, NULL, NULL) == 0)
            return text;
    }
    return NULL;
}

static void check_content(const struct strv *chain, unsigned n)
{
    char want[16];
    for (unsigned i = 1; i <= n + 1; i++) {
        AUTOFREE char *name = str_printf("f%u", i), *got = look(chain, name);
        snprintf(want, sizeof want, "%u", i);
        CHECK(i <= n ? str_eq(got, want) : !got, "f%u of %u: %s", i, n, got ? got : "(none)");
    }
    AUTOFREE char *same = look(chain, "same");
    snprintf(want, sizeof want, "%u", n);
    CHECK(str_eq(same, want), "same is %s, not %s", same ? same : "(none)", want);
}

static void test_compact(void)
{
    CLEANUP(err_free_p) struct err *e = NULL;
    AUTOSTATE struct state s = { 0 };
    AUTOCLOSE int lock = -1;
    const unsigned n = 23;

    make_sandbox("long", 1, n, 1);
    CHECK(state_lock(&paths, "long", &lock, NULL) == 0, "lock");
    CHECK(state_read(&paths, "long", &s, NULL) == 0 && s.chain.n == n, "read");
    CHECK(layers_compact(&paths, &s, 23, NULL) == 0 && s.chain.n == n, "not too long");
    int rc = layers_compact(&paths, &s, 6, &e);
    AUTOFREE char *why = e ? err_text(e) : str_dup("");
    if (rc < 0 && geteuid() && strstr(why, "user namespace")) {
        printf("no user namespaces: compaction is not tried\n");
        return;
    }
    CHECK(rc == 0, "%s", why);
    while (waitpid(-1, NULL, 0) > 0) /* who removes what is no longer named */
        ;
    for (int round = 0; round < 2; round++) {
        CHECK(s.chain.n <= 6 && s.n_snaps == n, "%zu layers, %zu snapshots", s.chain.n, s.n_snaps);
        check_content(&s.chain, n);
        for (unsigned i = 0; i < s.n_snaps; i++) {
            CHECK(s.snaps[i].chain.n <= 6, "snapshot %u: %zu layers", i, s.snaps[i].chain.n);
            check_content(&s.snaps[i].chain, i + 1);
        }
        state_free_p(&s); /* the same once more, as the record has it */
        CHECK(state_read(&paths, "long", &s, NULL) == 0, "read");
    }
    /* the first snapshots still name the lowest layers */
    CHECK(has_layer(1) && has_layer(n + 1), "a layer that is in use is gone");
    CHECK(layers_remove_unreferenced(&paths, NULL) >= 0 && has_layer(1), "sweep");
    check_content(&s.snaps[0].chain, 1);
    close_p(&lock);
    CHECK(state_remove(&paths, "long", NULL) == 0, "remove");
    CHECK(layers_remove_unreferenced(&paths, NULL) > 0 && !has_layer(1) && !has_layer(n + 1),
          "sweep");
}

/* Where it does not work, the record and the memory stay as they were. */
static void test_compact_fails(void)
{
    AUTOSTATE struct state s = { 0 };

    make_sandbox("broken", 1, 10, 5);
    CHECK(fs_remove_tree(AT_FDCWD, "data/changes/0000000000000003", NULL) == 0, "remove");
    CHECK(state_read(&paths, "broken", &s, NULL) == 0, "read");
    CHECK(layers_compact(&paths, &s, 6, NULL) == 0, "there are not too many yet");
    CHECK(s.chain.n == 10 && s.n_snaps == 2 && s.snaps[0].chain.n == 5, "memory");
    CHECK(state_remove(&paths, "broken", NULL) == 0, "remove");
    (void)layers_remove_unreferenced(&paths, NULL);
}

static void test_sweep(void)
{
    AUTOCLOSE int shared = -1;
    AUTOSTRV struct strv named = { 0 };

    make_sandbox("one", 1, 3, 2);
    make_sandbox("two", 3, 2, 0); /* shares layer 3, and 4 */
    make_layer(99);
    make_dirs("data/changes/.gone-0000000000000077/w0");
    make_dirs("data/changes/somebody-elses");
    make_dirs("data/names");
    CHECK(symlink("nobody", "data/names/dead") == 0 && symlink("one", "data/names/alive") == 0,
          "link");
    CHECK(layers_named(&paths, &named, NULL) == 0 && layers_has(&named, "0000000000000003") &&
              layers_has(&named, "0000000000000005") && !layers_has(&named, "0000000000000063"),
          "named");
    CHECK(store_lock_shared(&paths, &shared, NULL) == 0, "lock");
    CHECK(layers_remove_unreferenced(&paths, NULL) == 0 && has_layer(99), "in spite of the lock");
    close_p(&shared);
    CHECK(layers_remove_unreferenced(&paths, NULL) == 2 && !has_layer(99), "sweep");
    CHECK(!fs_exists("data/changes/.gone-0000000000000077"), "gone");
    CHECK(fs_exists("data/changes/somebody-elses"), "what is not ours");
    CHECK(!fs_exists("data/names/dead") && fs_exists("data/names/alive"), "links");
    for (unsigned i = 1; i <= 5; i++)
        CHECK(has_layer(i), "layer %u", i);
    CHECK(state_remove(&paths, "one", NULL) == 0, "remove");
    CHECK(layers_remove_unreferenced(&paths, NULL) == 2, "sweep");
    CHECK(!has_layer(1) && !has_layer(2) && has_layer(3) && has_layer(4) && has_layer(5), "shared");
    /* a record that nobody understands may name anything */
    make_layer(99);
    text_file("data/sandboxes/two/state.json", "{\"schema\":2,");
    CHECK(layers_remove_unreferenced(&paths, NULL) < 0 && has_layer(99) && has_layer(5),
          "unreadable");
    text_file("data/sandboxes/two/state.json", "{\"schema\":3,\"id\":\"two\"}");
    CHECK(layers_remove_unreferenced(&paths, NULL) < 0 && has_layer(99) && has_layer(5), "newer");
    CHECK(state_remove(&paths, "two", NULL) == 0, "remove");
    CHECK(fs_remove_tree(AT_FDCWD, "data/changes/somebody-elses", NULL) == 0, "remove");
    CHECK(layers_remove_unreferenced(&paths, NULL) == 4, "sweep");
}

static size_t problems(bool repair, const char *expect)
{
    CLEANUP(fsck_report_free_p) struct fsck_report r = { 0 };
    size_t left = 0;
    bool seen = !expect;

    CHECK(fsck_store(&paths, repair, &r, NULL) == 0 && !r.partial, "fsck");
    for (size_t i = 0; i < r.n; i++) {
        left += !r.v[i].removed;
        seen |= expect && strstr(r.v[i].text, expect);
        if (!expect)
            fprintf(stderr, "  %s: %s\n", r.v[i].path, r.v[i].text);
    }
    CHECK(seen, "no problem says '%s'", expect);
    return left;
}

static void test_fsck(void)
{
    const struct timespec old[2] = { { .tv_sec = 1 }, { .tv_sec = 1 } };

    CHECK(problems(false, NULL) == 0, "an empty store");
    make_sandbox("one", 1, 3, 1);
    CHECK(problems(false, NULL) == 0, "a sandbox");
    make_layer(99);
    CHECK(problems(false, "no record names") == 1 && has_layer(99), "layer");
    CHECK(problems(true, "no record names") == 0 && !has_layer(99), "repair");
    make_dirs("data/sandboxes/half");
    CHECK(problems(true, "without a record") == 0 && !fs_exists("data/sandboxes/half"), "half");
    make_dirs("data/sandboxes/.new-x");
    CHECK(problems(false, NULL) == 0, "one that is just being made");
    CHECK(utimensat(AT_FDCWD, "data/sandboxes/.new-x", old, 0) == 0, "time");
    CHECK(problems(true, "not finished") == 0 && !fs_exists("data/sandboxes/.new-x"), "new");
    CHECK(symlink("nobody", "data/names/dead") == 0, "link");
    CHECK(problems(true, "no sandbox") == 0 && !fs_exists("data/names/dead"), "link");
    make_dirs("run/one");
    make_dirs("run/mnt");
    text_file("run/one/sock", "");
    CHECK(problems(true, "does not run") == 0 && !fs_exists("run/one") && fs_exists("run/mnt"),
          "run");
    AUTOCLOSE int lock = -1;
    CHECK(state_lock(&paths, "one", &lock, NULL) == 0, "lock");
    make_dirs("run/one");
    CHECK(problems(true, NULL) == 0 && fs_exists("run/one"), "it runs");
    close_p(&lock);
    CHECK(rmdir("run/one") == 0, "run");
    text_file("data/sandboxes/one/.tmp-1-state.json", "");
    CHECK(utimensat(AT_FDCWD, "data/sandboxes/one/.tmp-1-state.json", old, 0) == 0, "time");
    CHECK(problems(true, "not finished") == 0, "temp");
    /* what belongs to somebody is reported, and stays */
    CHECK(rename("data/changes/0000000000000002", "data/changes/2") == 0, "move");
    CHECK(problems(true, "0000000000000002 is missing") == 4, "chain and two snapshots, and '2'");
    CHECK(rename("data/changes/2", "data/changes/0000000000000002") == 0, "move");
    CHECK(unlink("data/sandboxes/one/lock") == 0, "lock");
    CHECK(problems(true, "no lock") == 1, "lock");
    text_file("data/sandboxes/one/lock", "");
    text_file("data/sandboxes/one/state.json", "nonsense");
    CHECK(problems(true, "record") == 1 && has_layer(1), "record");
    CHECK(state_remove(&paths, "one", NULL) == 0 && layers_remove_unreferenced(&paths, NULL) == 4,
          "end");
    CHECK(problems(false, NULL) == 0, "clean");
}

int main(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    check_scratch();
    paths.data = str_printf("%s/data", check_dir);
    paths.run = str_printf("%s/run", check_dir);
    make_dirs("data");
    make_dirs("run");
    test_sweep();
    test_compact();
    test_compact_fails();
    test_fsck();
    paths_free_p(&paths);
    check_scratch_end();
    return check_done();
}
