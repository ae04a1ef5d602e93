/* runtime/change/render.h - a changeset as text: summary, stat, patch, JSON.
 *
 * Only the patch has bytes as they are, so that git apply takes it, and only where it does not go to a
 * terminal. Everywhere else control characters, bidi and other invisible characters are escaped.
 */
#pragma once
#include <stdio.h>

#include "base/json.h"
#include "runtime/change/changeset.h"

struct render {
    FILE *out;
    bool colour;
    bool terminal;    /* a person reads it: escape content, cut long lines */
    const char *lead; /* before each line of the summary: "" or "# " */
    unsigned width;   /* columns */
};

enum render_colour { C_NONE, C_BOLD, C_RED, C_GREEN, C_CYAN, C_YELLOW, C_DIM };
/* Escape sequences, "" without colour. */
const char *render_on(const struct render *r, enum render_colour c);
const char *render_off(const struct render *r);

/* "x" or, where git would quote it, "\"a\\tb\"". */
void quote_name(struct str *out, const char *prefix, const char *name);

/* Flags first, then what there is besides files: ignored ones, commits of the sandbox's repository. */
struct summary {
    const char *title;
    const struct strv *refs; /* with commits that the host has not */
};
void render_summary(const struct render *r, const struct changeset *c, const struct summary *s);
void render_stat(const struct render *r, const struct changeset *c);
void render_name_status(const struct render *r, const struct changeset *c);
int render_patch(const struct render *r, const struct changeset *c, struct err **e);
/* One change as a patch (raw bytes); nothing for what a patch can't say. `bytes`: with the content of binary files,
 * else they are named. */
int patch_format(const struct changeset *c, const struct change *ch, bool bytes, struct str *out,
                 struct err **e);
/* Members "change", "changes", "ignored", "summary" of an object that is open; with_patch adds each
 * change's patch where it is text. */
int render_json(struct jsonw *w, const struct changeset *c, bool with_patch, struct err **e);
/* A path as a member: "path", and "path_base64" where it is no UTF-8. */
void render_json_path(struct jsonw *w, const char *key, const char *path);

struct totals {
    uint64_t files, added, modified, deleted, lines_added, lines_deleted, ignored, flags;
    uint64_t refused; /* changes with a flag of class refuse */
};
void render_totals(const struct changeset *c, struct totals *ret);
