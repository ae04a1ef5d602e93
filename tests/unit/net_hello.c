/* Hellos of TLS clients: whole, over many records, byte by byte, cut and malformed. */
#include "tests/unit/check.h"

#include "base/str.h"
#include "runtime/gateway/hello.h"

#define LIT(s) (s), sizeof(s) - 1
#define SNI                                                                                        \
    "\x00\x00\x00\x10\x00\x0e\x00\x00\x0b"                                                         \
    "example.com"
#define SNI2                                                                                       \
    "\x00\x00\x00\x10\x00\x0e\x00\x00\x0b"                                                         \
    "example.org"
#define ALPN "\x00\x10\x00\x0b\x00\x09\x08http/1.1"
#define GREASE "\x0a\x0a\x00\x00"
#define ECH "\xfe\x0d\x00\x04\x01\x02\x03\x04"
#define FRONT                                                                                      \
    "\x03\x03"                                                                                     \
    "0123456789abcdef0123456789abcdef"            /* version, random */
#define SUITES "\x00\x04\x13\x01\x13\x02\x01\x00" /* and compression */

/* Extensions of an otherwise sound hello. */
static const struct {
    const char *what, *ext;
    size_t n;
    enum hello want;
    const char *name;
} rows[] = {
    { "name", LIT(SNI), HELLO_NAME, "example.com" },
    { "name among others", LIT(GREASE ALPN SNI "\x00\x17\x00\x00"), HELLO_NAME, "example.com" },
    { "upper case, final dot",
      LIT("\x00\x00\x00\x11\x00\x0f\x00\x00\x0c"
          "eXaMple.COM."),
      HELLO_NAME, "example.com" },
    { "one label",
      LIT("\x00\x00\x00\x09\x00\x07\x00\x00\x04"
          "mail"),
      HELLO_NAME, "mail" },
    { "no name", LIT(GREASE ALPN), HELLO_NO_NAME, "" },
    { "no extensions in the list", LIT(""), HELLO_NO_NAME, "" },
    { "ECH", LIT(SNI ECH), HELLO_ECH, "example.com" },
    { "ECH first", LIT(ECH SNI), HELLO_ECH, "example.com" },
    { "ECH without a name", LIT(ECH), HELLO_ECH, "" },
    { "ECH empty", LIT(SNI "\xfe\x0d\x00\x00"), HELLO_ECH, "example.com" },
    { "ECH of a draft", LIT(SNI "\xfe\x08\x00\x00"), HELLO_ECH, "example.com" },
    { "ESNI", LIT("\xff\xce\x00\x00"), HELLO_ECH, "" },
    { "neighbours of ECH", LIT(SNI "\xfe\x07\x00\x00\xfe\x0e\x00\x00"), HELLO_NAME, "example.com" },
    /* bad names */
    { "name twice", LIT(SNI SNI), HELLO_BAD, "" },
    { "another name", LIT(SNI ALPN SNI2), HELLO_BAD, "" },
    { "two names in a list",
      LIT("\x00\x00\x00\x0a\x00\x08\x00\x00\x01"
          "a"
          "\x00\x00\x01"
          "b"),
      HELLO_BAD, "" },
    { "the same name twice in a list",
      LIT("\x00\x00\x00\x0a\x00\x08\x00\x00\x01"
          "a"
          "\x00\x00\x01"
          "a"),
      HELLO_BAD, "" },
    { "a second name of another kind",
      LIT("\x00\x00\x00\x0a\x00\x08\x00\x00\x01"
          "a"
          "\x01\x00\x01"
          "b"),
      HELLO_BAD, "" },
    { "another kind of name",
      LIT("\x00\x00\x00\x06\x00\x04\x01\x00\x01"
          "a"),
      HELLO_BAD, "" },
    { "empty extension", LIT("\x00\x00\x00\x00"), HELLO_BAD, "" },
    { "empty list", LIT("\x00\x00\x00\x02\x00\x00"), HELLO_BAD, "" },
    { "empty name", LIT("\x00\x00\x00\x05\x00\x03\x00\x00\x00"), HELLO_BAD, "" },
    { "name past its list",
      LIT("\x00\x00\x00\x06\x00\x04\x00\x00\x02"
          "a"),
      HELLO_BAD, "" },
    { "list past its extension",
      LIT("\x00\x00\x00\x06\x00\x05\x00\x00\x01"
          "ab"),
      HELLO_BAD, "" },
    { "bytes behind the name",
      LIT("\x00\x00\x00\x07\x00\x05\x00\x00\x01"
          "ab"),
      HELLO_BAD, "" },
    { "bytes behind the list",
      LIT("\x00\x00\x00\x07\x00\x04\x00\x00\x01"
          "ab"),
      HELLO_BAD, "" },
    { "an address",
      LIT("\x00\x00\x00\x0e\x00\x0c\x00\x00\x09"
          "127.0.0.1"),
      HELLO_BAD, "" },
    { "a short address",
      LIT("\x00\x00\x00\x0a\x00\x08\x00\x00\x05"
          "127.1"),
      HELLO_BAD, "" },
    { "a number",
      LIT("\x00\x00\x00\x0f\x00\x0d\x00\x00\x0a"
          "2130706433"),
      HELLO_BAD, "" },
    { "an IPv6 address",
      LIT("\x00\x00\x00\x08\x00\x06\x00\x00\x03"
          "::1"),
      HELLO_BAD, "" },
    { "in brackets",
      LIT("\x00\x00\x00\x0a\x00\x08\x00\x00\x05"
          "[::1]"),
      HELLO_BAD, "" },
    { "NUL inside",
      LIT("\x00\x00\x00\x0a\x00\x08\x00\x00\x05"
          "a\0b.c"),
      HELLO_BAD, "" },
    { "NUL behind",
      LIT("\x00\x00\x00\x08\x00\x06\x00\x00\x03"
          "ab\0"),
      HELLO_BAD, "" },
    { "a port",
      LIT("\x00\x00\x00\x09\x00\x07\x00\x00\x04"
          "a:80"),
      HELLO_BAD, "" },
    { "a space",
      LIT("\x00\x00\x00\x08\x00\x06\x00\x00\x03"
          "a b"),
      HELLO_BAD, "" },
    { "empty label",
      LIT("\x00\x00\x00\x09\x00\x07\x00\x00\x04"
          "a..b"),
      HELLO_BAD, "" },
    /* bad lists */
    { "an extension twice", LIT(SNI ALPN ALPN), HELLO_BAD, "" },
    { "half a type", LIT(SNI "\x00"), HELLO_BAD, "" },
    { "no length", LIT(SNI "\x00\x17"), HELLO_BAD, "" },
    { "half a length", LIT(SNI "\x00\x17\x00"), HELLO_BAD, "" },
    { "longer than the list", LIT(SNI "\x00\x17\x00\x01"), HELLO_BAD, "" },
    { "longest length",
      LIT(SNI "\x00\x17\xff\xff"
              "abc"),
      HELLO_BAD, "" },
};

