#include "oci/ref.h"

#include <string.h>

#include "base/str.h"

enum { MAX_NAME = 255, MAX_TAG = 128 };

#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

/* [a-z0-9]+ with one '.', one or two '_' or any number of '-' in between. */
static bool component_valid(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n) {
        size_t word = strspn(p + i, LOWER DIGITS), sep;
        if (!word)
            return false;
        i += word;
        if (i >= n)
            return i == n;
        sep = p[i] == '.' ? 1 : p[i] == '_' ? (p[i + 1] == '_' ? 2 : 1) : strspn(p + i, "-");
        if (!sep)
            return false;
        i += sep;
    }
    return false;
}

/* Letters, digits, inner '.' and '-', then perhaps :PORT. */
static bool host_valid(const char *p, size_t n)
{
    size_t name = strspn(p, LOWER UPPER DIGITS ".-");
    size_t port = name < n && p[name] == ':' ? strspn(p + name + 1, DIGITS) : 0;

    if (!name || strchr(".-", p[0]) || strchr(".-", p[name - 1]) || memmem(p, name, "..", 2))
        return false;
    return name == n || (port && port <= 5 && name + 1 + port == n);
}

/* docker's rule: the first component is a host when it could not be a plain name. */
static bool is_host_part(const char *p, size_t n)
{
    return memchr(p, '.', n) || memchr(p, ':', n) || (n == 9 && !memcmp(p, "localhost", 9));
}

static bool name_valid(const char *name)
{
    const char *p = name, *slash = strchr(name, '/');

    if (slash && is_host_part(p, (size_t)(slash - p))) {
        if (!host_valid(p, (size_t)(slash - p)))
            return false;
        p = slash + 1;
    }
    for (;; p = slash + 1) {
        slash = strchr(p, '/');
        if (!component_valid(p, slash ? (size_t)(slash - p) : strlen(p)))
            return false;
        if (!slash)
            return true;
    }
}

static bool tag_valid(const char *tag)
{
    size_t n = strlen(tag);
    return n && n <= MAX_TAG && !strchr(".-", tag[0]) && strspn(tag, LOWER UPPER DIGITS "_.-") == n;
}

int ref_parse(const char *text, struct ref *ret, struct err **e)
{
    const char *slash = strrchr(text, '/');
    const char *colon = strchr(slash ? slash : text, ':');
    AUTOFREE char *name = colon ? str_printf("%.*s", (int)(colon - text), text) : str_dup(text);
    const char *tag = colon ? colon + 1 : "latest";

    if (strlen(text) > MAX_NAME + MAX_TAG + 1 || strlen(name) > MAX_NAME)
        return err_new(e, ERR_INVALID, "image name '%.60s...' is longer than %d characters", text,
                       MAX_NAME);
    if (strchr(text, '@') || !strcmp(name, "sha256"))
        return err_new(e, ERR_INVALID,
                       "image name '%s' holds a digest; a name like 'debian:12' is wanted", text);
    if (!name_valid(name))
        return err_new(e, ERR_INVALID,
                       "image name '%s' is not valid: lower-case letters, digits and . _ - "
                       "between them, like 'debian:12' or 'team/tools'",
                       text);
    if (!tag_valid(tag))
        return err_new(e, ERR_INVALID,
                       "tag '%s' of image '%s' is not valid: letters, digits, _ . -, at most %d",
                       tag, name, MAX_TAG);
    ret->name = TAKE_PTR(name);
    ret->tag = str_dup(tag);
    return 0;
}

char *ref_text(const struct ref *r)
{
    return str_printf("%s:%s", r->name, r->tag);
}

bool ref_is_host(const char *text)
{
    return str_eq(text, "host") || str_eq(text, "host:latest");
}

void ref_free_p(struct ref *r)
{
    free(r->name);
    free(r->tag);
    *r = (struct ref){ 0 };
}
