/* Strings, lists, paths, escaping for a terminal, near misses, error chains. */
#include "tests/unit/check.h"

#include <stdint.h>

#include "base/json.h"
#include "base/str.h"

static void escaping(void)
{
    static const struct {
        const char *in;
        size_t n; /* 0: strlen */
        const char *want;
    } rows[] = {
        { "plain text", 0, "plain text" },
        { "", 0, "" },
        { "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80", 0,
          "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80" },
        { "\033]52;c;QUJD\a", 0, "\\x1b]52;c;QUJD\\x07" },
        { "\033[2J", 0, "\\x1b[2J" },
        { "a\r\nb\tc", 0, "a\\x0d\\x0ab\\x09c" },
        { "a\0b", 3, "a\\x00b" },
        { "\x7f", 0, "\\x7f" },
        { "\xc2\x9b"
          "31m",
          0, "\\x9b31m" }, /* C1 CSI in UTF-8 */
        { "\x9b"
          "31m",
          0, "\\x9b31m" },             /* C1 CSI as a bare byte */
        { "\xc2\xa0", 0, "\xc2\xa0" }, /* no-break space is visible enough */
        { "\xe2\x80\xae"
          "txt",
          0, "\\u202etxt" }, /* right-to-left override */
        { "\xe2\x81\xa6"
          "x\xe2\x81\xa9",
          0, "\\u2066x\\u2069" },
        { "\xe2\x80\x8b", 0, "\\u200b" }, /* zero width space */
        { "\xef\xbb\xbf", 0, "\\ufeff" },
        { "\xf3\xa0\x81\x81", 0, "\\U000e0041" }, /* tag characters */
        { "\xff\xfe", 0, "\\xff\\xfe" },
        { "\xc3", 0, "\\xc3" }, /* cut off */
        { "\xe2\x82", 0, "\\xe2\\x82" },
        { "\xc0\xaf", 0, "\\xc0\\xaf" }, /* overlong slash */
        { "\xe0\x80\xaf", 0, "\\xe0\\x80\\xaf" },
        { "\xed\xa0\x80", 0, "\\xed\\xa0\\x80" },          /* a surrogate */
        { "\xf4\x90\x80\x80", 0, "\\xf4\\x90\\x80\\x80" }, /* past U+10FFFF */
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTOSTR struct str s = STR_INIT;
        str_add(&s, "");
        str_add_escaped(&s, rows[i].in, rows[i].n ? rows[i].n : strlen(rows[i].in));
        CHECK_STR(s.p, rows[i].want);
    }
    /* no byte sequence whatever leaves a control character or invalid UTF-8 behind */
    uint32_t seed = 1;
    for (int round = 0; round < 20000; round++) {
        AUTOSTR struct str s = STR_INIT;
        char in[8];
        for (size_t i = 0; i < sizeof in; i++) {
            seed = seed * 1664525 + 1013904223;
            in[i] = (char)(seed >> 24);
        }
        str_add_escaped(&s, in, sizeof in);
        CHECK(utf8_valid(s.p, s.len), "round %d", round);
        for (size_t i = 0; i < s.len; i++)
            if ((unsigned char)s.p[i] < 0x20 || s.p[i] == 0x7f)
                CHECK(0, "round %d: control byte %02x", round, (unsigned char)s.p[i]);
    }
}

static void near_misses(void)
{
    static const char *const words[] = { "run", "start", "stop", "status", "exec", "image" };
    static const struct {
        const char *in, *want;
    } rows[] = { { "rnu", "run" },
                 { "rn", "run" },
                 { "statsu", "status" },
                 { "strat", "start" },
                 { "imgae", "image" },
                 { "exce", "exec" },
                 { "start", "start" },
                 { "zzzzzzzz", NULL },
                 { "", NULL },
                 { "kubernetes", NULL },
                 { "runrunrunrunrunrunrunrunrunrunrunrunrunrunrunrunrunrunrunrunrunrunrun",
                   NULL } };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        CHECK_STR(nearest_word(rows[i].in, words, ARRAY_LEN(words)), rows[i].want);
    CHECK(!nearest_word("run", words, 0), "no candidates");
}

static void strings(void)
{
    struct str s = STR_INIT;
    AUTOFREE char *empty = str_take(&s);
    CHECK_STR(empty, "");
    for (int i = 0; i < 1000; i++) {
        str_addc(&s, 'a');
        str_addn(&s, "\0b", 2);
        str_addf(&s, "%d", 7);
        str_add(&s, "");
    }
    CHECK(s.len == 4000 && s.p[4000] == '\0', "%zu", s.len);
    CHECK(memcmp(s.p + 3996, "a\0b7", 4) == 0, "tail");
    str_reset(&s);
    CHECK(!s.p && !s.len && !s.cap, "reset");
    AUTOFREE char *f = str_printf("%s-%03d", "x", 5);
    CHECK_STR(f, "x-005");
    CHECK(!str_dup(NULL), "str_dup(NULL)");
    CHECK(str_starts("abc", "ab") && str_starts("abc", "") && !str_starts("ab", "abc"), "starts");
    CHECK(str_ends("abc", "bc") && str_ends("abc", "") && !str_ends("c", "abc"), "ends");
    CHECK(str_eq(NULL, NULL) && !str_eq("", NULL) && !str_eq(NULL, "") && str_eq("a", "a"), "eq");
}

