/* runtime/change/git_text.c - line diffs, by libgit2's xdiff. */
#include <git2.h>
#include <limits.h>
#include <string.h>

#include "runtime/change/text.h"

bool text_is_binary(const char *p, size_t n)
{
    return n && memchr(p, 0, n < 8000 ? n : 8000) != NULL;
}

void text_blob_id(const char *p, size_t n, char ret[TEXT_BLOB_HEX + 1])
{
    git_oid id;
    if (git_odb_hash(&id, p, n, GIT_OBJECT_BLOB) < 0)
        memset(&id, 0, sizeof id);
    git_oid_tostr(ret, TEXT_BLOB_HEX + 1, &id);
}

void text_diff_free_p(struct text_diff *d)
{
    for (size_t i = 0; i < d->n_hunks; i++)
        free(d->hunks[i].heading);
    free(d->hunks);
    free(d->lines);
    *d = (struct text_diff){ 0 };
}

static void *grow(void *v, size_t n, size_t size)
{
    if ((n & (n - 1)) == 0 && !(v = realloc(v, (n ? n * 2 : 1) * size)))
        abort();
    return v;
}

/* "@@ -1,2 +3,4 @@ heading\n" */
static char *heading_of(const git_diff_hunk *h)
{
    const char *end = memmem(h->header, h->header_len, " @@", 3), *p = end ? end + 3 : NULL;
    size_t n = p ? (size_t)(h->header + h->header_len - p) : 0;

    while (n && (p[n - 1] == '\n' || p[n - 1] == '\r'))
        n--;
    if (n && *p == ' ') {
        p++;
        n--;
    }
    return n ? mem_dup(p, n + 1) : NULL;
}

static int on_hunk(const git_diff_delta *delta, const git_diff_hunk *h, void *arg)
{
    struct text_diff *d = arg;
    struct text_hunk t = { h->old_start, h->old_lines, h->new_start, h->new_lines, d->n_lines, 0,
                           heading_of(h) };

    if (t.heading)
        t.heading[strcspn(t.heading, "\r\n")] = '\0';
    d->hunks = grow(d->hunks, d->n_hunks, sizeof *d->hunks);
    d->hunks[d->n_hunks++] = t;
    return 0;
}

static int on_line(const git_diff_delta *delta, const git_diff_hunk *h, const git_diff_line *l,
                   void *arg)
{
    struct text_diff *d = arg;
    bool minus = l->origin == GIT_DIFF_LINE_DELETION;
    const char *base = minus ? d->old : d->new;
    size_t len = minus ? d->old_len : d->new_len, off;

    if (!d->n_hunks ||
        (!minus && l->origin != GIT_DIFF_LINE_ADDITION && l->origin != GIT_DIFF_LINE_CONTEXT))
        return 0; /* remarks about a missing newline: the text itself says so */
    /* lines point into the texts they were made from; anything else would be another libgit2 */
    if ((uintptr_t)l->content < (uintptr_t)base || (uintptr_t)l->content > (uintptr_t)base + len)
        return -1;
    off = (size_t)(l->content - base);
    const char *nl = memchr(base + off, '\n', len - off);
    struct text_line t = { l->origin, nl == NULL, off,
                           nl ? (size_t)(nl - base) + 1 - off : len - off };
    d->lines = grow(d->lines, d->n_lines, sizeof *d->lines);
    d->lines[d->n_lines++] = t;
    d->hunks[d->n_hunks - 1].n++;
    d->added += l->origin == GIT_DIFF_LINE_ADDITION;
    d->deleted += minus;
    return 0;
}

static int failed(struct err **e, const char *what)
{
    const git_error *why = git_error_last();
    return err_new(e, ERR_FAILED, "%s: %s", what, why ? why->message : "no reason");
}

int text_binary_patch(const char *old, size_t old_len, const char *new, size_t new_len,
                      struct str *out, struct err **e)
{
    git_diff_options o;
    git_patch *patch = NULL;
    git_buf buf = { 0 };
    const char *from = NULL;

    git_diff_options_init(&o, GIT_DIFF_OPTIONS_VERSION);
    o.flags = GIT_DIFF_FORCE_BINARY | GIT_DIFF_SHOW_BINARY;
    if (git_patch_from_buffers(&patch, old, old_len, NULL, new, new_len, NULL, &o) == 0 &&
        git_patch_to_buf(&buf, patch) == 0)
        from = strstr(buf.ptr, "GIT binary patch\n");
    if (from)
        str_add(out, from);
    git_buf_dispose(&buf);
    git_patch_free(patch);
    return from ? 0 : failed(e, "a patch of bytes");
}

int text_diff(const char *old, size_t old_len, const char *new, size_t new_len, unsigned context,
              struct text_diff *ret, struct err **e)
{
    CLEANUP(text_diff_free_p)
    struct text_diff d = { old, new, old_len, new_len, NULL, 0, NULL, 0, 0, 0 };
    git_diff_options o;

    git_diff_options_init(&o, GIT_DIFF_OPTIONS_VERSION);
    o.flags = GIT_DIFF_FORCE_TEXT | GIT_DIFF_INDENT_HEURISTIC;
    o.context_lines = context;
    if (git_diff_buffers(old, old_len, NULL, new, new_len, NULL, &o, NULL, NULL, on_hunk, on_line,
                         &d) < 0)
        return failed(e, "compare two texts");
    *ret = d;
    d = (struct text_diff){ 0 };
    return 0;
}