/* Bodies of a handshake message. */
static const struct {
    const char *what, *body;
    size_t n;
    enum hello want;
} bodies[] = {
    { "no extensions", LIT(FRONT "\x00" SUITES), HELLO_NO_NAME },
    { "session id",
      LIT(FRONT "\x20"
                "0123456789abcdef0123456789abcdef" SUITES "\x00\x00"),
      HELLO_NO_NAME },
    { "TLS 1.0",
      LIT("\x03\x01"
          "0123456789abcdef0123456789abcdef"
          "\x00" SUITES),
      HELLO_NO_NAME },
    { "SSL 2",
      LIT("\x02\x00"
          "0123456789abcdef0123456789abcdef"
          "\x00" SUITES),
      HELLO_BAD },
    { "long session id",
      LIT(FRONT "\x21"
                "0123456789abcdef0123456789abcdefx" SUITES),
      HELLO_BAD },
    { "one suite",
      LIT(FRONT "\x00"
                "\x00\x02\x13\x01\x01\x00"),
      HELLO_NO_NAME },
    { "no suites",
      LIT(FRONT "\x00"
                "\x00\x00\x01\x00"),
      HELLO_BAD },
    { "odd suites",
      LIT(FRONT "\x00"
                "\x00\x03"
                "abc"
                "\x01\x00"),
      HELLO_BAD },
    { "no compression",
      LIT(FRONT "\x00"
                "\x00\x02\x13\x01\x00"),
      HELLO_BAD },
    { "half a list of extensions", LIT(FRONT "\x00" SUITES "\x00"), HELLO_BAD },
    { "extensions too long", LIT(FRONT "\x00" SUITES "\x00\x05" GREASE), HELLO_BAD },
    { "bytes behind the extensions", LIT(FRONT "\x00" SUITES "\x00\x04" GREASE "x"), HELLO_BAD },
    { "suites past the end",
      LIT(FRONT "\x00"
                "\xff\xfe\x13\x01\x01\x00"),
      HELLO_BAD },
    { "random cut",
      LIT("\x03\x03"
          "0123456789"),
      HELLO_BAD },
    { "empty", LIT(""), HELLO_BAD },
};

