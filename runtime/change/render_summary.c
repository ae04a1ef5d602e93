#include <string.h>

#include "runtime/change/render.h"
#include "runtime/change/risk.h"

enum { MAX_FLAGS = 200 }; /* lines; --json has all */

static char *shown(const char *text)
{
    struct str s = STR_INIT;
    str_add_escaped(&s, text, strlen(text));
    return str_take(&s);
}

static void flag_line(const struct render *r, const struct change *ch, const struct risk_hit *h)
{
    static const enum render_colour colours[] = { C_RED, C_YELLOW, C_DIM };
    AUTOFREE char *path = shown(ch->path), *detail = h->detail ? shown(h->detail) : NULL;

    fprintf(r->out, "%s%s%-6s%s  %s: %s", r->lead, render_on(r, colours[h->rule->class]),
            risk_class_name(h->rule->class), render_off(r), path, h->rule->reason);
    if (detail)
        fprintf(r->out, " (%s)", detail);
    fprintf(r->out, " %s[%s]%s\n", render_on(r, C_DIM), h->rule->code, render_off(r));
}

/* Worst class first; in a class by path. */
static void flags(const struct render *r, const struct changeset *c, const struct totals *t)
{
    uint64_t lines = 0;

    for (int class = RISK_REFUSE; class <= RISK_NOTE; class ++)
        for (size_t i = 0; i < c->n; i++)
            for (size_t k = 0; k < c->v[i].n_risks; k++)
                if ((int)c->v[i].risks[k].rule->class == class && lines++ < MAX_FLAGS)
                    flag_line(r, &c->v[i], &c->v[i].risks[k]);
    if (lines > MAX_FLAGS)
        fprintf(r->out, "%s... and %llu more flags (petri diff --json lists them all)\n", r->lead,
                (unsigned long long)(lines - MAX_FLAGS));
}

/* 1204 -> "1 204": counts of ignored files are large. */
static void spaced(uint64_t n, char buf[32])
{
    char digits[32];
    int len = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n), k = 0;

    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0)
            buf[k++] = ' ';
        buf[k++] = digits[i];
    }
    buf[k] = '\0';
}

static const char *s_of(uint64_t n)
{
    return n == 1 ? "" : "s";
}

static void besides(const struct render *r, const struct changeset *c, const struct summary *s)
{
    char count[32];

    for (size_t i = 0; i < c->n_ignored; i++) {
        AUTOFREE char *path = shown(c->ignored[i].path);
        spaced(c->ignored[i].files, count);
        fprintf(r->out, "%s%s: %s ignored file%s\n", r->lead, *path ? path : "(top)", count,
                s_of(c->ignored[i].files));
    }
    for (size_t i = 0; i < c->repos.n; i++) {
        AUTOFREE char *path = shown(c->repos.v[i]);
        if (strcmp(c->repos.v[i], ".git") != 0)
            fprintf(r->out, "%s%s: a repository of its own, no part of the change\n", r->lead,
                    path);
    }
    if (s->refs && s->refs->n) {
        AUTOSTR struct str names = STR_INIT;
        for (size_t i = 0; i < s->refs->n && i < 5; i++) {
            AUTOFREE char *name = shown(s->refs->v[i]);
            str_addf(&names, "%s%s", i ? ", " : "", name);
        }
        fprintf(r->out,
                "%scommits that the project does not have: %s%s; petri promote brings them\n",
                r->lead, names.p, s->refs->n > 5 ? ", ..." : "");
    }
}

void render_summary(const struct render *r, const struct changeset *c, const struct summary *s)
{
    struct totals t;

    render_totals(c, &t);
    flags(r, c, &t);
    fprintf(r->out, "%s%s%s: %llu file%s", r->lead, render_on(r, C_BOLD), s->title,
            (unsigned long long)t.files, s_of(t.files));
    fprintf(r->out, " +%llu -%llu", (unsigned long long)t.lines_added,
            (unsigned long long)t.lines_deleted);
    if (t.flags)
        fprintf(r->out, ", %llu flag%s", (unsigned long long)t.flags, s_of(t.flags));
    fprintf(r->out, ", change %.12s%s\n", c->id, render_off(r));
    besides(r, c, s);
}

