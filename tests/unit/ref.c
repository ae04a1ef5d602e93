/* Image references, digests and IDs: what is a name, and what only looks like one. */
#include "tests/unit/check.h"

#include "base/str.h"
#include "oci/digest.h"
#include "oci/ref.h"
#include "oci/store_read.h"

static const struct {
    const char *in, *want;
} names[] = {
    { "debian", "debian:latest" },
    { "debian:12", "debian:12" },
    { "team/tools", "team/tools:latest" },
    { "a/b/c:1.2-x_Y", "a/b/c:1.2-x_Y" },
    { "example.com/a", "example.com/a:latest" },
    { "example.com:5000/a/b:c", "example.com:5000/a/b:c" },
    { "localhost/a", "localhost/a:latest" },
    { "Example.COM/a", "Example.COM/a:latest" },
    { "a.b_c__d-e--f", "a.b_c__d-e--f:latest" },
    { "localhost:5000", "localhost:5000" }, /* a name and a tag */
    { "1", "1:latest" },
    { "", NULL },
    { ":", NULL },
    { ":tag", NULL },
    { "a:", NULL },
    { "a:b:c", NULL },
    { "a:.b", NULL },
    { "a:-b", NULL },
    { "a b", NULL },
    { "a\tb", NULL },
    { "A", NULL },
    { "team/A", NULL },
    { ".a", NULL },
    { "a.", NULL },
    { "a..b", NULL },
    { "a___b", NULL },
    { "a._b", NULL },
    { "-a", NULL },
    { "a-", NULL },
    { "/a", NULL },
    { "a/", NULL },
    { "a//b", NULL },
    { "../a", NULL },
    { "a/../b", NULL },
    { "./a", NULL },
    { "ex..com/a", NULL },
    { ".com/a", NULL },
    { "a.com:/b", NULL },
    { "a.com:x/b", NULL },
    { "a.com:123456/b", NULL },
    { "a.com:80", "a.com:80" },
    { "a@sha256:0", NULL },
    { "sha256:abcdef", NULL },
    { "n\xc3\xa4me", NULL },
    { "a\x1b[0m", NULL },
};

static void references(void)
{
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        CLEANUP(ref_free_p) struct ref r = { 0 };
        CLEANUP(err_free_p) struct err *e = NULL;
        AUTOFREE char *text = NULL;
        int rc = ref_parse(names[i].in, &r, &e);
        CHECK((rc == 0) == (names[i].want != NULL), "'%s': %d", names[i].in, rc);
        CHECK((rc < 0) == (e != NULL) && (rc == 0) == (r.name != NULL), "'%s'", names[i].in);
        if (rc < 0 || !names[i].want)
            continue;
        text = ref_text(&r);
        CHECK_STR(text, names[i].want);
    }
}

static void lengths(void)
{
    char name[300], tag[200];
    CLEANUP(ref_free_p) struct ref r = { 0 };

    memset(name, 'a', sizeof name);
    name[256] = 0;
    CHECK(ref_parse(name, &r, NULL) == -ERR_INVALID, "a long name");
    name[255] = 0;
    CHECK(ref_parse(name, &r, NULL) == 0, "the longest name");
    ref_free_p(&r);
    memset(tag, 'b', sizeof tag);
    tag[0] = 'a';
    tag[1] = ':';
    tag[2 + 129] = 0;
    CHECK(ref_parse(tag, &r, NULL) == -ERR_INVALID, "a long tag");
    tag[2 + 128] = 0;
    CHECK(ref_parse(tag, &r, NULL) == 0, "the longest tag");
}

static void digests(void)
{
    static const char good[] =
        "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    char d[80];

    CHECK(digest_valid(good), "%s", good);
    CHECK_STR(digest_hex(good), good + 7);
    for (size_t i = 0; i < sizeof good - 1; i++) { /* any one wrong character spoils it */
        static const char wrong[] = { '/', '.', 'G', 'A', ' ', '\n', 0 };
        for (size_t k = 0; k < sizeof wrong; k++) {
            strcpy(d, good);
            d[i] = wrong[k];
            CHECK(!digest_valid(d), "'%s'", d);
        }
    }
    snprintf(d, sizeof d, "%sa", good);
    CHECK(!digest_valid(d) && !digest_valid(NULL) && !digest_valid("sha256:../../x"), "others");
}

static const char three[] = "{\"schemaVersion\":2,\"manifests\":["
#define ENTRY(hex, ref)                                                                            \
    "{\"mediaType\":\"" MT_MANIFEST "\",\"size\":1,\"digest\":\"sha256:" hex                       \
    "\",\"annotations\":{\"" ANNOTATION_REF "\":\"" ref "\"}}"
    ENTRY("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1",
          "debian:12") "," ENTRY("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa2",
                                 "tools:latest") "," ENTRY("bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
                                                           "bbbbbbbbbbbbbbbbbbbbbbbb3",
                                                           "abcdef:latest") "]}";

static const struct {
    const char *name, *want;
    int rc;
    const char *says;
} finds[] = {
    { "debian:12", "debian:12", 0, "" },
    { "tools", "tools:latest", 0, "" },
    { "tools:latest", "tools:latest", 0, "" },
    { "bbbbbb", "abcdef:latest", 0, "" },
    { "sha256:bbbbbbb", "abcdef:latest", 0, "" },
    { "abcdef", "abcdef:latest", 0, "" }, /* a name goes before an ID */
    { "bbbbb", NULL, -ERR_NOT_FOUND, "petri image import" },
    { "aaaaaaa", NULL, -ERR_INVALID, "more digits" },
    { "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa2", "tools:latest", 0, "" },
    { "debian", NULL, -ERR_NOT_FOUND, "debian:12" },
    { "debain:12", NULL, -ERR_NOT_FOUND, "did you mean 'debian:12'" },
    { "host", NULL, -ERR_INVALID, "machine itself" },
    { "DEBIAN", NULL, -ERR_INVALID, "not valid" },
};

static void finding(void)
{
    CLEANUP(index_free_p) struct index i = { 0 };

    CHECK(index_parse(three, sizeof three - 1, &i, NULL) == 0 && i.n == 3, "the index");
    for (size_t k = 0; k < ARRAY_LEN(finds); k++) {
        CLEANUP(err_free_p) struct err *e = NULL;
        const struct desc *d = NULL;
        int rc = store_find(&i, finds[k].name, &d, &e);
        AUTOFREE char *text = err_text(e);
        CHECK(rc == finds[k].rc, "'%s': %d %s", finds[k].name, rc, text);
        CHECK_STR(d ? d->ref : NULL, finds[k].want);
        CHECK(strstr(text, finds[k].says), "'%s' says: %s", finds[k].name, text);
    }
}

int main(void)
{
    references();
    lengths();
    digests();
    finding();
    return check_done();
}
