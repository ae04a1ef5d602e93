/* runtime/change/text.c - hunks put to use: applied, and written as a patch. */
#include "runtime/change/text.h"

#include <string.h>

/* Where a hunk starts in the old text: after `lines` lines, counted on from a place that is known. */
static size_t skip_lines(const char *p, size_t len, size_t off, int lines)
{
    while (lines-- > 0 && off < len) {
        const char *nl = memchr(p + off, '\n', len - off);
        off = nl ? (size_t)(nl - p) + 1 : len;
    }
    return off;
}

void text_apply(const struct text_diff *d, const bool *take, struct str *ret)
{
    size_t off = 0;
    int line = 1; /* of the old text, at off */

    for (size_t i = 0; i < d->n_hunks; i++) {
        const struct text_hunk *h = &d->hunks[i];
        /* a hunk without old lines names the line before it */
        int at = h->old_lines ? h->old_start : h->old_start + 1;
        size_t from = skip_lines(d->old, d->old_len, off, at - line);
        size_t to = skip_lines(d->old, d->old_len, from, h->old_lines);

        str_addn(ret, d->old + off, from - off);
        if (!take[i])
            str_addn(ret, d->old + from, to - from);
        for (size_t k = h->first; take[i] && k < h->first + h->n; k++) {
            const struct text_line *l = &d->lines[k];
            if (l->origin != '-')
                str_addn(ret, text_line_p(d, l), l->len);
        }
        off = to;
        line = at + h->old_lines;
    }
    str_addn(ret, d->old + off, d->old_len - off);
}

static void add_range(struct str *out, char sign, int start, int lines)
{
    str_addf(out, "%c%d", sign, start);
    if (lines != 1)
        str_addf(out, ",%d", lines);
}

void text_format_head(const struct text_hunk *h, struct str *out)
{
    str_add(out, "@@ ");
    add_range(out, '-', h->old_start, h->old_lines);
    str_addc(out, ' ');
    add_range(out, '+', h->new_start, h->new_lines);
    str_add(out, " @@");
}

void text_format_hunk(const struct text_diff *d, const struct text_hunk *h, struct str *out)
{
    text_format_head(h, out);
    if (h->heading)
        str_addf(out, " %s", h->heading);
    str_addc(out, '\n');
    for (size_t k = h->first; k < h->first + h->n; k++) {
        const struct text_line *l = &d->lines[k];
        str_addc(out, l->origin);
        str_addn(out, text_line_p(d, l), l->len);
        if (l->no_eol)
            str_add(out, "\n\\ No newline at end of file\n");
    }
}
