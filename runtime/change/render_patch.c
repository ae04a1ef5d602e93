/* runtime/change/render_patch.c - patches that git apply takes, and the same made safe for a terminal. */
#include <string.h>

#include "runtime/change/content.h"
#include "runtime/change/render.h"

enum { MAX_SHOWN = 2000 }; /* bytes of a line on a terminal */

static unsigned git_mode(mode_t m)
{
    return S_ISLNK(m) ? 0120000 : m & S_IXUSR ? 0100755 : 0100644;
}

static bool has_patch(mode_t m)
{
    return !m || S_ISREG(m) || S_ISLNK(m);
}

static void add_named(struct str *out, const char *word, const char *prefix, const char *name)
{
    str_add(out, word);
    quote_name(out, prefix, name);
    str_addc(out, '\n');
}

/* "diff --git" and the lines about mode and name. */
static void add_header(const struct change *ch, const char *old, struct str *out)
{
    str_add(out, "diff --git ");
    quote_name(out, "a/", old);
    str_addc(out, ' ');
    quote_name(out, "b/", ch->path);
    str_addc(out, '\n');
    if (!ch->old_mode)
        str_addf(out, "new file mode %o\n", git_mode(ch->new_mode));
    else if (!ch->new_mode)
        str_addf(out, "deleted file mode %o\n", git_mode(ch->old_mode));
    else if (git_mode(ch->old_mode) != git_mode(ch->new_mode))
        str_addf(out, "old mode %o\nnew mode %o\n", git_mode(ch->old_mode), git_mode(ch->new_mode));
    if (ch->old_path) {
        add_named(out, "rename from ", "", ch->old_path);
        add_named(out, "rename to ", "", ch->path);
    }
}

static void add_index(const struct change *ch, const char *old, size_t old_len, const char *new,
                      size_t new_len, struct str *out)
{
    char a[TEXT_BLOB_HEX + 1] = "", b[TEXT_BLOB_HEX + 1] = "";

    memset(a, '0', TEXT_BLOB_HEX);
    memset(b, '0', TEXT_BLOB_HEX);
    if (ch->old_mode)
        text_blob_id(old, old_len, a);
    if (ch->new_mode)
        text_blob_id(new, new_len, b);
    str_addf(out, "index %s..%s", a, b);
    if (ch->old_mode && git_mode(ch->old_mode) == git_mode(ch->new_mode))
        str_addf(out, " %o", git_mode(ch->new_mode));
    str_addc(out, '\n');
}

/* The two lines that name the files; git ends a name that has a space with a tab. */
static void add_files(const struct change *ch, const char *old, struct str *out)
{
    if (ch->old_mode) {
        add_named(out, "--- ", "a/", old);
        if (strchr(old, ' ') && out->p[out->len - 2] != '"') {
            out->p[out->len - 1] = '\t';
            str_addc(out, '\n');
        }
    } else {
        str_add(out, "--- /dev/null\n");
    }
    if (ch->new_mode) {
        add_named(out, "+++ ", "b/", ch->path);
        if (strchr(ch->path, ' ') && out->p[out->len - 2] != '"') {
            out->p[out->len - 1] = '\t';
            str_addc(out, '\n');
        }
    } else {
        str_add(out, "+++ /dev/null\n");
    }
}

static void name_binary(const struct change *ch, const char *old, struct str *out)
{
    str_add(out, "Binary files ");
    if (ch->old_mode)
        quote_name(out, "a/", old);
    else
        str_add(out, "/dev/null");
    str_add(out, " and ");
    if (ch->new_mode)
        quote_name(out, "b/", ch->path);
    else
        str_add(out, "/dev/null");
    str_add(out, " differ\n");
}

/* Bytes as git writes them; what can't be read, or is too large for that, is only named. */
static int add_binary(const struct changeset *c, const struct change *ch, const char *old,
                      struct str *out, struct err **e)
{
    AUTOFREE char *a = NULL, *b = NULL;
    CLEANUP(err_free_p) struct err *why = NULL;
    size_t an, bn;

    if ((ch->flags & CHANGE_UNREADABLE) ||
        content_read(c, ch, false, CONTENT_MAX, &a, &an, &why) < 0 ||
        content_read(c, ch, true, CONTENT_MAX, &b, &bn, &why) < 0) {
        name_binary(ch, old, out);
        return 0;
    }
    add_index(ch, a, an, b, bn, out);
    return text_binary_patch(a, an, b, bn, out, e);
}

