/* runtime/change/content.h - the text of a change: reading it, counting lines, looking for what a reviewer
 * must see. */
#pragma once
#include "runtime/change/changeset.h"
#include "runtime/change/text.h"

/* Above this a file is too large for a line diff. */
enum { CONTENT_MAX = 16 << 20 };

/* All of one side: a file's content, a link's text; empty where that side is not there. ERR_LIMIT above
 * max. The caller frees it. */
int content_read(const struct changeset *c, const struct change *ch, bool new_side, size_t max,
                 char **ret, size_t *ret_len, struct err **e);
/* True where a line diff of it can be shown: text on both sides, readable, not too large. */
bool content_is_text(const struct change *ch);

/* The line diff of a change; both texts are in it. */
struct content_diff {
    char *old, *new;
    struct text_diff d;
};
int content_diff(const struct changeset *c, const struct change *ch, struct content_diff *ret,
                 struct err **e);
void content_diff_free_p(struct content_diff *d);

/* What was seen in text that a change adds. */
struct content_found {
    const char *secret; /* what kind, or NULL */
    uint32_t invisible; /* the first such character, 0: none */
    bool skipped_test;  /* a test that is told not to run */
    bool shebang;       /* the new text starts with #! and the old one did not */
    int64_t tests;      /* tests that the lines added define, minus those of lines deleted */
    uint64_t old_lines; /* of the old text */
};
void content_scan(const char *p, size_t n, struct content_found *io);
/* Tests that a line defines. */
int64_t content_tests(const char *p, size_t n);
/* Fills lines_added and lines_deleted of a change and scans what it adds. */
int content_count(const struct changeset *c, struct change *ch, struct content_found *ret,
                  struct err **e);