/* --- stat and names --------------------------------------------------------------------------------- */

static char *stat_name(const struct change *ch)
{
    AUTOFREE char *path = shown(ch->path);
    if (!ch->old_path)
        return TAKE_PTR(path);
    AUTOFREE char *old = shown(ch->old_path);
    return str_printf("%s => %s", old, path);
}

/* Columns, near enough: bytes that start a character. */
static size_t columns(const char *s)
{
    size_t n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static void bar(const struct render *r, uint64_t plus, uint64_t minus, uint64_t most, unsigned room)
{
    uint64_t total = plus + minus, a = plus, b = minus;

    if (most > room) {
        uint64_t part = total * room / most;
        part = part ? part : total > 0;
        a = total ? plus * part / total : 0;
        a = plus && !a ? 1 : a;
        b = part > a ? part - a : minus > 0;
    }
    fputs(render_on(r, C_GREEN), r->out);
    while (a--)
        fputc('+', r->out);
    fprintf(r->out, "%s%s", render_off(r), render_on(r, C_RED));
    while (b--)
        fputc('-', r->out);
    fputs(render_off(r), r->out);
}

static void stat_line(const struct render *r, const struct change *ch, size_t wide, uint64_t most)
{
    AUTOFREE char *name = stat_name(ch);
    size_t n = columns(name);
    unsigned room = r->width > wide + 20 ? r->width - (unsigned)wide - 16 : 8;

    fprintf(r->out, "%s %s%*s | ", r->lead, name, n < wide ? (int)(wide - n) : 0, "");
    if (ch->flags & CHANGE_EMPTY_DIR)
        fprintf(r->out, "empty directory %s\n", ch->new_mode ? "added" : "removed");
    else if (ch->flags & CHANGE_BINARY)
        fprintf(r->out, "Bin %llu -> %llu bytes\n", (unsigned long long)ch->old_size,
                (unsigned long long)ch->new_size);
    else if (ch->kind == CHANGE_MODE)
        fprintf(r->out, "mode %s\n", ch->new_mode & S_IXUSR ? "+x" : "-x");
    else {
        fprintf(r->out, "%5llu ", (unsigned long long)(ch->lines_added + ch->lines_deleted));
        bar(r, ch->lines_added, ch->lines_deleted, most, room);
        fputc('\n', r->out);
    }
}

void render_stat(const struct render *r, const struct changeset *c)
{
    size_t wide = 0, limit = r->width > 50 ? r->width - 30 : 20;
    uint64_t most = 0;

    for (size_t i = 0; i < c->n; i++) {
        AUTOFREE char *name = stat_name(&c->v[i]);
        size_t n = columns(name);
        uint64_t lines = c->v[i].lines_added + c->v[i].lines_deleted;
        wide = n > wide && n <= limit ? n : wide;
        most = lines > most ? lines : most;
    }
    for (size_t i = 0; i < c->n && !ferror(r->out); i++)
        stat_line(r, &c->v[i], wide, most);
}

void render_name_status(const struct render *r, const struct changeset *c)
{
    for (size_t i = 0; i < c->n && !ferror(r->out); i++) {
        const struct change *ch = &c->v[i];
        AUTOSTR struct str line = STR_INIT;
        str_addf(&line, "%c\t", change_letter(ch->kind));
        if (ch->old_path) {
            quote_name(&line, "", ch->old_path);
            str_addc(&line, '\t');
        }
        quote_name(&line, "", ch->path);
        if (ch->flags & CHANGE_EMPTY_DIR)
            str_addc(&line, '/');
        fprintf(r->out, "%s\n", line.p);
    }
}
