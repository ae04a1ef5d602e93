/* What a sandbox may do to the terminal outside, whole and cut at every position. */
#include "tests/unit/check.h"

#include "base/json.h"
#include "base/termfilter.h"

#define E "\033"
#define SAME NULL /* passes as it is */
#define T50 "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeee"

static const struct {
    const char *in, *want;
} rows[] = {
    /* text */
    { "plain text\r\n\ttab\b\a", SAME },
    { "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80 \xe2\x9c\x9c \xef\xbf\xbd", SAME },
    { "caf\xe9 ole", "caf? ole" },                           /* Latin-1 */
    { "\xe2\x82 x", "? x" },                                 /* cut short */
    { "\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80", "?????????" }, /* overlong, surrogate, too high */
    { "a\x01\x02\x03\x04\x05\x06\x10\x11\x13\x18\x1a\x1c\x7f"
      "b",
      "ab" }, /* ENQ, XON ... */
    /* colours and attributes */
    { E "[m" E "[0m" E "[1;31m" E "[38;5;208m" E "[48;2;1;2;3m" E "[4:3m" E "[58:2::1:2:3m", SAME },
    { E "[0;1;3;4;38;2;255;255;255;48;2;255;255;255m", SAME },
    /* less, vim, htop, tmux, readline: what their terminfo entries say */
    { E "[?1049h" E "[22;0;0t" E "[?1h" E "=" E "[H" E "[2J" E "[K", SAME },
    { E "[?2004h" E "[?12l" E "[?25h" E "[?25l" E "[2 q" E "[?1l" E ">" E "[23;0;0t", SAME },
    { E "[?1000h" E "[?1002h" E "[?1006h" E "[?1015h" E "[?1003l" E "[?1004h" E "[?1007h", SAME },
    { E "[3;20r" E "[r" E "7" E "8" E "M" E "D" E "E" E "H" E "[s" E "[u", SAME },
    { E "[5@" E "[2P" E "[3L" E "[3M" E "[4X" E "[2S" E "[2T" E "[10G" E "[7d" E "[3g" E "[Z",
      SAME },
    { E "[12;40H" E "[12;40f" E "[A" E "[2B" E "[3C" E "[4D" E "[80b" E "[J" E "[1K" E "[4h" E
        "[4l",
      SAME },
    { E "(0lqqk" E "(B" E ")0\016x\017", SAME },
    { E "[!p" E "[?3;4l" E "[4l" E ">", E "[!p" E "[4l" E ">" }, /* rs2 of xterm: no 132 columns */
    { E "[?25;3;1h" E "[?3;40h", E "[?25;1h" },
    { E "[34h" E "[?25h" E "[20h" E "[2h", E "[34h" E "[?25h" },
    { E "[3J" E "[2J" E "c", E "[2J" }, /* the scrollback stays */
    /* titles */
    { E "]0;make test\a" E "]2;x\a" E "]1;icon\a", SAME },
    { E "]0;st" E "\\"
        "x",
      E "]0;st\ax" },
    { E "]0;a\x01\x05"
        "b\xc2\x9b"
        "c\xff\xc3\xa9\a",
      E "]0;abc\xc3\xa9\a" },
    { E "]2;" T50 T50 "\a.", E "]2;" T50 "aaaaa\a." }, /* cut, not dropped */
    { E "]0;lost\x18"
        "a" E "]0;lost\x1a"
        "b" E "]0;lost" E "[1mc",
      "ab" E "[1mc" },
    { E "]02;x\a" E "]0x;y\a" E "];z\a" E "]l title" E "\\.", "." },
    /* other strings */
    { E "]52;c;QUJD\a.", "." },
    { E "]52;c;?" E "\\.", "." },
    { E "]8;;file:///etc\aname" E "]8;;\a", "name" },
    { E "]10;?\a" E "]11;?" E "\\" E "]4;1;rgb:0/0/0\a" E "]104\a" E "]7;file://h/\a" E "]9;hi\a" E
        "]1337;File=:AA==\a" E "]133;A\a" E "]777;notify;a;b\a.",
      "." },
    { E "P+q544e" E "\\" E "P$qm" E "\\" E "Pq#0" E "\\.", "." },
    { E "_Gi=1,a=q;AA==" E "\\" E "^pm" E "\\" E "Xsos" E "\\" E "kscreen" E "\\.", "." },
    { E "]52;c;QUJD" E "[31mred", E "[31mred" }, /* ESC ends a string */
    { E "]52;c;QUJD\x18"
        "can" E "P1\x1a"
        "sub" E "]52;c;x\x9cst",
      "cansubst" },
    { E "]P1ff0000x" E "]Ry" E "]P1ff", "xy" }, /* Linux palette */
    { E "]52;c;never ends \r\n more \xff\xe2\x82\xac ...", "" },
    /* requests for an answer, and answers */
    { E "[c" E "[0c" E "[>c" E "[=c" E "[>0;10;1c" E "[?1;2c" E "Z", "" },
    { E "[5n" E "[6n" E "[?6n" E "[?15n" E "[0n" E "[12;40R" E "[>4n", "" },
    { E "[?2026$p" E "[4$p" E "[>q" E "[>0q" E "[x" E "[1x" E "[1$w" E "[&u" E "[?u" E "[1*y", "" },
    { E "[14t" E "[18t" E "[19t" E "[20t" E "[21t" E "[8;50;132t" E "[2t" E "[t" E "[22;3t" E
        "[22:0t",
      "" },
    /* what changes more than the picture */
    { E "[5i" E "[?5i" E "[i" E "[4i", "" }, /* print */
    { E "[>4;2m" E "[>1u" E "[<u" E "[=1u" E "[?1u" E "[>4n" E "[>1p",
      "" }, /* keyboard protocols */
    { E "[62;1\"p" E " F" E " G" E "%@" E "%G" E "[1\"q" E "#8" E "#3" E "(A" E "*0" E "n" E "o" E
        "N",
      "" },
    { E "[?1001h" E "[?2h" E "[?8h" E "[?40h" E "[?67h" E "[?69h" E "[?80h" E "[?1034h" E
        "[?2026h" E "[?2031h" E "[?2048h" E "[?5W" E "[?1049s" E "[?1049r",
      "" },
    { E "[1;2s" E "[1u" E "[1;2;3;4;5T" E "[1;1;9;9$z" E "[1;1;9;9$x" E "[2'}" E "[2 @" E "[4:1H" E
        "[[A",
      "A" },
    { E "[99999b" E "[4294967297C" E "[00000000000000000007C", E "[00000000000000000007C" },
    /* 8-bit controls, bare and as UTF-8: without their introducer the rest is text */
    { "\x9b"
      "31m \xc2\x9b"
      "6n \x9d"
      "52;c;x\a \x90q \x85\x8d",
      "?31m ?6n ?52;c;x\a ?q ??" },
    { "\xe2\x9b"
      "6n \xe2\x9b\x9b"
      "6n",
      "?6n \xe2\x9b\x9b"
      "6n" },
    { E "[3\xc3\xa9" E "\xe2\x82\xac" E "[\xff"
        "m",
      "\xc3\xa9\xe2\x82\xac?m" },
    /* controls inside a sequence, broken and over-long ones */
    { E "[3\b1m" E "[3\n1m" E "[3\x05"
        "1m",
      "\b" E "[31m\n" E "[31m" E "[31m" },
    { E "[3" E "[1m" E E "[1m" E "[3\x18m" E "[3\x1am", E "[1m" E "[1mmm" },
    { E "[3?1h" E "[?3?h" E "[ !p" E "[3!4p" E "(((B" E "!!!!B.", "." },
    { E "[0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0;0m.", "." },
    { E "[;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;m" E "[;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;m.",
      E "[;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;;m." },
    { "x" E "[", "x" },
    { "x" E, "x" },
    { "x\xe2\x82", "x" },
    { "x" E "]0;t", "x" },
};

