/* JSON with comments: what is accepted, what is refused and where, strings, places, very large files. */
#include "tests/unit/check.h"

#include "runtime/config/jsonc.h"

static const struct {
    const char *in;
    size_t n;          /* 0: strlen */
    const char *error; /* NULL: right; else how the message begins */
} rows[] = {
    { "{}", 0, NULL },
    { "[]", 0, NULL },
    { "null", 0, NULL },
    { " \n\t{\"a\":[1,-2.5e3,true,false,null,\"x\"]} \n", 0, NULL },
    { "// c\n{ /* a */ \"a\" /* b */ : /* c */ 1 /* d */ , // e\n} // end", 0, NULL },
    { "[1,2,]", 0, NULL },
    { "{\"a\":1,}", 0, NULL },
    { "{\"a\":1 /* , */ ,\n// ,\n}", 0, NULL },
    { "\"// no comment /* here */\"", 0, NULL },
    { "/**/{}/***/", 0, NULL },
    { "1e300", 0, NULL },
    { "-0.0e-5", 0, NULL },
    { "\"\\ud83d\\ude00\"", 0, NULL },
    { "{\"a\":{\"b\":1},\"b\":1}", 0, NULL },
    { "", 0, "1:1: " },
    { " \n ", 0, "2:2: " },
    { "// only", 0, "1:8: " },
    { "{", 0, "1:1: not JSON: an object that never ends" },
    { "[1", 0, "1:1: not JSON: an array that never ends" },
    { "[,]", 0, "1:2: " },
    { "[1,,2]", 0, "1:4: " },
    { "{,}", 0, "1:2: " },
    { "{\"a\":1,,}", 0, "1:8: " },
    { "{\"a\" 1}", 0, "1:6: " },
    { "{\"a\":}", 0, "1:6: " },
    { "{a:1}", 0, "1:2: " },
    { "{'a':1}", 0, "1:2: " },
    { "[1] 2", 0, "1:5: " },
    { "{} x", 0, "1:4: " },
    { "[1 2]", 0, "1:4: " },
    { "{\"a\":1 \"b\":2}", 0, "1:8: " },
    { "# x\n{}", 0, "1:1: " },
    { "/* never", 0, "1:1: not JSON: a comment that never ends" },
    { "{} /", 0, "1:4: " },
    { "/*/", 0, "1:1: " },
    { "tru", 0, "1:1: " },
    { "True", 0, "1:1: " },
    { "truex", 0, "1:1: " },
    { "nan", 0, "1:1: " },
    { "01", 0, "1:1: " },
    { "+1", 0, "1:1: " },
    { ".5", 0, "1:1: " },
    { "1.", 0, "1:1: " },
    { "-", 0, "1:1: " },
    { "1e", 0, "1:1: " },
    { "0x10", 0, "1:1: " },
    { "1e400", 0, "1:1: not JSON: a number beyond all bounds" },
    { "{\n \"a\": -1e999}", 0, "2:7: " },
    { "\"a\nb\"", 0, "1:1: " },
    { "\"a\tb\"", 0, "1:3: not JSON: a control character" },
    { "\"a", 0, "1:1: not JSON: a string that never ends" },
    { "\"a\\", 0, "1:3: " },
    { "\"\\x41\"", 0, "1:2: " },
    { "\"\\u12\"", 0, "1:2: " },
    { "\"\\u00g0\"", 0, "1:2: " },
    { "\"\\u0000\"", 0, "1:2: not JSON: a NUL" },
    { "\"\\ud800\"", 0, "1:2: not JSON: half of a surrogate pair" },
    { "\"x\\udc00\"", 0, "1:3: " },
    { "\"\\ud800\\u0041\"", 0, "1:2: " },
    { "\"\\ud83d\\ude0\"", 0, "1:2: " },
    { "\"\xff\"", 0, "1:2: not JSON: bytes that are not UTF-8" },
    { "\"\xc0\xaf\"", 0, "1:2: " },
    { "\"\xed\xa0\x80\"", 0, "1:2: " },
    { "// \xc3\n{}", 0, "1:4: " },
    { "{}\0", 3, "1:3: not JSON: a NUL" },
    { "\"a\0b\"", 5, "1:3: " },
    { "{\"a\":1,\n\"a\":2}", 0, "2:1: not JSON: a key that stands here twice" },
    { "{\"a\":1,\"\\u0061\":2}", 0, "1:8: " },
    { "\xef\xbb\xbf{}", 0, "1:1: " },
    { "{\"0123456789abcdef\xff\":1}", 0, "1:19: not JSON: bytes that are not UTF-8" },
    { "{\"0123456789abcdef\0\":1}", 23, "1:19: not JSON: a NUL" },
    { "{\"\xc3\xa4 23456789abcd\x01 and more\":1}", 0, "1:17: not JSON: a control character" },
    { "{\"a\":1,\"b\":2,\"ab\":3,\"ba\":4,\"aa\":5,\"b\":6}", 0, "1:35: not JSON: a key" },
    { "{\"0\":0,\"1\":0,\"2\":0,\"3\":0,\"4\":0,\"5\":0,\"6\":0,\"7\":0,\"8\":0,\"9\":0,\"a\":0,"
      "\"b\":0,\"c\":0,\"0\":0}",
      0, "1:80: not JSON: a key" },
    { "{\"0\":0,\"1\":0,\"2\":0,\"3\":0,\"4\":0,\"5\":0,\"6\":0,\"7\":0,\"8\":0,\"9\":0,\"a\":0,"
      "\"b\":0,\"c\":0,\"d\":0}",
      0, NULL },
    { "{\"\xc3\xa4\xc3\xb6\": x}", 0, "1:8: " }, /* columns are characters */
};

