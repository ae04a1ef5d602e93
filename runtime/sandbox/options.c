#include "runtime/sandbox/options.h"

#include <limits.h>
#include <string.h>

#include "base/fs.h"

void options_free_p(struct options *o)
{
    strv_free_p(&o->argv);
    strv_free_p(&o->env);
    strv_free_p(&o->env_files);
    strv_free_p(&o->volumes);
    strv_free_p(&o->labels);
    strv_free_p(&o->hide);
    strv_free_p(&o->protect);
    strv_free_p(&o->allow_domains);
    strv_free_p(&o->deny_domains);
    strv_free_p(&o->net_ports);
    strv_free_p(&o->publish);
    strv_free_p(&o->given);
    strv_free_p(&o->configured);
}

/* What depends on where and by whom the flag was given, as something that does not: a record is used later. */
static char *settled(const char *name, const char *value)
{
    AUTOFREE char *src = NULL, *real = NULL;
    const char *colon = strchr(value, ':');

    if (strcmp(name, "env") == 0 && !strchr(value, '=') && getenv(value))
        return str_printf("%s=%s", value, getenv(value));
    if (strcmp(name, "env-file") == 0 || strcmp(name, "workspace") == 0) {
        real = fs_realpath(value);
        return str_dup(real ? real : value);
    }
    if (strcmp(name, "volume") == 0 && colon && value[0] != '/') {
        src = str_printf("%.*s", (int)(colon - value), value);
        real = fs_realpath(src);
        if (real)
            return str_printf("%s%s", real, colon);
    }
    return str_dup(value);
}

bool options_set(struct options *o, const char *name, const char *value)
{
    const struct {
        const char *name;
        struct strv *list;
        const char **word;
        bool *flag;
    } table[] = {
        { "env", &o->env, NULL, NULL },
        { "env-file", &o->env_files, NULL, NULL },
        { "workdir", NULL, &o->workdir, NULL },
        { "user", NULL, &o->user, NULL },
        { "volume", &o->volumes, NULL, NULL },
        { "memory", NULL, &o->memory, NULL },
        { "cpus", NULL, &o->cpus, NULL },
        { "pids-limit", NULL, &o->pids, NULL },
        { "disk", NULL, &o->disk, NULL },
        { "timeout", NULL, &o->timeout, NULL },
        { "max-output", NULL, &o->max_output, NULL },
        { "image", NULL, &o->image, NULL },
        { "network", NULL, &o->network, NULL },
        { "allow-domain", &o->allow_domains, NULL, NULL },
        { "deny-domain", &o->deny_domains, NULL, NULL },
        { "net-port", &o->net_ports, NULL, NULL },
        { "publish", &o->publish, NULL, NULL },
        { "net-rate", NULL, &o->net_rate, NULL },
        { "net-bytes", NULL, &o->net_bytes, NULL },
        { "on-net-failure", NULL, &o->on_net_failure, NULL },
        { "workspace", NULL, &o->workspace, NULL },
        { "workspace-path", NULL, &o->workspace_path, NULL },
        { "workspace-mode", NULL, &o->mode, NULL },
        { "read-only", NULL, NULL, &o->read_only },
        { "keep", NULL, NULL, &o->keep },
        { "hide", &o->hide, NULL, NULL },
        { "protect", &o->protect, NULL, NULL },
        { "name", NULL, &o->name, NULL },
        { "label", &o->labels, NULL, NULL },
        { "idle-timeout", NULL, &o->idle_timeout, NULL },
        { "lifetime", NULL, &o->lifetime, NULL },
        { "no-keep-alive", NULL, NULL, &o->no_keep_alive },
        { "caches", NULL, &o->caches, NULL },
        { "total-sandboxes", NULL, &o->total_sandboxes, NULL },
        { "total-memory", NULL, &o->total_memory, NULL },
        { "total-disk", NULL, &o->total_disk, NULL },
        { "startup-timeout", NULL, &o->startup_timeout, NULL },
        { "promote-on-stop", NULL, NULL, &o->promote_on_stop },
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        if (strcmp(table[i].name, name) != 0)
            continue;
        AUTOFREE char *text = value ? settled(name, value) : table[i].word ? str_dup("on") : NULL;
        strv_addf(&o->given, "%s=%s", name, text ? text : "");
        value = o->given.v[o->given.n - 1] + strlen(name) + 1;
        if (table[i].list)
            strv_add(table[i].list, value);
        if (table[i].word)
            *table[i].word = value;
        if (table[i].flag)
            *table[i].flag = true;
        return true;
    }
    return false;
}

bool options_configure(struct options *o, const char *name, const char *value)
{
    if (!options_set(o, name, value))
        return false;
    strv_add(&o->configured, o->given.v[o->given.n - 1]);
    return true;
}

bool options_is_list(const char *flag)
{
    static const char *const lists[] = { "env",      "env-file", "volume",       "hide",
                                         "protect",  "label",    "allow-domain", "deny-domain",
                                         "net-port", "publish" };
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        if (str_starts(flag, lists[i]) && flag[strlen(lists[i])] == '=')
            return true;
    return false;
}

void options_restore(struct options *o, const struct strv *given)
{
    for (size_t i = 0; i < given->n; i++) {
        AUTOFREE char *name = str_printf("%.*s", (int)strcspn(given->v[i], "="), given->v[i]);
        (void)options_set(o, name, given->v[i] + strcspn(given->v[i], "=") + 1);
    }
}