/* Filters in up to three pieces; every piece keeps to its room. */
static size_t filter(const char *in, size_t n, size_t a, size_t b, char *out)
{
    struct termfilter f;
    const size_t cut[] = { 0, a, b, n };
    size_t len = 0;

    termfilter_init(&f);
    for (int i = 0; i < 3; i++) {
        size_t piece = cut[i + 1] - cut[i];
        AUTOFREE char *exact = malloc(piece + TERMFILTER_ROOM);
        AUTOFREE char *src = malloc(piece + 1);
        memcpy(src, in + cut[i], piece);
        size_t got = termfilter_run(&f, src, piece, exact);
        CHECK(got <= piece + TERMFILTER_ROOM, "%zu of %zu", got, piece);
        memcpy(out + len, exact, got);
        len += got;
        CHECK(len <= cut[i + 1], "grows: %zu from %zu", len, cut[i + 1]);
    }
    out[len] = '\0';
    return len;
}

static void table(void)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *in = rows[i].in, *want = rows[i].want ? rows[i].want : in;
        size_t n = strlen(in);
        char out[1024], again[1024];
        for (size_t a = 0; a <= n; a++) {
            for (size_t b = a; b <= n; b += n - a > 16 ? 7 : 1) {
                filter(in, n, a, b, out);
                if (strcmp(out, want) != 0) {
                    CHECK(0, "row %zu cut at %zu and %zu", i, a, b);
                    CHECK_STR(out, want);
                    a = b = n;
                }
            }
        }
        CHECK(utf8_valid(out, strlen(out)), "row %zu", i);
        filter(out, strlen(out), 0, 0, again);
        CHECK_STR(again, out);
    }
}

