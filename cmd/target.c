/* cmd/target.c - which running sandbox a command line means, and how its errors are told. */
#include <string.h>

#include "cmd/attach.h"

void target_free_p(struct target *t)
{
    petri_close(t->s);
    petri_client_free(t->c);
    *t = (struct target){ 0 };
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
    if (petri_call(t->c, (const char *const[]){ "start", "-q", NULL }, NULL, e) < 0)
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
