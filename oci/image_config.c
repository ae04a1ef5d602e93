#include "oci/image_config.h"

#include <limits.h>
#include <string.h>

#include "base/json.h"
#include "oci/digest.h"
#include "oci/manifest.h"

enum {
    MAX_WORDS = 4096,    /* of env, cmd, entrypoint, labels each */
    MAX_WORD = 131071,   /* what execve takes as one word */
    MAX_TOTAL = 1 << 20, /* of all words together; execve takes 2 MiB by default */
    MAX_USER = 64,
};

/* Control characters have no business in a config; scripts in CMD may have lines and tabs. */
static bool text_clean(const char *s, bool lines)
{
    for (; *s; s++)
        if (((unsigned char)*s < 0x20 && !(lines && (*s == '\n' || *s == '\t'))) || *s == 0x7f)
            return false;
    return true;
}

static int check_word(const char *what, const char *s, bool lines, size_t *total, struct err **e)
{
    size_t n = strlen(s);
    *total += n + 1;
    if (n > MAX_WORD || *total > MAX_TOTAL)
        return err_new(e, ERR_LIMIT, "%s is too long", what);
    if (!text_clean(s, lines))
        return err_new(e, ERR_INVALID, "%s holds a control character", what);
    return 0;
}

/* A list of strings; null and missing are an empty one. */
static int get_words(const struct json *obj, const char *key, size_t *total, struct strv *ret,
                     struct err **e)
{
    const struct json *a = json_get(obj, key);

    if (!a || a->type == JSON_NULL)
        return 0;
    if (a->type != JSON_ARRAY)
        return err_new(e, ERR_INVALID, "%s is not a list", key);
    if (a->n > MAX_WORDS)
        return err_new(e, ERR_LIMIT, "%s has more than %d entries", key, MAX_WORDS);
    for (size_t i = 0; i < a->n; i++) {
        if (a->items[i]->type != JSON_STRING)
            return err_new(e, ERR_INVALID, "%s holds something that is not a string", key);
        int rc = check_word(key, a->items[i]->string, true, total, e);
        if (rc < 0)
            return rc;
        strv_add(ret, a->items[i]->string);
    }
    return 0;
}

static int check_env(const struct strv *env, struct err **e)
{
    for (size_t i = 0; i < env->n; i++) {
        const char *eq = strchr(env->v[i], '=');
        if (!eq || eq == env->v[i])
            return err_new(e, ERR_INVALID, "Env entry '%.60s' is not NAME=VALUE", env->v[i]);
        for (const char *p = env->v[i]; p < eq; p++)
            if ((unsigned char)*p <= ' ')
                return err_new(e, ERR_INVALID, "Env name '%.*s' holds a blank",
                               (int)(eq - env->v[i] < 60 ? eq - env->v[i] : 60), env->v[i]);
    }
    return 0;
}

/* Absolute, no "..", never in a place whose names lead elsewhere (/proc/self/fd/7). */
static int get_workdir(const struct json *obj, char **ret, struct err **e)
{
    static const char *const forbidden[] = { "/proc", "/sys", "/dev" };
    const char *raw = json_str(obj, "WorkingDir");
    AUTOSTR struct str s = STR_INIT;

    if (!raw || !*raw) {
        *ret = str_dup("/");
        return 0;
    }
    if (raw[0] != '/' || strlen(raw) >= PATH_MAX || !text_clean(raw, false))
        return err_new(e, ERR_INVALID, "WorkingDir '%.60s' is not an absolute path", raw);
    for (const char *p = raw; *p;) {
        size_t n;
        p += strspn(p, "/");
        n = strcspn(p, "/");
        if (n > NAME_MAX || (n == 2 && !memcmp(p, "..", 2)))
            return err_new(e, ERR_INVALID, "WorkingDir '%.60s' holds '..' or too long a name", raw);
        if (n && !(n == 1 && *p == '.')) {
            str_addc(&s, '/');
            str_addn(&s, p, n);
        }
        p += n;
    }
    if (!s.len)
        str_addc(&s, '/');
    for (size_t i = 0; i < ARRAY_LEN(forbidden); i++)
        if (path_below(s.p, forbidden[i]))
            return err_new(e, ERR_DENIED, "WorkingDir '%.60s' lies in %s", raw, forbidden[i]);
    *ret = str_take(&s);
    return 0;
}

/* A number that fits an id, or a name as useradd takes it. */
static bool user_part_valid(const char *p, size_t n)
{
    AUTOFREE char *s = str_printf("%.*s", (int)n, p);
    uint64_t id;

    if (!n || n > MAX_USER)
        return false;
    if (strspn(s, "0123456789") == n)
        return parse_uint(s, INT32_MAX, &id, NULL) == 0;
    return s[0] != '-' && s[0] != '.' &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == n;
}