static void accept_or_refuse(void)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        size_t n = rows[i].n ? rows[i].n : strlen(rows[i].in);
        /* an exact copy: reading a byte past the end is seen by the sanitizer */
        AUTOFREE char *copy = mem_dup(rows[i].in, n);
        CLEANUP(jsonc_free_p) struct jsonc j = { 0 };
        struct err *e = NULL;
        int rc = jsonc_parse(copy, n, &j, &e);
        AUTOFREE char *text = e ? err_text(e) : str_dup("");

        CHECK((rc == 0) == !rows[i].error, "%s: %d %s", rows[i].in, rc, text);
        CHECK(rc == 0 || str_starts(text, rows[i].error), "%s: got '%s', want '%s'", rows[i].in,
              text, rows[i].error);
        err_free(e);
        CLEANUP(jsonc_free_p) struct jsonc again = { 0 };
        CHECK((jsonc_parse(copy, n, &again, NULL) == 0) == !rows[i].error, "without e");
    }
}

static void depth(void)
{
    for (size_t levels = 1; levels <= 1000000; levels = levels < 66 ? levels + 1 : levels * 30) {
        AUTOSTR struct str s = STR_INIT;
        CLEANUP(jsonc_free_p) struct jsonc j = { 0 };
        for (size_t i = 0; i < levels; i++)
            str_addc(&s, '[');
        for (size_t i = 0; i < levels; i++)
            str_addc(&s, ']');
        CHECK((jsonc_parse(s.p, s.len, &j, NULL) == 0) == (levels <= JSONC_MAX_DEPTH), "%zu levels",
              levels);
    }
}

static void strings_and_places(void)
{
    static const char text[] =
        "{ // x\n  \"a\\n\\u00e4\": \"\\\"\\\\\\/\\b\\f\\r\\t\\u20ac\\ud83d\\ude00\",\n"
        "  \"list\": [10, {\"deep\": true}, \"z\"],\n  \"n\": -1.50\n}\n";
    CLEANUP(jsonc_free_p) struct jsonc j = { 0 };
    unsigned line, column;
    uint32_t list, item;

    CHECK(jsonc_parse(text, strlen(text), &j, NULL) == 0, "parse");
    AUTOFREE char *a = jsonc_text(&j, jsonc_get(&j, 0, "a\n\xc3\xa4"));
    CHECK_STR(a, "\"\\/\b\f\r\t\xe2\x82\xac\xf0\x9f\x98\x80");
    AUTOFREE char *n = jsonc_text(&j, jsonc_get(&j, 0, "n"));
    CHECK_STR(n, "-1.50");
    CHECK(jsonc_get(&j, 0, "none") == 0 && jsonc_get(&j, jsonc_get(&j, 0, "n"), "x") == 0, "none");
    list = jsonc_get(&j, 0, "list");
    item = jsonc_after(&j, list, jsonc_first(&j, list));
    CHECK(j.nodes[jsonc_get(&j, item, "deep")].type == JSON_BOOL, "deep");
    jsonc_place(&j, j.nodes[item].start, &line, &column);
    CHECK(line == 3 && column == 16, "%u:%u", line, column);
    item = jsonc_after(&j, list, item);
    AUTOFREE char *z = jsonc_text(&j, item);
    CHECK_STR(z, "z");
    CHECK(jsonc_after(&j, list, item) == 0, "the end of the list");
    jsonc_place(&j, j.nodes[jsonc_get(&j, 0, "n") - 1].start, &line, &column);
    CHECK(line == 4 && column == 3, "%u:%u", line, column);
    CHECK(j.nodes[0].end == strlen(text) - 1 && j.nodes[0].next == j.n, "all of it");
}

/* A megabyte that is nothing but values or keys: memory stays a small multiple of the text. */
static void large(void)
{
    AUTOSTR struct str array = STR_INIT, object = STR_INIT, empties = STR_INIT;
    CLEANUP(jsonc_free_p) struct jsonc j = { 0 }, k = { 0 }, m = { 0 };

    str_add(&array, "[0");
    while (array.len < 1 << 20)
        str_add(&array, ",0");
    str_add(&array, "]");
    CHECK(jsonc_parse(array.p, array.len, &j, NULL) == 0, "array");
    CHECK(j.cap * sizeof *j.nodes + array.len < 14 << 20, "%zu bytes", j.cap * sizeof *j.nodes);

    str_add(&object, "{\"x\":0");
    for (unsigned i = 0; object.len < 1 << 20; i++)
        str_addf(&object, ",\"%x\":0", i);
    str_add(&object, "}");
    CHECK(jsonc_parse(object.p, object.len, &k, NULL) == 0, "object");
    object.p[object.len - 1] = ',';
    str_add(&object, "\"x\":1}");
    CHECK(jsonc_parse(object.p, object.len, &k, NULL) < 0, "the same key at both ends");

    str_add(&empties, "[");
    while (empties.len < 1 << 20)
        str_add(&empties, "{},");
    str_add(&empties, "]");
    CHECK(jsonc_parse(empties.p, empties.len, &m, NULL) == 0, "empties");
    while (empties.len <= JSONC_MAX_SIZE)
        str_addn(&empties, "\n\n\n\n\n\n\n\n", 8);
    CHECK(jsonc_parse(empties.p, empties.len, &m, NULL) < 0, "larger than 4 MB");
}

int main(void)
{
    accept_or_refuse();
    depth();
    strings_and_places();
    large();
    return check_done();
}
