/* base/termrules.c - which control sequences pass, as tables. */
#include "base/termrules.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"

/* What a sequence changed, to be put back at the end. */
enum { T_SGR = 1, T_CHARSET = 2, T_KEYPAD = 4, T_MARGINS = 8, T_STYLE = 16, T_INSERT = 32 };

/* DEC private modes that pass, and how each usually is: what termfilter_end() goes back to. */
static const struct {
    uint16_t mode;
    char usual; /* 0: either is fine */
} dec_modes[] = {
    { 1, 'l' },    /* cursor keys send application codes */
    { 5, 'l' },    /* reverse screen: the visible bell */
    { 6, 'l' },    /* origin inside the margins */
    { 7, 'h' },    /* wrap at the last column */
    { 9, 'l' },    /* mouse, X10 */
    { 12, 0 },     /* cursor blinks */
    { 25, 'h' },   /* cursor is visible */
    { 66, 'l' },   /* keypad sends application codes */
    { 1000, 'l' }, /* mouse: buttons; 1002 with drag; 1003 with every move */
    { 1002, 'l' }, { 1003, 'l' }, { 1004, 'l' }, /* focus in and out */
    { 1005, 'l' },                               /* mouse encodings */
    { 1006, 'l' }, { 1015, 'l' }, { 1016, 'l' },
    { 1007, 0 },   /* the wheel scrolls in the alternate screen */
    { 2004, 'l' }, /* bracketed paste */
    { 1048, 0 },   /* cursor saved */
    { 47, 'l' },   /* alternate screen */
    { 1047, 'l' }, { 1049, 'l' },
};

/* CSI sequences that pass whatever their numbers are. */
static const struct {
    char prefix, inter;
    uint8_t max; /* parameters */
    const char *finals;
} csi_pass[] = {
    { 0, 0, 1, "@ABCDEFGIKLMPSTXZ`abdeg" }, /* move, insert, delete, erase, scroll, repeat, tabs */
    { 0, 0, 2, "Hfr" },                     /* position, margins */
    { 0, 0, 0, "su" },                      /* save and restore the cursor */
    { 0, 0, 32, "m" },                      /* colours and attributes */
    { 0, ' ', 1, "q" },                     /* cursor style */
    { 0, '!', 0, "p" },                     /* soft reset */
};

struct csi {
    char prefix, inter, final;
    bool colon;
    unsigned n, p[32];
};

/* Reads "ESC [ prefix? numbers inter? final"; false: not of that form, or a number or count that no
 * honest program sends (a repeat of 2^31 keeps some terminals busy for minutes). */
static bool csi_parse(const char *s, size_t n, struct csi *ret)
{
    struct csi c = { 0 };
    size_t i = 2;

    if (i < n && strchr("<=>?", s[i]))
        c.prefix = s[i++];
    for (; i < n && s[i] >= '0' && s[i] <= ';'; i++) {
        if (!c.n)
            c.n = 1;
        if (s[i] <= '9') {
            c.p[c.n - 1] = c.p[c.n - 1] * 10 + (unsigned)(s[i] - '0');
            if (c.p[c.n - 1] > UINT16_MAX)
                return false;
            continue;
        }
        c.colon |= s[i] == ':';
        if (c.n++ == ARRAY_LEN(c.p))
            return false;
    }
    if (i < n && s[i] >= ' ' && s[i] <= '/')
        c.inter = s[i++];
    if (i + 1 != n)
        return false;
    c.final = s[i];
    *ret = c;
    return true;
}

static int dec_mode(unsigned mode)
{
    for (size_t i = 0; i < ARRAY_LEN(dec_modes); i++)
        if (dec_modes[i].mode == mode)
            return (int)i;
    return -1;
}

