/* base/termfilter.c - see the header; the states are those of a DEC terminal's parser. */
#include "base/termfilter.h"

#include <stdbool.h>
#include <string.h>

enum {
    GROUND,
    ESCAPE,   /* after ESC and any intermediates */
    CSI,      /* after ESC [ */
    ESC_SKIP, /* sequences too long to be any of ours: dropped to their final byte */
    CSI_SKIP,
    OSC,       /* after ESC ], before the first ';' */
    TITLE,     /* an OSC that sets the title: its text is held */
    TITLE_ESC, /* and an ESC that may be the first half of its end */
    STRING,    /* any other string (OSC, DCS, SOS, PM, APC, screen's ESC k): dropped */
    PALETTE,   /* Linux console: ESC ] P and seven digits, no end mark */
};

#define NO_CHAR UINT32_MAX /* bytes that are no character */

struct sink {
    char *p;
    size_t n;
};

static void put(struct sink *o, const void *p, size_t n)
{
    memcpy(o->p + o->n, p, n);
    o->n += n;
}

/* The byte after ESC and any intermediates. */
static void escape(struct termfilter *f, uint32_t c, struct sink *o)
{
    f->held[f->n++] = (char)c;
    if (c < 0x30) {
        f->state = f->n > 3 ? ESC_SKIP : ESCAPE;
        return;
    }
    f->state = f->n > 2                  ? GROUND
               : c == '['                ? CSI
               : c == ']'                ? OSC
               : strchr("PX^_k", (int)c) ? STRING
                                         : GROUND;
    if (f->state == GROUND)
        o->n += termrules_esc(&f->modes, f->held, f->n, o->p + o->n);
}

static void csi(struct termfilter *f, uint32_t c, struct sink *o)
{
    bool final = c >= 0x40;

    if (f->n == sizeof f->held) {
        f->state = final ? GROUND : CSI_SKIP;
        return;
    }
    f->held[f->n++] = (char)c;
    if (final) {
        f->state = GROUND;
        o->n += termrules_csi(&f->modes, f->held, f->n, o->p + o->n);
    }
}

static void osc(struct termfilter *f, uint32_t c)
{
    if (f->n == 2 && (c == 'P' || c == 'R')) {
        f->left = c == 'P' ? 7 : 0;
        f->state = c == 'P' ? PALETTE : GROUND;
    } else if (f->n == 2 && c >= '0' && c <= '2') {
        f->held[f->n++] = (char)c;
    } else if (f->n == 3 && c == ';') {
        f->held[f->n++] = (char)c;
        f->state = TITLE;
    } else {
        f->state = STRING;
    }
}

static void text(const char *u, size_t n, uint32_t c, struct sink *o)
{
    if (c == NO_CHAR || (c >= 0x80 && c < 0xa0))
        put(o, "?", 1); /* without its introducer the rest of an 8-bit sequence is mere text */
    else
        put(o, u, n);
}

/* A control inside a sequence takes effect at once, as it does in a terminal. */
static void control(struct termfilter *f, uint32_t c, struct sink *o)
{
    char b = (char)c;

    if (c >= 0x07 && c <= 0x0f)
        put(o, &b, 1); /* bell, backspace, tab, line ends, shift to and from line drawing */
    if (c == 0x0e)
        termrules_shift(&f->modes);
}

static void title_end(const struct termfilter *f, struct sink *o)
{
    put(o, f->held, f->n);
    put(o, "\a", 1);
}

