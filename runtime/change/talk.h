/* runtime/change/talk.h - how promote, undo, redo and history speak: answers on stdout, talk on stderr,
 * JSON where it was asked for; and the words they get from cmd/promote.c:
 *
 *   petri-change VERB DATA [SWITCH | KEY=VALUE]... -- OPERAND...
 */
#pragma once
#include "base/json.h"
#include "base/str.h"

struct words {
    struct strv switches; /* "json" "yes" */
    struct strv settings; /* "allow=.envrc" */
    struct strv operands;
    bool json;
};
void words_split(int argc, char **argv, struct words *ret);
void words_free_p(struct words *w);
bool words_has(const struct words *w, const char *name);
const char *words_get(const struct words *w, const char *key); /* the last one, or NULL */

/* "petri: TEXT" on stderr, made harmless for a terminal. */
void talk_note(const char *text);
void talk_notef(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Prints the error (and {"error":...} on stdout with json), frees it; the exit status. */
int talk_fail(struct err *e, bool json);
/* One line on stdout, made harmless. */
void talk_line(const char *fmt, ...) PRINTF_LIKE(1, 2);
void talk_json(const struct jsonw *w);
