/* runtime/change/quote.c - names as git writes them, colours, numbers. */
#include <string.h>

#include "runtime/change/render.h"
#include "runtime/change/risk.h"

void quote_name(struct str *out, const char *prefix, const char *name)
{
    static const char letters[] = "\a\b\t\n\v\f\r\"\\", names[] = "abtnvfr\"\\";
    bool plain = true;

    for (const char *p = name; *p && plain; p++)
        plain = (unsigned char)*p >= ' ' && (unsigned char)*p < 0x7f && *p != '"' && *p != '\\';
    if (plain) {
        str_addf(out, "%s%s", prefix, name);
        return;
    }
    str_addf(out, "\"%s", prefix);
    for (const char *p = name; *p; p++) {
        const char *at = strchr(letters, *p);
        if (at)
            str_addf(out, "\\%c", names[at - letters]);
        else if ((unsigned char)*p < ' ' || (unsigned char)*p >= 0x7f)
            str_addf(out, "\\%03o", (unsigned char)*p);
        else
            str_addc(out, *p);
    }
    str_addc(out, '"');
}

const char *render_on(const struct render *r, enum render_colour c)
{
    static const char *const codes[] = { "",         "\x1b[1m",  "\x1b[31m", "\x1b[32m",
                                         "\x1b[36m", "\x1b[33m", "\x1b[2m" };
    return r->colour ? codes[c] : "";
}

const char *render_off(const struct render *r)
{
    return r->colour ? "\x1b[m" : "";
}

void render_totals(const struct changeset *c, struct totals *ret)
{
    *ret = (struct totals){ .files = c->n };
    for (size_t i = 0; i < c->n; i++) {
        const struct change *ch = &c->v[i];
        bool refused = false;
        ret->added += ch->kind == CHANGE_ADDED;
        ret->deleted += ch->kind == CHANGE_DELETED;
        ret->modified += ch->kind != CHANGE_ADDED && ch->kind != CHANGE_DELETED;
        ret->lines_added += ch->lines_added;
        ret->lines_deleted += ch->lines_deleted;
        ret->flags += ch->n_risks;
        for (size_t k = 0; k < ch->n_risks; k++)
            refused |= ch->risks[k].rule->class == RISK_REFUSE;
        ret->refused += refused;
    }
    for (size_t i = 0; i < c->n_ignored; i++)
        ret->ignored += c->ignored[i].files;
}
