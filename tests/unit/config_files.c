/* Where configuration comes from: files that are none, agents' own files, trust in a project's. */
#include "tests/unit/config_check.h"

#include "runtime/config/trust.h"

/* --- files that are none ------------------------------------------------------------------------- */

static void check_refused(const struct config_from *from, const char *want)
{
    CLEANUP(config_free_p) struct config *c = NULL;
    CHECK(config_load(from, &c, NULL) == 0, "load");
    AUTOFREE char *got = joined(&c->mistakes);
    CHECK(want ? c->mistakes.n == 1 && strstr(got, want) != NULL : !c->mistakes.n, "%s: got '%s'",
          want ? want : "fine", got);
}

static void odd_files(void)
{
    CLEANUP(places_free_p) struct places p = { 0 };
    struct config_from from = places_make(&p);
    AUTOSTR struct str big = STR_INIT;

    place_files(NULL, NULL, NULL);
    check_refused(&from, NULL);
    CHECK(mkdir("proj/petri.json", 0755) == 0, "directory");
    check_refused(&from, "petri.json: is a directory");
    CHECK(rmdir("proj/petri.json") == 0 && mkfifo("proj/petri.json", 0644) == 0, "pipe");
    check_refused(&from, "petri.json: is a pipe");
    CHECK(unlink("proj/petri.json") == 0 && symlink("/etc/passwd", "proj/petri.json") == 0, "link");
    check_refused(&from, "petri.json: is a link");
    CHECK(unlink("proj/petri.json") == 0 && symlink("nowhere", "proj/petri.json") == 0, "link");
    check_refused(&from, "petri.json: is a link");
    CHECK(unlink("proj/petri.json") == 0, "unlink");
    while (big.len <= 4 << 20)
        str_add(&big, "                                                                ");
    put_file("proj/petri.jsonc", big.p);
    check_refused(&from, "petri.jsonc: is larger than 4 MB");
    put_file("proj/petri.jsonc", "");
    check_refused(&from, "petri.jsonc:1:1: not JSON");
    CHECK(unlink("proj/petri.jsonc") == 0, "unlink");
    put_file("user/petri/config.json", "{}");
    CHECK(chmod("user/petri/config.json", 0666) == 0, "chmod");
    check_refused(&from, "can be written by everybody");
    if (geteuid() == 0) {
        CHECK(chmod("user/petri/config.json", 0644) == 0 &&
                  chown("user/petri/config.json", 12345, 12345) == 0,
              "chown");
        check_refused(&from, "belongs to uid 12345");
    } else {
        CHECK(chmod("user/petri/config.json", 0) == 0, "chmod");
        check_refused(&from, "can't be read: Permission denied");
    }
    /* the user's own files may be links: people keep them elsewhere */
    CHECK(unlink("user/petri/config.json") == 0, "unlink");
    put_file("other/elsewhere.json", "{}");
    CHECK(symlink("../../other/elsewhere.json", "user/petri/config.json") == 0, "link");
    check_refused(&from, NULL);
    CHECK(unlink("user/petri/config.json") == 0, "unlink");
}

/* All files of the agent's own kind, in their order; what is not about sandboxes is left alone. */
static void agents_files(void)
{
    CLEANUP(places_free_p) struct places p = { 0 };
    struct config_from from = places_make(&p);
    CLEANUP(config_free_p) struct config *c = NULL;

    put_file("user/wonopcode/wonopcode.json",
             "{\"model\":\"x\",\"sandbox\":{\"env\":{\"A\":\"1\"}}}");
    put_file("user/wonopcode/config.jsonc",
             "{\"provider\":{},\"sandbox\":{\"env\":{\"A\":\"2\"}},}");
    put_file("user/petri/config.json", "{\"sandbox\":{\"env\":{\"A\":\"3\",\"U\":\"1\"}}}");
    put_file("proj/wonopcode.jsonc",
             "{\"agent\":{\"code\":{\"model\":\"y\",\"sandbox\":"
             "{\"network\":\"none\"}}},\"sandbox\":{\"env\":{\"P\":\"1\"}}}");
    put_file("proj/petri.json", "{\"sandbox\":{\"env\":{\"P\":\"2\"}}}");
    from.agent = "code";
    CHECK(config_load(&from, &c, NULL) == 0, "load");
    AUTOFREE char *got = joined(&c->mistakes);
    CHECK(!*got, "%s", got);
    CHECK(c->files.n == 5, "%zu files", c->files.n);
    check_value("files", c, "env", "A=3,U=1,P=2");
    check_value("files", c, "network.policy", "none");
    CHECK(strstr(config_origin(c, (size_t)key_find("network")), "wonopcode.jsonc:1:"), "%s",
          config_origin(c, (size_t)key_find("network")));
    CHECK_STR(config_origin(c, (size_t)key_find("image")), "default");
}

static void trust(void)
{
    CLEANUP(places_free_p) struct places p = { 0 };
    struct config_from from = places_make(&p);
    AUTOFREE char *path = path_join(p.project, "petri.json");
    static const char loose[] = "{\"sandbox\":{\"network\":\"full\"}}";
    struct err *e = NULL;
    bool had = false;

    (void)unlink("proj/wonopcode.jsonc");
    place_files(NULL, NULL, NULL);
    for (int step = 0; step < 5; step++) {
        CLEANUP(config_free_p) struct config *c = NULL;
        put_file(path, step == 2 ? "{\"sandbox\":{\"network\":\"full\"} }" : loose);
        if (step == 1)
            CHECK(trust_add(p.data, path, loose, strlen(loose), &e) == 0, "trust");
        if (step == 4)
            CHECK(trust_remove(p.data, path, &had, &e) == 0 && had, "untrust");
        CHECK(config_load(&from, &c, NULL) == 0, "load");
        bool counts = step == 1 || step == 3;
        check_value("trust", c, "network.policy", counts ? "full" : "limited");
        CHECK(c->untrusted.n == !counts && c->waiting_at.n == !counts, "step %d", step);
    }
    CHECK(!trust_has(p.data, "/elsewhere/petri.json", loose, strlen(loose)), "another path");
}

int main(void)
{
    check_scratch();
    umask(022);
    put_file("proj/x", "");
    odd_files();
    agents_files();
    trust();
    check_scratch_end();
    return check_done();
}
