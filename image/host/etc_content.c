#include "image/host/etc_priv.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static bool word_char(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.';
}

static bool secret_word(const char *w, size_t n)
{
    static const char *const words[] = { "password",   "passwd",       "passphrase", "secret",
                                         "token",      "api_key",      "apikey",     "api-key",
                                         "access_key", "access-key",   "accesskey",  "private_key",
                                         "credential", "authorization" };
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        size_t m = strlen(words[i]);
        for (size_t k = 0; k + m <= n; k++)
            if (strncasecmp(w + k, words[i], m) == 0)
                return true;
    }
    return false;
}

/* Whether a line sets something with a telling name to a value that is written out there. */
static bool line_secret(const char *p, const char *end)
{
    while (p < end && isspace((unsigned char)*p))
        p++;
    if (p == end || *p == '#' || *p == ';' || (end - p > 1 && p[0] == '/' && p[1] == '/'))
        return false;
    while (p < end) {
        const char *w = p;
        while (p < end && word_char(*p))
            p++;
        size_t n = (size_t)(p - w);
        if (n == 0) {
            p++;
            continue;
        }
        if (!secret_word(w, n))
            continue;
        const char *v = p;
        while (v < end && (isspace((unsigned char)*v) || *v == '"' || *v == '\'' || *v == ']'))
            v++;
        /* "passwd: files" is nsswitch.conf */
        if (v == end || (*v != '=' && *v != ':') ||
            (*v == ':' && n == 6 && strncmp(w, "passwd", 6) == 0))
            continue;
        v++;
        while (v < end && (isspace((unsigned char)*v) || strchr("\"'=:>", *v)))
            v++;
        const char *q = v;
        while (q < end && !isspace((unsigned char)*q) && *q != '"' && *q != '\'')
            q++;
        if (q - v >= 4 && *v != '$' && *v != '%' && *v != '<' && *v != '{' && *v != '/')
            return true;
    }
    return false;
}

/* Takes USER:PASSWORD@ out of every URL; false when a URL can't be read that way. */
static bool strip_urls(char *t, size_t *len)
{
    char *p = t;
    while ((p = memmem(p, *len - (size_t)(p - t), "://", 3))) {
        char *scheme = p, *end = t + *len, *host = p + 3, *at = NULL, *colon = NULL, *q;
        while (scheme > t && (word_char(scheme[-1]) || scheme[-1] == '+'))
            scheme--;
        for (q = host; q < end && !isspace((unsigned char)*q) && !strchr("/\"'<>?#)", *q); q++) {
            if (*q == '@')
                at = q;
            else if (*q == ':' && !colon)
                colon = q;
        }
        bool ssh = memmem(scheme, (size_t)(p - scheme), "ssh", 3) && !(colon && colon < at);
        p = host;
        if (at && !ssh && at > host) {
            memmove(host, at + 1, (size_t)(end - at - 1));
            *len -= (size_t)(at + 1 - host);
            t[*len] = '\0';
        } else if (!at && colon && colon + 1 < q && *host != '[' &&
                   !isdigit((unsigned char)colon[1]) && !strchr("$%{*:", colon[1])) {
            return false; /* a password with a slash in it looks like this */
        }
    }
    return true;
}

static bool has_private_key(const char *t, size_t len)
{
    const char *p = t, *end = t + len;
    while ((p = memmem(p, (size_t)(end - p), "-----BEGIN", 10))) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        if (memmem(p, (size_t)((nl ? nl : end) - p), "PRIVATE", 7))
            return true;
        p += 10;
    }
    return memmem(t, len, "PuTTY-User-Key-File", 19) != NULL;
}

/* An element with a secret that is not in a comment (maven's settings show one in a comment). */
static bool xml_secret(const char *t, size_t len)
{
    static const char *const tags[] = { "<password>", "<passphrase>", "<privateKey>" };
    const char *p = t, *end = t + len;
    while (p < end) {
        const char *comment = memmem(p, (size_t)(end - p), "<!--", 4);
        const char *stop = comment ? comment : end;
        for (size_t i = 0; i < ARRAY_LEN(tags); i++)
            if (memmem(p, (size_t)(stop - p), tags[i], strlen(tags[i])))
                return true;
        if (!comment)
            break;
        p = memmem(comment, (size_t)(end - comment), "-->", 3);
        if (!p)
            break;
    }
    return false;
}

bool etc_clean(const char *path, char *text, size_t *len)
{
    if (*len == 0)
        return true;
    if (has_private_key(text, *len))
        return false;
    if (memchr(text, '\0', *len))
        return true; /* not text: caches and key stores */
    if (!strip_urls(text, len) || xml_secret(text, *len))
        return false;
    /* its examples of requests have passwords in them */
    if (str_ends(path, "openssl.cnf"))
        return true;
    for (const char *p = text, *end = text + *len; p < end;) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        if (line_secret(p, nl ? nl : end))
            return false;
        p = nl ? nl + 1 : end;
    }
    return true;
}

static bool git_line_dropped(const char *p, size_t n)
{
    static const char *const keys[] = { "extraheader", "cookiefile", "sslkey",  "sslcert",
                                        "askpass",     "helper",     "smtppass" };
    while (n && isspace((unsigned char)*p)) {
        p++;
        n--;
    }
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (n >= strlen(keys[i]) && strncasecmp(p, keys[i], strlen(keys[i])) == 0)
            return true;
    return line_secret(p, p + n);
}

static bool git_section_dropped(const char *p, size_t n)
{
    static const char *const sections[] = { "credential", "include", "includeif", "sendemail",
                                            "imap" };
    for (size_t i = 0; i < ARRAY_LEN(sections); i++) {
        size_t m = strlen(sections[i]);
        if (n > m && strncasecmp(p, sections[i], m) == 0 && !word_char(p[m]))
            return true;
        if (n > m && strncasecmp(p, sections[i], m) == 0 && p[m] == '.')
            return true;
    }
    return false;
}

char *etc_gitconfig(const char *host, size_t len)
{
    AUTOSTR struct str s = STR_INIT;
    const char *p = host ? host : "", *end = p + (host ? len : 0);
    bool drop = false, more = false, cut = false;

    while (p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p)), *stop = nl ? nl : end, *c = p;
        while (c < stop && isspace((unsigned char)*c))
            c++;
        if (!more) {
            if (c < stop && *c == '[') {
                c++;
                while (c < stop && isspace((unsigned char)*c))
                    c++;
                drop = git_section_dropped(c, (size_t)(stop - c));
                const char *close = memchr(c, ']', (size_t)(stop - c));
                cut = drop || (close && git_line_dropped(close + 1, (size_t)(stop - close - 1)));
            } else {
                cut = drop || git_line_dropped(c, (size_t)(stop - c));
            }
        }
        more = stop > p && stop[-1] == '\\';
        if (!cut) {
            str_addn(&s, p, (size_t)(stop - p));
            str_addc(&s, '\n');
        }
        p = stop + 1;
    }
    if (s.len && (!etc_clean("gitconfig", s.p, &s.len) || memchr(s.p, '\0', s.len)))
        str_reset(&s);
    /* checkStat: inside, inode numbers and perhaps owners are others than in the index; without it
     * the first `git status` reads every file. safe.directory: whoever owns the project, the sandbox
     * is the boundary; user 0 inside would be refused otherwise. */
    str_add(&s, "[core]\n\tcheckStat = minimal\n[safe]\n\tdirectory = *\n");
    return str_take(&s);
}
