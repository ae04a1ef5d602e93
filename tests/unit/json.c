/* JSON: strict reading, the writer, and one fed with the other. */
#include "tests/unit/check.h"

#include <limits.h>
#include <stdint.h>

#include "base/json.h"

static const struct {
    const char *in;
    size_t n; /* 0: strlen */
    bool ok;
} rows[] = {
    { "{}", 0, true },
    { "[]", 0, true },
    { "null", 0, true },
    { " \n\t{\"a\":[1,-2.5e3,true,false,null,\"x\"]} \n", 0, true },
    { "\"\\u00e4\\n\\ud83d\\ude00\"", 0, true },
    { "\"gr\xc3\xbc\xc3\x9f\"", 0, true },
    { "1e400", 0, true }, /* kept as it was written */
    { "", 0, false },
    { " ", 0, false },
    { "{", 0, false },
    { "[1,]", 0, false },
    { "{\"a\":1,}", 0, false },
    { "{\"a\" 1}", 0, false },
    { "{a:1}", 0, false },
    { "{'a':1}", 0, false },
    { "[1] 2", 0, false },
    { "{} x", 0, false },
    { "[1] // comment", 0, false },
    { "[1 /* c */]", 0, false },
    { "800\"", 0, false }, /* the beginning of a string after the value */
    { "{} \"", 0, false },
    { "{}\"a", 0, false },
    { "[1]\n\"a\\", 0, false },
    { "1-", 0, false },
    { "1 t", 0, false },
    { "{}]", 0, false },
    { "800", 0, true },
    { "800\r\n", 0, true },
    { "true", 0, true },
    { "\"a\"", 0, true },
    { "tru", 0, false },
    { "nan", 0, false },
    { "Infinity", 0, false },
    { "01", 0, false },
    { "+1", 0, false },
    { ".5", 0, false },
    { "1.", 0, false },
    { "0x10", 0, false },
    { "\"a\nb\"", 0, false }, /* a raw control character */
    { "\"a", 0, false },
    { "\"\\x41\"", 0, false },
    { "\"\\u12\"", 0, false },
    { "\"\xff\"", 0, false },         /* not UTF-8 */
    { "\"\xc0\xaf\"", 0, false },     /* overlong */
    { "\"\xed\xa0\x80\"", 0, false }, /* a surrogate as bytes */
    { "\"\\ud800\"", 0, false },      /* a lone high surrogate */
    { "\"\\udc00\"", 0, false },      /* a lone low one */
    { "\"\\ud800\\u0041\"", 0, false },
    { "\"\\ud800x\"", 0, false },
    { "\"a\\u0000b\"", 0, false },
    { "{\"a\\u0000\":1}", 0, false },
    { "\"a\0b\"", 5, false },
    { "{}\0", 3, false },
    { "{\"a\":1,\"a\":2}", 0, false },
    { "{\"a\":1,\"\\u0061\":2}", 0, false }, /* the same key, written differently */
    { "{\"a\":{\"b\":1},\"b\":1}", 0, true },
    { "\xef\xbb\xbf{}", 0, false }, /* a byte order mark */
};

static void accept_or_refuse(void)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err *e = NULL;
        AUTOJSON struct json *j = NULL;
        /* an exact heap copy: reading one byte past the end is seen by the sanitizer */
        size_t n = rows[i].n ? rows[i].n : strlen(rows[i].in);
        AUTOFREE char *copy = mem_dup(rows[i].in, n);
        int rc = json_parse(copy, n, &j, &e);
        CHECK((rc == 0) == rows[i].ok, "%s: rc %d", rows[i].in, rc);
        CHECK((rc == 0) == (j != NULL) && (rc < 0) == (e != NULL), "%s: outputs", rows[i].in);
        if (e) {
            AUTOFREE char *text = err_text(e);
            CHECK(!strchr(text, '\n'), "one line: %s", text);
        }
        err_free(e);
        AUTOJSON struct json *again = NULL;
        CHECK((json_parse(copy, n, &again, NULL) == 0) == rows[i].ok, "%s: without e", rows[i].in);
    }
}

static void depth(void)
{
    for (size_t d = 60; d <= 70; d++) {
        for (int obj = 0; obj <= 1; obj++) {
            AUTOSTR struct str s = STR_INIT;
            AUTOJSON struct json *j = NULL;
            for (size_t i = 0; i < d; i++)
                str_add(&s, obj ? "{\"a\":" : "[");
            str_add(&s, "1");
            for (size_t i = 0; i < d; i++)
                str_addc(&s, obj ? '}' : ']');
            CHECK((json_parse(s.p, s.len, &j, NULL) == 0) == (d <= 64), "depth %zu", d);
        }
    }
    AUTOSTR struct str s = STR_INIT;
    for (int i = 0; i < 1000000; i++)
        str_addc(&s, '[');
    struct json *j = NULL;
    CHECK(json_parse(s.p, s.len, &j, NULL) < 0 && !j, "a million brackets");
}

/* An image's config is a stranger's file: many keys must not take minutes. alarm() ends a hang. */
static void many_keys(void)
{
    AUTOSTR struct str s = STR_INIT;
    AUTOJSON struct json *j = NULL;
    str_addc(&s, '{');
    for (int i = 0; i < 200000; i++)
        str_addf(&s, "%s\"k%07d\":1", i ? "," : "", i);
    str_addc(&s, '}');
    alarm(20);
    int rc = json_parse(s.p, s.len, &j, NULL);
    alarm(0);
    CHECK(rc < 0 || j->n == 200000, "%d", rc);
}