static void every_byte(void)
{
    char in[4] = "a?b", out[4 + TERMFILTER_ROOM];
    for (int c = 0; c < 256; c++) {
        in[1] = (char)c;
        struct termfilter f;
        termfilter_init(&f);
        size_t n = termfilter_run(&f, in, 3, out);
        bool shown = (c >= 0x20 && c < 0x7f) || (c >= 7 && c <= 15);
        CHECK(n == (c == 0x1b ? 1 : shown || c >= 0x80 ? 3u : 2u), "byte %02x: %zu", c, n);
        CHECK(n < 3 || (unsigned char)out[1] == (c >= 0x80 ? '?' : c), "byte %02x", c);
    }
}

/* Every final byte with every prefix and intermediate: only the expected ones pass. */
static void every_csi(void)
{
    static const char prefixes[] = "\0<=>?", inters[] = "\0 !\"#$%&'()*+,-./";
    char in[16], out[sizeof in + TERMFILTER_ROOM], passed[64] = "";
    size_t k = 0;

    for (size_t p = 0; p < sizeof prefixes - 1; p++)
        for (size_t m = 0; m < sizeof inters - 1; m++)
            for (int final = 0x40; final < 0x7f; final++) {
                struct termfilter f;
                size_t n = 2;
                memcpy(in, E "[", 2);
                if (prefixes[p])
                    in[n++] = prefixes[p];
                if (inters[m])
                    in[n++] = inters[m];
                in[n++] = (char) final;
                termfilter_init(&f);
                size_t got = termfilter_run(&f, in, n, out);
                CHECK(got == 0 || (got == n && memcmp(in, out, n) == 0), "changed");
                for (size_t i = 2; got && i < n && k < sizeof passed - 1; i++)
                    passed[k++] = in[i];
            }
    passed[k] = '\0';
    CHECK_STR(passed, "@ABCDEFGHIJKLMPSTXZ`abdefgmrsu q!p");
}

static void end(void)
{
    static const struct {
        const char *in, *want;
    } undo[] = {
        { "plain", "" },
        { E "[?1049h" E "[?25l" E "[?1000;1006h" E "[?2004h",
          E "[?25h" E "[?1000l" E "[?1006l" E "[?2004l" E "[?1049l" },
        { E "[?1049h" E "[?25l" E "[?25h" E "[?1049l", "" },
        { E "=" E "[31m" E "[2;5r" E "[4h" E "[5 q" E "(0",
          E "7" E "[r" E "8" E "[4l" E ">" E "[0 q" E "(B\017" E "[0m" },
        { E "=" E ">" E "[4h" E "[4l\016", E "(B\017" },
        { E "]0;cut of", "" },
    };
    char out[1024], fin[TERMFILTER_END + 1];
    struct termfilter f;

    for (size_t i = 0; i < ARRAY_LEN(undo); i++) {
        termfilter_init(&f);
        termfilter_run(&f, undo[i].in, strlen(undo[i].in), out);
        fin[termfilter_end(&f, fin)] = '\0';
        CHECK_STR(fin, undo[i].want);
        CHECK(termfilter_end(&f, fin) == 0, "row %zu: once is enough", i);
    }
    /* everything at once still fits */
    termfilter_init(&f);
    for (int mode = 0; mode < 3000; mode++) {
        int n = snprintf(out, sizeof out, E "[?%d%c", mode, mode == 7 || mode == 25 ? 'l' : 'h');
        char sink[128];
        termfilter_run(&f, out, (size_t)n, sink);
    }
    const char *rest = undo[3].in;
    termfilter_run(&f, rest, strlen(rest), out);
    CHECK(termfilter_end(&f, fin) > 100, "many modes");
}

int main(void)
{
    table();
    every_byte();
    every_csi();
    end();
    return check_done();
}
