/* runtime/config/jsonc.h - JSON as people write it: comments and trailing commas allowed, everything else
 * strict, and every key and value keeps its place.
 *
 * Written by hand: yajl knows comments, but neither trailing commas nor the places of keys, and a tree of
 * allocated nodes would cost many times the text. Here a document is one flat array of 16-byte nodes in
 * the order of the text; strings stay in the text until somebody asks for them.
 * Owns:  nothing but memory. The text must live as long as the document.
 * Uses:  base/.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"

struct jsonc_node {
    uint32_t start, end; /* bytes of the text; of a string: with its quotes */
    uint32_t next;       /* the node after this one and all below it */
    uint8_t type;        /* enum json_type; a key is a JSON_STRING whose value is the next node */
    uint8_t escaped;     /* a string with backslashes */
};

struct jsonc {
    const char *text;
    size_t len;
    struct jsonc_node *nodes; /* nodes[0] is the document's value */
    uint32_t n, cap;
};

enum { JSONC_MAX_DEPTH = 64, JSONC_MAX_SIZE = 4 << 20 };

/* The error begins with "LINE:COLUMN: ". */
int jsonc_parse(const char *text, size_t len, struct jsonc *ret, struct err **e);
void jsonc_free_p(struct jsonc *j);

/* Walks the children of an object or array: `for (i = jsonc_first(j, v); i; i = jsonc_after(j, v, i))`.
 * In an object i is the key and i + 1 its value. 0: no more. */
uint32_t jsonc_first(const struct jsonc *j, uint32_t parent);
uint32_t jsonc_after(const struct jsonc *j, uint32_t parent, uint32_t child);
/* The value of a key; 0: not there, or no object. */
uint32_t jsonc_get(const struct jsonc *j, uint32_t object, const char *key);
/* The decoded text of a string, or a number as it was written. */
char *jsonc_text(const struct jsonc *j, uint32_t node);
/* Line and column (in characters) of a byte, both from 1. */
void jsonc_place(const struct jsonc *j, uint32_t offset, unsigned *ret_line, unsigned *ret_column);
