#include "runtime/change/talk.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void words_split(int argc, char **argv, struct words *ret)
{
    int i = 0;

    *ret = (struct words){ 0 };
    for (; i < argc && strcmp(argv[i], "--"); i++)
        strv_add(strchr(argv[i], '=') ? &ret->settings : &ret->switches, argv[i]);
    for (i++; i < argc; i++)
        strv_add(&ret->operands, argv[i]);
    ret->json = strv_has(&ret->switches, "json");
}

void words_free_p(struct words *w)
{
    strv_free_p(&w->switches);
    strv_free_p(&w->settings);
    strv_free_p(&w->operands);
}

bool words_has(const struct words *w, const char *name)
{
    return strv_has(&w->switches, name);
}

const char *words_get(const struct words *w, const char *key)
{
    size_t len = strlen(key);
    for (size_t i = w->settings.n; i-- > 0;)
        if (!strncmp(w->settings.v[i], key, len) && w->settings.v[i][len] == '=')
            return w->settings.v[i] + len + 1;
    return NULL;
}

static void put(FILE *to, const char *prefix, const char *text)
{
    AUTOSTR struct str line = STR_INIT;
    str_add(&line, prefix);
    str_add_escaped(&line, text, strlen(text));
    str_addc(&line, '\n');
    fflush(stdout);
    fwrite(line.p, 1, line.len, to);
}

void talk_note(const char *text)
{
    put(stderr, "petri: ", text);
}

void talk_notef(const char *fmt, ...)
{
    AUTOFREE char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        abort();
    va_end(ap);
    talk_note(text);
}

void talk_line(const char *fmt, ...)
{
    AUTOFREE char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        abort();
    va_end(ap);
    put(stdout, "", text);
}

void talk_json(const struct jsonw *w)
{
    printf("%s\n", w->out.p);
}

int talk_fail(struct err *e, bool json)
{
    AUTOFREE char *text = err_text(e);
    int status = e && e->code == ERR_USAGE ? 2 : 1;

    if (json) {
        AUTOJSONW struct jsonw w = { 0 };
        jw_obj(&w, NULL);
        jw_obj(&w, "error");
        jw_str(&w, "code", err_code_name(e ? e->code : ERR_INTERNAL));
        jw_str(&w, "message", text);
        jw_end_obj(&w);
        jw_end_obj(&w);
        talk_json(&w);
    }
    talk_note(text);
    err_free(e);
    return status;
}