static void look_ups(void)
{
    static const char text[] =
        "{\"s\":\"x\",\"n\":18446744073709551615,\"neg\":-1,\"f\":1.5,\"big\":18446744073709551616,"
        "\"t\":true,\"a\":[1,2],\"o\":{\"k\":\"v\"},\"z\":null,\"\":\"empty\"}";
    AUTOJSON struct json *j = NULL;
    uint64_t n = 5;
    CHECK(json_parse(text, strlen(text), &j, NULL) == 0, "parse");
    CHECK_STR(json_str(j, "s"), "x");
    CHECK_STR(json_str(j, ""), "empty");
    CHECK(!json_str(j, "n") && !json_str(j, "missing") && !json_str(NULL, "s"), "str");
    CHECK(json_u64(j, "n", &n) && n == UINT64_MAX, "u64");
    n = 5;
    CHECK(!json_u64(j, "neg", &n) && !json_u64(j, "f", &n) && !json_u64(j, "big", &n) &&
              !json_u64(j, "s", &n) && !json_u64(j, "missing", &n) && n == 5,
          "not a u64");
    CHECK(json_bool(j, "t") && !json_bool(j, "s") && !json_bool(j, "missing"), "bool");
    CHECK(json_arr(j, "a") && json_arr(j, "a")->n == 2 && !json_arr(j, "o"), "arr");
    CHECK_STR(json_str(json_get(j, "o"), "k"), "v");
    CHECK(json_get(j, "z")->type == JSON_NULL && !json_get(json_arr(j, "a"), "k"), "get");
}

static void writer(void)
{
    AUTOJSONW struct jsonw w = { 0 };
    AUTOSTRV struct strv l = { 0 };
    strv_add(&l, "a");
    strv_add(&l, "b\"");
    jw_obj(&w, NULL);
    jw_str(&w, "s", "q\" b\\ n\n t\t e\033 d\177 \xc3\xa4");
    jw_str(&w, "null", NULL);
    jw_bytes(&w, "bytes", "a\0b\xff\xc3", 5);
    jw_int(&w, "min", INT64_MIN);
    jw_u64(&w, "max", UINT64_MAX);
    jw_double(&w, "d", 1.5);
    jw_bool(&w, "t", true);
    jw_obj(&w, "empty");
    jw_end_obj(&w);
    jw_arr(&w, "arr");
    jw_int(&w, NULL, 1);
    jw_obj(&w, NULL);
    jw_end_obj(&w);
    jw_arr(&w, NULL);
    jw_end_arr(&w);
    jw_end_arr(&w);
    jw_strv(&w, "list", &l);
    jw_strf(&w, "f", "%d%s", 1, "x");
    jw_end_obj(&w);
    CHECK_STR(w.out.p, "{\"s\":\"q\\\" b\\\\ n\\n t\\u0009 e\\u001b d\\u007f \xc3\xa4\","
                       "\"null\":null,\"bytes\":\"a\\u0000b\xef\xbf\xbd\xef\xbf\xbd\","
                       "\"min\":-9223372036854775808,\"max\":18446744073709551615,\"d\":1.500,"
                       "\"t\":true,\"empty\":{},\"arr\":[1,{},[]],\"list\":[\"a\",\"b\\\"\"],"
                       "\"f\":\"1x\"}");
}

/* Whatever bytes go in, compact or pretty, the reader accepts the result. */
static void round_trip(void)
{
    uint32_t seed = 7;
    for (int round = 0; round < 4000; round++) {
        AUTOJSONW struct jsonw w = { .pretty = round & 1 };
        AUTOJSON struct json *j = NULL;
        char in[24];
        size_t n = (size_t)round % sizeof in;
        bool utf8;
        for (size_t i = 0; i < n; i++) {
            seed = seed * 1664525 + 1013904223;
            in[i] = (char)(seed >> 24);
            if (!in[i])
                in[i] = 1;
        }
        utf8 = utf8_valid(in, n);
        jw_obj(&w, NULL);
        jw_arr(&w, "a");
        jw_bytes(&w, NULL, in, n);
        jw_end_arr(&w);
        jw_bytes(&w, "b", in, n);
        jw_end_obj(&w);
        CHECK(utf8_valid(w.out.p, w.out.len), "round %d", round);
        CHECK(json_parse(w.out.p, w.out.len, &j, NULL) == 0, "round %d: %s", round, w.out.p);
        if (j && utf8)
            CHECK(strlen(json_str(j, "b")) == n && memcmp(json_str(j, "b"), in, n) == 0, "round %d",
                  round);
    }
}

static void utf8(void)
{
    static const struct {
        const char *in;
        bool ok;
    } t[] = { { "", true },
              { "abc", true },
              { "\xc3\xa4", true },
              { "\xe2\x82\xac", true },
              { "\xf0\x9f\x98\x80", true },
              { "\xf4\x8f\xbf\xbf", true },
              { "\xed\x9f\xbf", true },
              { "\xee\x80\x80", true },
              { "\x80", false },
              { "\xc3", false },
              { "\xc3(", false },
              { "\xc1\xbf", false },
              { "\xe0\x9f\xbf", false },
              { "\xed\xa0\x80", false },
              { "\xf0\x8f\xbf\xbf", false },
              { "\xf4\x90\x80\x80", false },
              { "\xf5\x80\x80\x80", false },
              { "\xfe", false },
              { "a\xe2\x82", false } };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        size_t n = strlen(t[i].in);
        AUTOFREE char *copy = mem_dup(t[i].in, n);
        CHECK(utf8_valid(copy, n) == t[i].ok, "row %zu", i);
    }
    CHECK(utf8_valid("a\0b", 3), "NUL is allowed");
}

int main(void)
{
    accept_or_refuse();
    depth();
    many_keys();
    look_ups();
    writer();
    round_trip();
    utf8();
    return check_done();
}