/* Inside a string: true when the character was part of it or ended it. */
static bool string(struct termfilter *f, const char *u, size_t n, uint32_t c, struct sink *o)
{
    bool title = f->state == TITLE;

    if (f->state < OSC)
        return false;
    if (f->state == TITLE_ESC) {
        f->state = c == '\\' ? GROUND : ESCAPE;
        if (c == '\\')
            title_end(f, o);
        f->n = 1; /* its ESC */
        return c == '\\';
    }
    if (c == 0x1b && title) {
        f->state = TITLE_ESC;
    } else if (c == 0x1b) {
        return false;
    } else if (c == 0x07 || c == 0x18 || c == 0x1a || c == 0x9c) {
        f->state = GROUND;
        if (title && (c == 0x07 || c == 0x9c))
            title_end(f, o);
    } else if (f->state == PALETTE) {
        f->state = --f->left ? PALETTE : GROUND;
    } else if (f->state == OSC) {
        osc(f, c);
    } else if (title && c >= 0x20 && c != 0x7f && (c < 0x80 || c >= 0xa0) && c != NO_CHAR &&
               f->n + n < sizeof f->held) {
        memcpy(f->held + f->n, u, n); /* what does not fit is cut */
        f->n += (uint8_t)n;
    }
    return true;
}

/* One character: its bytes u[0..n) and its number c. */
static void step(struct termfilter *f, const char *u, size_t n, uint32_t c, struct sink *o)
{
    if (string(f, u, n, c, o))
        return;
    if (c == 0x1b) {
        f->state = ESCAPE;
        f->held[0] = 0x1b;
        f->n = 1;
    } else if (c == 0x18 || c == 0x1a) {
        f->state = GROUND;
    } else if (c < 0x20) {
        control(f, c, o);
    } else if (c == 0x7f) {
        return;
    } else if (f->state == GROUND || c >= 0x80) {
        f->state = GROUND; /* no sequence holds such a character: it is cut off */
        text(u, n, c, o);
    } else if (f->state == ESCAPE) {
        escape(f, c, o);
    } else if (f->state == CSI) {
        csi(f, c, o);
    } else if (c >= (f->state == ESC_SKIP ? 0x30 : 0x40)) {
        f->state = GROUND;
    }
}

static bool continues(const struct termfilter *f, unsigned char b)
{
    unsigned char lead = (unsigned char)f->u[0];

    if ((b & 0xc0) != 0x80)
        return false;
    if (f->un > 1)
        return true;
    return lead == 0xe0   ? b >= 0xa0
           : lead == 0xed ? b < 0xa0
           : lead == 0xf0 ? b >= 0x90
           : lead == 0xf4 ? b < 0x90
                          : true; /* no overlong forms, surrogates, or past U+10FFFF */
}

static void feed(struct termfilter *f, unsigned char b, struct sink *o)
{
    if (f->un && continues(f, b)) {
        uint32_t c = (unsigned char)f->u[0] & (0x7f >> f->uneed);
        f->u[f->un++] = (char)b;
        if (f->un < f->uneed)
            return;
        for (int i = 1; i < f->uneed; i++)
            c = c << 6 | ((unsigned char)f->u[i] & 0x3f);
        f->un = 0;
        step(f, f->u, f->uneed, c, o);
        return;
    }
    if (f->un) {
        f->un = 0;
        step(f, NULL, 0, NO_CHAR, o);
    }
    if (b >= 0xc2 && b <= 0xf4) {
        f->u[f->un++] = (char)b;
        f->uneed = b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
    } else {
        char one = (char)b;
        step(f, &one, 1, b < 0xa0 ? b : NO_CHAR, o);
    }
}

void termfilter_init(struct termfilter *f)
{
    memset(f, 0, sizeof *f);
}

size_t termfilter_run(struct termfilter *f, const char *in, size_t n, char *out)
{
    struct sink o = { out, 0 };

    for (size_t i = 0; i < n;) {
        size_t run = i;
        if (f->state == GROUND && !f->un)
            while (run < n && in[run] >= ' ' && in[run] < 0x7f)
                run++;
        if (run > i)
            put(&o, in + i, run - i);
        else
            feed(f, (unsigned char)in[run++], &o);
        i = run;
    }
    return o.n;
}

size_t termfilter_end(struct termfilter *f, char out[TERMFILTER_END])
{
    size_t n = termrules_undo(&f->modes, out, TERMFILTER_END);

    termfilter_init(f);
    return n;
}
