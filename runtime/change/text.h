/* runtime/change/text.h - line diffs, by libgit2 (git_text.c is its door). The one hunk engine: diff prints
 * hunks, promote -p chooses among them.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct text_line {
    char origin;     /* ' ' '+' '-' */
    bool no_eol;     /* the file ends here without a newline */
    size_t off, len; /* bytes in text_diff.old ('-') or .new (' ' '+'), newline included */
};

struct text_hunk {
    int old_start, old_lines, new_start, new_lines;
    size_t first, n; /* lines */
    char *heading;   /* what git prints after "@@ @@"; may be NULL */
};

struct text_diff {
    const char *old, *new; /* borrowed from the caller */
    size_t old_len, new_len;
    struct text_hunk *hunks;
    size_t n_hunks;
    struct text_line *lines;
    size_t n_lines;
    uint64_t added, deleted;
};

/* `context`: lines around a change (3). */
int text_diff(const char *old, size_t old_len, const char *new, size_t new_len, unsigned context,
              struct text_diff *ret, struct err **e);
void text_diff_free_p(struct text_diff *d);
/* Where a line's bytes are. */
static inline const char *text_line_p(const struct text_diff *d, const struct text_line *l)
{
    return (l->origin == '-' ? d->old : d->new) + l->off;
}
/* The old text with only the hunks applied whose entry in `take` is true. */
void text_apply(const struct text_diff *d, const bool *take, struct str *ret);
/* "@@ -1,3 +1,4 @@ heading\n" and the lines, as a patch has them. */
void text_format_hunk(const struct text_diff *d, const struct text_hunk *h, struct str *out);
/* "@@ -1,3 +1,4 @@" alone. */
void text_format_head(const struct text_hunk *h, struct str *out);
/* The part of a patch that makes one content the other, whatever bytes they are: "GIT binary patch" and on. */
int text_binary_patch(const char *old, size_t old_len, const char *new, size_t new_len,
                      struct str *out, struct err **e);
/* The id that git gives a blob of this content. */
enum { TEXT_BLOB_HEX = 40 };
void text_blob_id(const char *p, size_t n, char ret[TEXT_BLOB_HEX + 1]);
/* True where git would call it binary: a NUL in the first 8000 bytes. */
bool text_is_binary(const char *p, size_t n);
