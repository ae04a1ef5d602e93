/* base/termfilter.h - what a sandbox writes, made safe for the terminal of the person outside.
 *
 * An allowlist: text, the usual C0 controls, colours, cursor movement, erasing, scrolling,
 * alternate screen, mouse, focus and bracketed-paste modes, cursor style, line drawing and window
 * titles pass; every other sequence is dropped. In particular nothing passes that makes a terminal
 * answer (an answer is typed into whatever reads next), write the clipboard, print, resize itself,
 * forget its scrollback, remap keys, or leave UTF-8.
 * What comes out is always valid UTF-8 (a byte that is not becomes '?'), never more bytes than went
 * in, and passes a second filter unchanged. The terminal is taken to be one that reads UTF-8.
 *
 * Owns:  nothing but the struct: no allocation, no descriptor.
 * Uses:  base/termrules.h, the tables of what passes.
 * Crash: a program that dies may leave modes on; termfilter_end() takes back what it switched.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "base/termrules.h"

#define TERMFILTER_ROOM 64 /* output of one call: at most its input plus this */
#define TERMFILTER_END 256 /* output of termfilter_end() */

struct termfilter {
    uint8_t state;
    uint8_t n;         /* bytes of a sequence that is not complete yet */
    uint8_t left;      /* bytes to skip of a Linux palette sequence */
    uint8_t un, uneed; /* a character that is not complete yet; its length */
    char u[4];
    char held[TERMFILTER_ROOM - 4];
    struct termmodes modes;
};

/* One filter per stream that reaches a terminal. */
void termfilter_init(struct termfilter *f);
/* Filters n bytes; `out` has room for n + TERMFILTER_ROOM. Sequences and characters may be cut
 * anywhere between calls. Returns the bytes written to `out`. */
size_t termfilter_run(struct termfilter *f, const char *in, size_t n, char *out);
/* Once, at the end: what brings the terminal back from modes the sandbox left switched (alternate
 * screen, mouse, hidden cursor, colours ...); nothing where nothing is left to undo. */
size_t termfilter_end(struct termfilter *f, char out[TERMFILTER_END]);