/* First bytes of a connection. */
static const struct {
    const char *what, *p;
    size_t n;
    enum hello want;
} streams[] = {
    { "nothing", LIT(""), HELLO_MORE },
    { "one byte", LIT("\x16"), HELLO_MORE },
    { "header", LIT("\x16\x03\x01\x00\x40"), HELLO_MORE },
    { "longest record", LIT("\x16\x03\x01\x40\x00"), HELLO_MORE },
    { "HTTP", LIT("GET / HTTP/1.1\r\n"), HELLO_BAD },
    { "SSH", LIT("SSH-2.0-x\r\n"), HELLO_BAD },
    { "SSL 2 hello", LIT("\x80\x2e\x01\x03\x01"), HELLO_BAD },
    { "alert", LIT("\x15\x03\x01\x00\x02\x02\x28"), HELLO_BAD },
    { "data", LIT("\x17\x03\x03\x00\x01x"), HELLO_BAD },
    { "version", LIT("\x16\x02\x01\x00\x40"), HELLO_BAD },
    { "empty record", LIT("\x16\x03\x01\x00\x00"), HELLO_BAD },
    { "long record", LIT("\x16\x03\x01\x40\x01"), HELLO_BAD },
    { "a server's hello", LIT("\x16\x03\x01\x00\x40\x02"), HELLO_BAD },
    { "a hello of 16 MiB", LIT("\x16\x03\x01\x40\x00\x01\xff\xff\xff"), HELLO_BAD },
    { "a hello past the limit", LIT("\x16\x03\x01\x40\x00\x01\x00\x40\x00"), HELLO_BAD },
    { "an alert between two parts", LIT("\x16\x03\x01\x00\x05\x01\x00\x00\x40\x03\x15\x03\x01"),
      HELLO_BAD },
    { "a record that goes on", LIT("\x16\x03\x01\x00\x45\x01\x00\x00\x40"), HELLO_BAD },
    { "a record just long enough", LIT("\x16\x03\x01\x00\x44\x01\x00\x00\x40"), HELLO_MORE },
};

static void add_number(struct str *s, size_t v, int bytes)
{
    while (bytes--)
        str_addc(s, (char)(v >> (8 * bytes)));
}

/* A handshake message in records of at most `size` bytes. */
static void wrap(const char *body, size_t n, size_t size, struct str *out)
{
    AUTOSTR struct str m = STR_INIT;

    str_addc(&m, 1);
    add_number(&m, n, 3);
    str_addn(&m, body, n);
    for (size_t at = 0, len; at < m.len; at += len) {
        len = m.len - at < size ? m.len - at : size;
        str_addn(out, "\x16\x03\x01", 3);
        add_number(out, len, 2);
        str_addn(out, m.p + at, len);
    }
}