static int get_user(const struct json *obj, char **ret, struct err **e)
{
    const char *raw = json_str(obj, "User");
    size_t n = raw ? strcspn(raw, ":") : 0;

    if (raw && *raw &&
        (!user_part_valid(raw, n) ||
         (raw[n] && !user_part_valid(raw + n + 1, strlen(raw + n + 1)))))
        return err_new(e, ERR_INVALID, "User '%.60s' is not USER[:GROUP]", raw);
    *ret = str_dup(raw ? raw : "");
    return 0;
}

static int get_labels(const struct json *obj, size_t *total, struct strv *ret, struct err **e)
{
    const struct json *l = json_get(obj, "Labels");

    if (!l || l->type != JSON_OBJECT)
        return 0;
    if (l->n > MAX_WORDS)
        return err_new(e, ERR_LIMIT, "Labels has more than %d entries", MAX_WORDS);
    for (size_t i = 0; i < l->n; i++) {
        const char *v = l->items[i]->type == JSON_STRING ? l->items[i]->string : "";
        *total += strlen(l->keys[i]) + strlen(v);
        if (*total > MAX_TOTAL)
            return err_new(e, ERR_LIMIT, "Labels are too long");
        strv_addf(ret, "%s=%s", l->keys[i], v);
    }
    return 0;
}

static int get_diff_ids(const struct json *j, struct strv *ret, struct err **e)
{
    const struct json *ids = json_arr(json_get(j, "rootfs"), "diff_ids");

    if (!ids || !ids->n)
        return err_new(e, ERR_INVALID, "rootfs names no layers (diff_ids)");
    if (ids->n > MANIFEST_LAYERS_MAX)
        return err_new(e, ERR_LIMIT, "%zu layers, more than %d", ids->n, MANIFEST_LAYERS_MAX);
    for (size_t i = 0; i < ids->n; i++) {
        const char *id = ids->items[i]->type == JSON_STRING ? ids->items[i]->string : NULL;
        if (!digest_valid(id))
            return err_new(e, ERR_CORRUPT, "diff_id '%.80s' is not valid", id ? id : "");
        strv_add(ret, id);
    }
    return 0;
}

/* A word of the config's head, for messages and tables only. */
static int get_head(const struct json *j, const char *key, char **ret, struct err **e)
{
    const char *v = json_str(j, key);
    if (v && (strlen(v) > MAX_USER || !text_clean(v, false)))
        return err_new(e, ERR_INVALID, "'%s' is not a plain word", key);
    *ret = str_dup(v);
    return 0;
}

int image_config_parse(const char *text, size_t n, struct image_config *ret, struct err **e)
{
    CLEANUP(image_config_free_p) struct image_config c = { 0 };
    AUTOJSON struct json *j = NULL;
    const struct json *run;
    size_t total = 0;
    int rc;

    if ((rc = json_parse(text, n, &j, e)) < 0)
        return rc;
    run = json_get(j, "config");
    if ((rc = get_head(j, "os", &c.os, e)) < 0 ||
        (rc = get_head(j, "architecture", &c.arch, e)) < 0 ||
        (rc = get_head(j, "variant", &c.variant, e)) < 0 ||
        (rc = get_head(j, "created", &c.created, e)) < 0 ||
        (rc = get_diff_ids(j, &c.diff_ids, e)) < 0 ||
        (rc = get_words(run, "Env", &total, &c.env, e)) < 0 || (rc = check_env(&c.env, e)) < 0 ||
        (rc = get_words(run, "Entrypoint", &total, &c.entrypoint, e)) < 0 ||
        (rc = get_words(run, "Cmd", &total, &c.cmd, e)) < 0 ||
        (rc = get_labels(run, &total, &c.labels, e)) < 0 ||
        (rc = get_workdir(run, &c.workdir, e)) < 0 || (rc = get_user(run, &c.user, e)) < 0)
        return rc;
    if (c.os && strcmp(c.os, "linux"))
        return err_new(e, ERR_UNSUPPORTED, "an image for '%s', not for linux", c.os);
    *ret = c;
    c = (struct image_config){ 0 };
    return 0;
}

void image_config_free_p(struct image_config *c)
{
    free(c->os);
    free(c->arch);
    free(c->variant);
    free(c->created);
    free(c->workdir);
    free(c->user);
    strv_free_p(&c->env);
    strv_free_p(&c->entrypoint);
    strv_free_p(&c->cmd);
    strv_free_p(&c->labels);
    strv_free_p(&c->diff_ids);
    *c = (struct image_config){ 0 };
}