static int format_one(const struct changeset *c, const struct change *ch, bool bytes,
                      struct str *out, struct err **e)
{
    CLEANUP(content_diff_free_p) struct content_diff d = { 0 };
    CLEANUP(err_free_p) struct err *why = NULL;
    const char *old = ch->old_path ? ch->old_path : ch->path;
    int rc;

    add_header(ch, old, out);
    if (ch->old_mode && ch->new_mode && strcmp(ch->old_digest, ch->new_digest) == 0)
        return 0;
    if (!content_is_text(ch)) {
        if (bytes)
            return add_binary(c, ch, old, out, e);
        name_binary(ch, old, out);
        return 0;
    }
    if ((rc = content_diff(c, ch, &d, &why)) < 0) {
        if (view_gone(why)) {
            name_binary(ch, old, out);
            return 0;
        }
        if (e)
            *e = TAKE_PTR(why);
        return rc;
    }
    add_index(ch, d.d.old, d.d.old_len, d.d.new, d.d.new_len, out);
    if (d.d.n_hunks == 0)
        return 0;
    add_files(ch, old, out);
    for (size_t i = 0; i < d.d.n_hunks; i++)
        text_format_hunk(&d.d, &d.d.hunks[i], out);
    return 0;
}

int patch_format(const struct changeset *c, const struct change *ch, bool bytes, struct str *out,
                 struct err **e)
{
    struct change half = *ch;
    int rc;

    if (!has_patch(ch->old_mode) || !has_patch(ch->new_mode)) {
        /* a device or the like came or went: a patch has the side that is a file */
        bool gone = has_patch(ch->old_mode) && ch->old_mode;
        if (!gone && !(has_patch(ch->new_mode) && ch->new_mode))
            return 0;
        *(gone ? &half.new_mode : &half.old_mode) = 0;
        half.kind = gone ? CHANGE_DELETED : CHANGE_ADDED;
        return format_one(c, &half, bytes, out, e);
    }
    if (ch->kind != CHANGE_TYPE)
        return format_one(c, ch, bytes, out, e);
    half.new_mode = 0;
    half.kind = CHANGE_DELETED;
    if ((rc = format_one(c, &half, bytes, out, e)) < 0)
        return rc;
    half = *ch;
    half.old_mode = 0;
    half.kind = CHANGE_ADDED;
    return format_one(c, &half, bytes, out, e);
}

/* --- for a terminal ------------------------------------------------------------------------------- */

static enum render_colour line_colour(const char *p, size_t n, bool *in_hunk)
{
    if (n >= 2 && !memcmp(p, "@@", 2)) {
        *in_hunk = true;
        return C_CYAN;
    }
    if (n >= 5 && !memcmp(p, "diff ", 5))
        *in_hunk = false;
    if (!*in_hunk)
        return C_BOLD;
    return *p == '+' ? C_GREEN : *p == '-' ? C_RED : C_NONE;
}

static void show_line(const struct render *r, const char *p, size_t n, enum render_colour colour)
{
    AUTOSTR struct str shown = STR_INIT;
    size_t part = n > MAX_SHOWN ? MAX_SHOWN : n;

    /* not in the middle of a character */
    while (part < n && part > MAX_SHOWN - 4 && ((unsigned char)p[part] & 0xc0) == 0x80)
        part--;
    for (size_t i = 0; i < part;) {
        size_t k = 0;
        while (i + k < part && p[i + k] != '\t')
            k++;
        str_add_escaped(&shown, p + i, k);
        i += k;
        for (; i < part && p[i] == '\t'; i++)
            str_addc(&shown, '\t');
    }
    if (part < n)
        str_addf(&shown, " ... (%zu more bytes; see petri diff --patch | less)", n - part);
    fprintf(r->out, "%s%s%s\n", render_on(r, colour), shown.p ? shown.p : "",
            colour == C_NONE ? "" : render_off(r));
}

static void show(const struct render *r, const struct str *patch)
{
    bool in_hunk = false;

    for (const char *p = patch->p, *end = p + patch->len; p < end;) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t n = nl ? (size_t)(nl - p) : (size_t)(end - p);
        show_line(r, p, n, line_colour(p, n, &in_hunk));
        p += n + 1;
    }
}

int render_patch(const struct render *r, const struct changeset *c, struct err **e)
{
    for (size_t i = 0; i < c->n && !ferror(r->out); i++) {
        AUTOSTR struct str patch = STR_INIT;
        int rc = patch_format(c, &c->v[i], !r->terminal, &patch, e);
        if (rc < 0)
            return rc;
        if (!patch.len)
            continue;
        if (r->terminal)
            show(r, &patch);
        else
            fwrite(patch.p, 1, patch.len, r->out);
    }
    return 0;
}