static void add_body(const char *ext, size_t n, struct str *out)
{
    str_addn(out, LIT(FRONT "\x00" SUITES));
    add_number(out, n, 2);
    str_addn(out, ext, n);
}

/* All at once, then a byte more at a time: the first verdict is the last one, and is the same. */
static void check(const char *what, size_t size, const char *p, size_t n, enum hello want,
                  const char *want_name)
{
    char name[256], early[256];
    enum hello got = hello_read((const uint8_t *)p, n, name), v = HELLO_MORE;

    CHECK(got == want, "%s (%zu): %d, want %d", what, size, got, want);
    CHECK(strcmp(name, want_name) == 0, "%s (%zu): '%s'", what, size, name);
    for (size_t i = 0; i <= n; i++) {
        AUTOFREE uint8_t *copy = mem_dup(p, i);
        enum hello now = hello_read(copy, i, early);

        if (v == HELLO_MORE)
            v = now;
        if (now != v || (v == got && strcmp(early, name) != 0))
            CHECK(false, "%s (%zu): %d after %zu bytes, was %d", what, size, now, i, v);
    }
    CHECK(v == got, "%s (%zu): byte by byte %d, at once %d", what, size, v, got);
}

static const size_t sizes[] = { 16384, 100, 40, 7, 3, 1 };

static void test_rows(void)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
            AUTOSTR struct str body = STR_INIT, s = STR_INIT;

            add_body(rows[i].ext, rows[i].n, &body);
            wrap(body.p, body.len, sizes[k], &s);
            check(rows[i].what, sizes[k], s.p, s.len, rows[i].want, rows[i].name);
            str_addn(&s, LIT("\x14\x03\x03\x00\x01\x01 what follows"));
            check(rows[i].what, sizes[k], s.p, s.len, rows[i].want, rows[i].name);
        }
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++)
        for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
            AUTOSTR struct str s = STR_INIT;

            wrap(bodies[i].body, bodies[i].n, sizes[k], &s);
            check(bodies[i].what, sizes[k], s.p, s.len, bodies[i].want, "");
        }
    for (size_t i = 0; i < ARRAY_LEN(streams); i++)
        check(streams[i].what, 0, streams[i].p, streams[i].n, streams[i].want, "");
}

/* A hello that is as long as can be, and one that is longer. */
static void test_limit(void)
{
    for (size_t more = 0; more < 2; more++) {
        AUTOSTR struct str ext = STR_INIT, body = STR_INIT, s = STR_INIT;
        size_t room = HELLO_MAX - 5 - 4 - (sizeof(FRONT "\x00" SUITES) - 1) - 2 + more;
        AUTOFREE char *zeroes = mem_zalloc(room);
        char name[256];

        str_addn(&ext, LIT(SNI "\x00\x15"));
        add_number(&ext, room - ext.len - 2, 2);
        str_addn(&ext, zeroes, room - ext.len);
        add_body(ext.p, ext.len, &body);
        wrap(body.p, body.len, 16384, &s);
        CHECK(s.len == HELLO_MAX + more, "%zu", s.len);
        CHECK(hello_read((const uint8_t *)s.p, s.len, name) == (more ? HELLO_BAD : HELLO_NAME),
              "%zu bytes", s.len);
        CHECK(hello_read((const uint8_t *)s.p, 1000, name) == (more ? HELLO_BAD : HELLO_MORE),
              "the first of %zu bytes", s.len);
        str_reset(&s); /* the headers of small records count too */
        wrap(body.p, body.len, 1000, &s);
        CHECK(hello_read((const uint8_t *)s.p, s.len, name) == HELLO_BAD, "in small records");
        CHECK(hello_read((const uint8_t *)s.p, HELLO_MAX, name) == HELLO_BAD, "in small records");
    }
}

int main(void)
{
    test_rows();
    test_limit();
    return check_done();
}
