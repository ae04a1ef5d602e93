/* runtime/change/scan.c - what must not slip through in added text: secrets, characters that hide. */
#include <ctype.h>
#include <string.h>

#include "runtime/change/content.h"

/* A prefix that nothing else has, followed by at least `least` characters of a class. */
static const struct {
    const char *prefix;
    size_t least;
    const char *extra; /* beside letters and digits */
    const char *what;
} tokens[] = {
    { "AKIA", 16, "", "an AWS access key" },      { "ASIA", 16, "", "an AWS access key" },
    { "ghp_", 30, "", "a GitHub token" },         { "gho_", 30, "", "a GitHub token" },
    { "ghs_", 30, "", "a GitHub token" },         { "ghu_", 30, "", "a GitHub token" },
    { "github_pat_", 30, "_", "a GitHub token" }, { "glpat-", 18, "-_", "a GitLab token" },
    { "xoxb-", 20, "-", "a Slack token" },        { "xoxp-", 20, "-", "a Slack token" },
    { "sk-ant-", 24, "-_", "an API key" },        { "sk-proj-", 24, "-_", "an API key" },
    { "sk_live_", 20, "", "an API key" },         { "rk_live_", 20, "", "an API key" },
    { "AIza", 35, "-_", "an API key" },           { "npm_", 34, "", "an npm token" },
    { "pypi-AgE", 40, "-_", "a PyPI token" },     { "hf_", 30, "", "an API key" },
    { "dop_v1_", 40, "", "an API key" },          { "SG.", 40, "-_.", "an API key" },
};

static bool run_of(const char *p, size_t n, size_t least, const char *extra)
{
    size_t i = 0;
    while (i < n && i < least && p[i] && (isalnum((unsigned char)p[i]) || strchr(extra, p[i])))
        i++;
    return i >= least;
}

static const char *token_at(const char *p, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(tokens); i++) {
        size_t k = strlen(tokens[i].prefix);
        if (n >= k + tokens[i].least && memcmp(p, tokens[i].prefix, k) == 0 &&
            run_of(p + k, n - k, tokens[i].least, tokens[i].extra))
            return tokens[i].what;
    }
    return NULL;
}

static const char *find_secret(const char *p, size_t n)
{
    static const char begin[] = "-----BEGIN ", key[] = "PRIVATE KEY";
    const char *at = memmem(p, n, begin, sizeof begin - 1), *what;

    if (at &&
        memmem(at, n - (size_t)(at - p) < 64 ? n - (size_t)(at - p) : 64, key, sizeof key - 1))
        return "a private key";
    for (size_t i = 0; i < n; i++)
        if (strchr("AgxsrnphdS", p[i]) && p[i] && (i == 0 || !isalnum((unsigned char)p[i - 1])) &&
            (what = token_at(p + i, n - i)))
            return what;
    return NULL;
}

static bool ascii_at(const char *p, size_t n, size_t i)
{
    return i < n && (unsigned char)p[i] < 0x80 && (unsigned char)p[i] > ' ';
}

/* The first character of the text that a reader can't see, or that moves others; 0: none. Joiners are part of
 * many scripts and of emoji: they count between ASCII characters only. */
static uint32_t find_invisible(const char *p, size_t n)
{
    for (size_t i = 0; i < n;) {
        unsigned char b = (unsigned char)p[i];
        uint32_t c = b;
        size_t k = 1;
        if (b >= 0x80 && !(k = utf8_decode(p + i, n - i, &c))) {
            i++;
            continue;
        }
        if ((b < ' ' && !strchr("\t\n\r\f", b)) || b == 0x7f)
            return c ? c : 0x2400; /* a NUL is shown as its symbol */
        if ((c >= 0x80 && c < 0xa0) || (c >= 0x202a && c <= 0x202e) ||
            (c >= 0x2066 && c <= 0x2069) || c == 0x61c || c == 0x200b || c == 0x200e ||
            c == 0x200f || (c >= 0x2060 && c <= 0x2064) || c == 0xad || c == 0x180e ||
            (c == 0xfeff && i > 0) || (c >= 0xe0000 && c <= 0xe007f) || c == 0x3164)
            return c;
        if ((c == 0x200c || c == 0x200d) && i > 0 && ascii_at(p, n, i - 1) && ascii_at(p, n, i + k))
            return c;
        i += k;
    }
    return 0;
}

static bool tells_to_skip(const char *p, size_t n)
{
    static const char *const words[] = {
        "@pytest.mark.skip", "@unittest.skip", "pytest.skip(", "it.skip(",   "test.skip(",
        "describe.skip(",    "xit(",           "xdescribe(",   "t.Skip(",    "#[ignore]",
        "@Ignore",           "@Disabled",      "it.only(",     "test.only(", "describe.only(",
    };
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        const char *at = memmem(p, n, words[i], strlen(words[i]));
        /* "exit(" is no "xit(" */
        if (at &&
            (at == p || !isalnum((unsigned char)at[-1]) || !isalpha((unsigned char)words[i][0])))
            return true;
    }
    return false;
}

int64_t content_tests(const char *p, size_t n)
{
    static const char *const words[] = { "def test", "func Test", "it(",     "test(",   "#[test]",
                                         "@Test",    "TEST(",     "TEST_F(", "fn test_" };
    size_t blank = 0;

    while (blank < n && (p[blank] == ' ' || p[blank] == '\t'))
        blank++;
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        size_t k = strlen(words[i]);
        if (n - blank >= k && memcmp(p + blank, words[i], k) == 0)
            return 1;
    }
    return 0;
}

void content_scan(const char *p, size_t n, struct content_found *io)
{
    if (!io->secret)
        io->secret = find_secret(p, n);
    if (!io->invisible)
        io->invisible = find_invisible(p, n);
    if (!io->skipped_test)
        io->skipped_test = tells_to_skip(p, n);
}
