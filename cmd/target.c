/* cmd/target.c - which running sandbox a command line means, and how its errors are told. */
#include <string.h>

#include "cmd/attach.h"

void target_free_p(struct target *t)
{
    petri_close(t->s);
    petri_client_free(t->c);
    *t = (struct target){ 0 };
}

/* What a user must know of the sandbox is said here as petri start says it. */
static int start_first(struct target *t, struct petri_error *e)
{
    const char *const words[] = { "start", t->quiet ? "-q" : NULL, NULL };
    AUTOJSON struct json *j = NULL;
    AUTOSTRV struct strv notes = { 0 };
    AUTOFREE char *text = NULL;

    if (petri_call(t->c, words, &text, e) < 0)
        return -1;
    if (!t->quiet && text && json_parse(text, strlen(text), &j, NULL) == 0)
        json_strings(json_arr(j, "notes"), &notes);
    for (size_t i = 0; i < notes.n; i++)
        cmd_note("%s", notes.v[i]);
    t->started = true;
    return 0;
}

int target_open(struct target *t, const char *name, struct petri_error *e)
{
    struct petri_client_options o = PETRI_CLIENT_OPTIONS_INIT;
    const char *given = getenv("PETRI_SANDBOX");

    o.program = "/proc/self/exe";
    if (!t->c && petri_client_new(&o, &t->c, e) < 0)
        return -1;
    if (petri_open(t->c, name, NULL, &t->s, e) == 0)
        return 0;
    if (name || (given && *given) || strcmp(e->code, "not_found") != 0)
        return -1;
    if (start_first(t, e) < 0)
        return -1;
    return petri_open(t->c, NULL, NULL, &t->s, e);
}

char *target_prefix(const char *word, const char **ret_path)
{
    size_t n = strcspn(word, ":/");
    if (word[n] != ':')
        return NULL;
    *ret_path = word + n + 1;
    return str_printf("%.*s", (int)n, word);
}

int cmd_fail_petri(int status, const struct petri_error *e, bool json)
{
    if (json) {
        AUTOJSONW struct jsonw w = { 0 };
        jw_obj(&w, NULL);
        jw_obj(&w, "error");
        jw_str(&w, "code", e->code[0] ? e->code : "failed");
        jw_bytes(&w, "message", e->message, strlen(e->message));
        jw_end_obj(&w);
        jw_end_obj(&w);
        printf("%s\n", w.out.p);
    }
    return cmd_fail(status, "%s", e->message[0] ? e->message : "failed for a reason nobody gave");
}

void cmd_json_bytes(struct jsonw *w, const char *key, const void *p, size_t n)
{
    jw_bytes(w, key, p ? p : "", n);
    if (utf8_valid(p ? p : "", n))
        return;
    AUTOSTR struct str b = STR_INIT;
    str_add_base64(&b, p, n);
    AUTOFREE char *name = str_printf("%s_base64", key);
    jw_str(w, name, b.p);
}
