/* base/termrules.h - which complete control sequences a sandbox may send to a real terminal, and what
 * takes them back. Used by base/termfilter.c only. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct termmodes {
    uint32_t modes;   /* switched away from their usual state: bit = index in the table */
    uint32_t touched; /* other things to put back at the end */
};

/* What passes of one sequence of n bytes ("ESC [ ... final", "ESC ... final"): at most n bytes. */
size_t termrules_csi(struct termmodes *m, const char *seq, size_t n, char *out);
size_t termrules_esc(struct termmodes *m, const char *seq, size_t n, char *out);
void termrules_shift(struct termmodes *m); /* SO passed */
size_t termrules_undo(const struct termmodes *m, char *out, size_t room);