static void lists(void)
{
    AUTOSTRV struct strv l = { 0 };
    CHECK(!strv_getenv(&l, "A") && !strv_has(&l, "A"), "an empty list");
    for (int i = 0; i < 300; i++) {
        strv_addf(&l, "K%d=%d", i, i);
        CHECK(l.n == (size_t)i + 1 && l.v[l.n] == NULL, "terminated at %d", i);
    }
    strv_setenv(&l, "K7", "seven=7");
    CHECK(l.n == 300, "replaced, not added");
    CHECK_STR(strv_getenv(&l, "K7"), "seven=7");
    CHECK_STR(strv_getenv(&l, "K70"), "70");
    CHECK(!strv_getenv(&l, "K"), "a prefix is not a name");
    strv_setenv(&l, "K", "");
    CHECK(l.n == 301, "added");
    CHECK_STR(strv_getenv(&l, "K"), "");
    strv_add(&l, "word");
    CHECK(strv_has(&l, "word") && !strv_has(&l, "wor"), "has");
}

static void paths(void)
{
    static const struct {
        const char *path, *dir;
        bool want;
    } below[] = { { "/a", "/a", true },    { "/a/b", "/a", true }, { "/a/b", "/a/", true },
                  { "/ab", "/a", false },  { "/", "/", true },     { "/a", "/", true },
                  { "/a", "/a/b", false }, { "/", "/a", false } };
    static const struct {
        const char *a, *b, *want;
    } join[] = { { "/a", "b", "/a/b" },     { "/a/", "b", "/a/b" }, { "/a", "/b", "/a/b" },
                 { "/a//", "//b", "/a/b" }, { "/", "b", "/b" },     { "/", "/b", "/b" },
                 { "//", "b", "/b" },       { "a", "b/c", "a/b/c" } };
    for (size_t i = 0; i < ARRAY_LEN(below); i++)
        CHECK(path_below(below[i].path, below[i].dir) == below[i].want, "%s below %s",
              below[i].path, below[i].dir);
    for (size_t i = 0; i < ARRAY_LEN(join); i++) {
        AUTOFREE char *p = path_join(join[i].a, join[i].b);
        CHECK_STR(p, join[i].want);
    }
}

static void errors(void)
{
    struct err *e = NULL;
    AUTOFREE char *none = err_text(NULL);
    CHECK_STR(none, "");

    errno = ENOENT;
    CHECK(err_sys(&e, "open '%s'", "x") == -ERR_FAILED, "code");
    CHECK(errno == ENOENT && e->sys == ENOENT, "errno kept");
    CHECK(err_wrap(&e, "blob %d", 7) == -ERR_FAILED, "code kept");
    CHECK(err_wrap(&e, "image") == -ERR_FAILED && e->sys == ENOENT, "errno kept");
    AUTOFREE char *text = err_text(e);
    CHECK_STR(text, "image: blob 7: open 'x': No such file or directory");

    /* a later error replaces the earlier one and frees it (the leak checker sees to that) */
    CHECK(err_new(&e, ERR_DENIED, "no") == -ERR_DENIED && e->code == ERR_DENIED && !e->cause,
          "new");
    CHECK(err_wrap(&e, "because") == -ERR_DENIED, "wrap keeps the code");
    e = err_free(e);
    CHECK(!e && !err_free(NULL), "free");
    CHECK(err_new(NULL, ERR_BUSY, "x") == -ERR_BUSY && err_sys(NULL, "x") == -ERR_FAILED &&
              err_wrap(NULL, "x") < 0,
          "no one asks for details");
    CHECK(err_wrap(&e, "nothing to wrap") < 0 && !e, "an empty chain");

    for (int c = ERR_FAILED; c <= ERR_INTERNAL; c++)
        for (int d = c + 1; d <= ERR_INTERNAL; d++)
            CHECK(strcmp(err_code_name((enum err_code)c), err_code_name((enum err_code)d)) != 0,
                  "codes %d and %d share the word %s", c, d, err_code_name((enum err_code)c));
    CHECK_STR(err_code_name((enum err_code)999), "failed");
    CHECK_STR(err_code_name((enum err_code)0), "failed");
}

int main(void)
{
    escaping();
    near_misses();
    strings();
    lists();
    paths();
    errors();
    return check_done();
}
