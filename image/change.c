#include "image/change.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* One word of a Dockerfile line: quotes group, a backslash takes the next character as it is. */
static int next_word(const char **text, char **ret, struct err **e)
{
    AUTOSTR struct str s = STR_INIT;
    const char *p = *text;
    char quote = 0;

    for (; *p && (quote || !isblank((unsigned char)*p)); p++) {
        if (quote ? *p == quote : *p == '"' || *p == '\'')
            quote = quote ? 0 : *p;
        else if (*p == '\\' && p[1] && quote != '\'')
            str_addc(&s, *++p);
        else
            str_addc(&s, *p);
    }
    if (quote)
        return err_new(e, ERR_USAGE, "a quote is not closed in '%s'", *text);
    *text = p + strspn(p, " \t");
    *ret = str_take(&s);
    return 0;
}

/* NAME=VALUE..., or the old form NAME VALUE for one. */
static int add_pairs(struct strv *to, const char *rest, struct err **e)
{
    const char *blank = strpbrk(rest, " \t"), *eq = strchr(rest, '=');

    if (blank && (!eq || blank < eq)) {
        AUTOFREE char *name = str_printf("%.*s", (int)(blank - rest), rest);
        strv_setenv(to, name, blank + strspn(blank, " \t"));
        return 0;
    }
    while (*rest) {
        AUTOFREE char *word = NULL;
        int rc = next_word(&rest, &word, e);
        if (rc < 0)
            return rc;
        char *cut = strchr(word, '=');
        if (!cut || cut == word)
            return err_new(e, ERR_USAGE, "'%s' is not NAME=VALUE", word);
        *cut = '\0';
        strv_setenv(to, word, cut + 1);
    }
    return 0;
}

/* A JSON list, or a line for the shell. */
static int set_command(struct strv *to, const char *rest, struct err **e)
{
    AUTOJSON struct json *j = NULL;

    strv_free_p(to);
    if (rest[0] != '[') {
        strv_add(to, "/bin/sh");
        strv_add(to, "-c");
        strv_add(to, rest);
        return 0;
    }
    if (json_parse(rest, strlen(rest), &j, NULL) < 0)
        return err_new(e, ERR_USAGE, "'%s' is not a list of strings like [\"sh\",\"-c\",\"ls\"]",
                       rest);
    for (size_t i = 0; i < j->n; i++) {
        if (j->items[i]->type != JSON_STRING)
            return err_new(e, ERR_USAGE, "'%s' holds something that is not a string", rest);
        strv_add(to, j->items[i]->string);
    }
    return 0;
}

static void set_text(char **to, const char *rest)
{
    free(*to);
    *to = str_dup(rest);
}

int change_add(struct change *c, const char *instruction, struct err **e)
{
    const char *start = instruction + strspn(instruction, " \t");
    size_t n = strcspn(start, " \t");
    AUTOFREE char *verb = str_printf("%.*s", (int)n, start);
    const char *rest = start + n + strspn(start + n, " \t");
    int rc = 0;

    if (!*rest)
        return err_new(e, ERR_USAGE, "--change '%s' has no value", instruction);
    if (!strcasecmp(verb, "ENV"))
        rc = add_pairs(&c->env, rest, e);
    else if (!strcasecmp(verb, "LABEL"))
        rc = add_pairs(&c->labels, rest, e);
    else if (!strcasecmp(verb, "CMD"))
        rc = set_command(&c->cmd, rest, e);
    else if (!strcasecmp(verb, "ENTRYPOINT"))
        rc = set_command(&c->entrypoint, rest, e);
    else if (!strcasecmp(verb, "WORKDIR"))
        set_text(&c->workdir, rest);
    else if (!strcasecmp(verb, "USER"))
        set_text(&c->user, rest);
    else
        return err_new(e, ERR_USAGE,
                       "--change knows CMD, ENTRYPOINT, ENV, LABEL, USER and WORKDIR, not '%s'",
                       verb);
    return rc < 0 ? err_wrap(e, "--change") : 0;
}

void change_write(const struct change *c, struct jsonw *w)
{
    if (c->env.n)
        jw_strv(w, "Env", &c->env);
    if (c->entrypoint.n)
        jw_strv(w, "Entrypoint", &c->entrypoint);
    if (c->cmd.n)
        jw_strv(w, "Cmd", &c->cmd);
    if (c->workdir)
        jw_str(w, "WorkingDir", c->workdir);
    if (c->user)
        jw_str(w, "User", c->user);
    if (!c->labels.n)
        return;
    jw_obj(w, "Labels");
    for (size_t i = 0; i < c->labels.n; i++) {
        char *eq = strchr(c->labels.v[i], '=');
        AUTOFREE char *key = str_printf("%.*s", (int)(eq - c->labels.v[i]), c->labels.v[i]);
        jw_str(w, key, eq + 1);
    }
    jw_end_obj(w);
}

void change_free_p(struct change *c)
{
    strv_free_p(&c->env);
    strv_free_p(&c->entrypoint);
    strv_free_p(&c->cmd);
    strv_free_p(&c->labels);
    free_p(&c->workdir);
    free_p(&c->user);
}