/* Passes those of several modes in one sequence that may pass. */
static size_t pass_modes(struct termmodes *m, const struct csi *c, char *out, size_t room)
{
    size_t len = 0;

    for (unsigned k = 0; k < c->n; k++) {
        int i = c->prefix ? dec_mode(c->p[k]) : -1;
        if (c->prefix ? i < 0 : c->p[k] != 4 && c->p[k] != 34)
            continue; /* ANSI modes: insert, and screen's cursor shape */
        len += (size_t)snprintf(out + len, room - len, "%s%u",
                                len         ? ";"
                                : c->prefix ? "\033[?"
                                            : "\033[",
                                c->p[k]);
        if (i >= 0 && dec_modes[i].usual)
            m->modes = (m->modes & ~(1u << i)) | (uint32_t)(c->final != dec_modes[i].usual) << i;
        if (i < 0 && c->p[k] == 4)
            m->touched = (m->touched & ~(uint32_t)T_INSERT) | (c->final == 'h' ? T_INSERT : 0);
    }
    if (len)
        out[len++] = c->final; /* snprintf left room for its NUL */
    return len;
}

/* Save (22) and restore (23) the title: the only window operations that neither report nor move. */
static bool title_stack(const struct csi *c)
{
    if (c->final != 't' || c->prefix || c->inter || c->n < 1 || c->n > 3)
        return false;
    for (unsigned i = 1; i < c->n; i++)
        if (c->p[i] > 2)
            return false;
    return c->p[0] == 22 || c->p[0] == 23;
}

static bool csi_ok(struct termmodes *m, const struct csi *c)
{
    if (title_stack(c))
        return !c->colon;
    if (c->final == 'J' && !c->prefix && !c->inter && c->n <= 1)
        return c->p[0] <= 2; /* 3 would erase the scrollback, which is not the sandbox's */
    for (size_t i = 0; i < ARRAY_LEN(csi_pass); i++) {
        if (c->prefix != csi_pass[i].prefix || c->inter != csi_pass[i].inter ||
            c->n > csi_pass[i].max || !strchr(csi_pass[i].finals, c->final) ||
            (c->colon && c->final != 'm'))
            continue;
        m->touched |= c->final == 'm'   ? T_SGR
                      : c->final == 'q' ? T_STYLE
                      : c->final == 'r' ? T_MARGINS
                                        : 0;
        return true;
    }
    return false;
}

size_t termrules_csi(struct termmodes *m, const char *seq, size_t n, char *out)
{
    struct csi c;

    if (!csi_parse(seq, n, &c))
        return 0;
    if ((c.final == 'h' || c.final == 'l') && !c.inter && !c.colon &&
        (!c.prefix || c.prefix == '?'))
        return pass_modes(m, &c, out, n);
    if (!csi_ok(m, &c))
        return 0;
    memcpy(out, seq, n);
    return n;
}

size_t termrules_esc(struct termmodes *m, const char *seq, size_t n, char *out)
{
    char c = seq[n - 1];

    if (n == 2 && strchr("78DEHM=>", c)) {
        if (c == '=' || c == '>')
            m->touched = (m->touched & ~(uint32_t)T_KEYPAD) | (c == '=' ? T_KEYPAD : 0);
    } else if (n == 3 && strchr("()", seq[1]) && strchr("0B", c)) {
        m->touched |= T_CHARSET;
    } else {
        return 0;
    }
    memcpy(out, seq, n);
    return n;
}

void termrules_shift(struct termmodes *m)
{
    m->touched |= T_CHARSET;
}

size_t termrules_undo(const struct termmodes *m, char *out, size_t room)
{
    static const struct {
        uint32_t touched;
        const char *text;
    } undo[] = {
        { T_MARGINS, "\0337\033[r\0338" }, /* it moves the cursor */
        { T_INSERT, "\033[4l" },           { T_KEYPAD, "\033>" }, { T_STYLE, "\033[0 q" },
        { T_CHARSET, "\033(B\017" },       { T_SGR, "\033[0m" },
    };
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(dec_modes); i++)
        if (m->modes & 1u << i)
            n += (size_t)snprintf(out + n, room - n, "\033[?%u%c", dec_modes[i].mode,
                                  dec_modes[i].usual);
    for (size_t i = 0; i < ARRAY_LEN(undo); i++)
        if (m->touched & undo[i].touched)
            n += (size_t)snprintf(out + n, room - n, "%s", undo[i].text);
    return n;
}
