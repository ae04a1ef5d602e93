#include "runtime/config/keys.h"

#include <ctype.h>
#include <string.h>

enum { M = 1 << 20 };

/* clang-format off */
const struct config_key config_keys[] = {
    { "enabled", KEY_BOOL, SENSE_ORDER, "true|false", 0, 0, "false", NULL, NULL,
      "whether agents and `petri tool` use a sandbox; run, start, exec, shell and fork always do" },
    { "runtime", KEY_RUNTIME, SENSE_LOOSENS, "auto|docker|podman|lima|none|crun|runc|runsc|process", 0, 0,
      "auto", NULL, NULL, "what runs the sandbox: `auto` and `crun` are petri's own, `none` is the host" },
    { "image", KEY_TEXT, SENSE_LOOSENS, NULL, 0, 0, "host", "image", NULL,
      "the system to run on; `host` is this machine's own packages" },
    { "profile", KEY_WORD, SENSE_ORDER, "untrusted|user|trusted", 0, 0, "", NULL, NULL,
      "a ready-made set of values, below the file's own; see profiles" },
    { "resources.memory", KEY_SIZE, SENSE_LESS, NULL, 4 * M, 0, "2G", "memory", NULL,
      "memory, without extra swap" },
    { "resources.cpus", KEY_CPUS, SENSE_LESS, NULL, 0, 0, "2.0", "cpus", NULL, "processors" },
    { "resources.pids", KEY_INT, SENSE_LESS, NULL, 8, 4194304, "256", "pids-limit", NULL,
      "processes and threads" },
    { "resources.disk", KEY_SIZE, SENSE_LESS, NULL, 1 * M, 0, "10G", "disk", NULL,
      "all that is written; a one-shot run has half of its memory unless this is set" },
    { "resources.timeout", KEY_TIME, SENSE_LESS, NULL, 0, 0, "", "timeout", NULL,
      "a one-shot run is killed after this long" },
    { "resources.output", KEY_SIZE, SENSE_LESS, NULL, 0, 0, "10M", "max-output", NULL,
      "each output stream of a one-shot run, and of `petri tool`, is cut after this much" },
    { "network.policy", KEY_WORD, SENSE_ORDER, "none|allowlist|limited|full", 0, 0, "limited", "network", NULL,
      "what can be reached: nothing, named domains, ports 80 and 443, or all but this host and private ranges" },
    { "network.allow", KEY_DOMAINS, SENSE_WIDENS, NULL, 0, 0, "", "allow-domain", NULL,
      "domains, `name:port`, addresses and ranges that may be reached" },
    { "network.deny", KEY_DOMAINS, SENSE_GROWS, NULL, 0, 0, "", "deny-domain", NULL,
      "what may not be reached, whatever `allow` says" },
    { "network.ports", KEY_PORTS, SENSE_WIDENS, NULL, 1, 65535, "80,443", "net-port", NULL,
      "ports that `limited` and `allowlist` reach" },
    { "network.rate", KEY_SIZE, SENSE_LESS, NULL, 1024, 0, "", "net-rate", NULL,
      "bytes in a second, both directions together" },
    { "network.publish", KEY_PUBLISH, SENSE_WIDENS, NULL, 0, 0, "", "publish", NULL,
      "ports of the sandbox on this host's loopback, `[HOST:]PORT:PORT`" },
    { "mounts.workspace_writable", KEY_BOOL, SENSE_ORDER, "false|true", 0, 0, "true", "read-only", "false",
      "whether the copy of the project can be written inside" },
    { "mounts.workspace_path", KEY_PATH, SENSE_NEUTRAL, NULL, 0, 0, "/workspace", "workspace-path", NULL,
      "where the project is seen inside, beside its own path" },
    { "mounts.workspace_mode", KEY_WORD, SENSE_ORDER, "copy|overlay|bind", 0, 0, "overlay", "workspace-mode",
      NULL, "a layer over the project, a copy, or the live directory itself" },
    { "mounts.persist_caches", KEY_BOOL, SENSE_ORDER, "false|true", 0, 0, "true", "caches", NULL,
      "whether caches of package managers survive between sandboxes of this project" },
    { "mounts.readonly", KEY_INSIDE, SENSE_GROWS, NULL, 0, 0, "", "protect", NULL,
      "paths of the project that can't be written inside" },
    { "mounts.hide", KEY_INSIDE, SENSE_GROWS, NULL, 0, 0, "", "hide", NULL,
      "paths and patterns of the project that are not there inside" },
    { "mounts.extra", KEY_MOUNTS, SENSE_WIDENS, NULL, 0, 0, "", "volume", NULL,
      "directories of this host that are seen inside, `SRC:DST[:ro]`" },
    { "bypass_tools", KEY_LIST, SENSE_WIDENS, NULL, 0, 0, "", NULL, NULL,
      "tools that `petri tool` runs on the host" },
    { "keep_alive", KEY_BOOL, SENSE_NEUTRAL, "false|true", 0, 0, "true", "no-keep-alive", "false",
      "whether a sandbox that stays goes on when nothing runs in it" },
    { "startup_timeout", KEY_TIME, SENSE_NEUTRAL, NULL, 0, 0, "", "startup-timeout", NULL,
      "how long a start may take" },
    { "idle_timeout", KEY_TIME, SENSE_LESS, NULL, 0, 0, "", "idle-timeout", NULL,
      "a sandbox that stays is stopped when nothing ran in it for so long" },
    { "max_lifetime", KEY_TIME, SENSE_LESS, NULL, 0, 0, "", "lifetime", NULL,
      "a sandbox that stays is stopped after so long" },
    { "limits.total.sandboxes", KEY_INT, SENSE_LESS, NULL, 1, 100000, "", "total-sandboxes", NULL,
      "sandboxes that run at the same time, of all projects" },
    { "limits.total.memory", KEY_SIZE, SENSE_LESS, NULL, 4 * M, 0, "", "total-memory", NULL,
      "memory limits of all running sandboxes together" },
    { "limits.total.disk", KEY_SIZE, SENSE_LESS, NULL, 1 * M, 0, "", "total-disk", NULL,
      "disk limits of all running sandboxes together" },
    { "env", KEY_MAP, SENSE_NEUTRAL, NULL, 0, 0, "", "env", NULL, "variables that are set inside" },
    { "promotion.auto", KEY_WORD, SENSE_ORDER, "off|on-stop", 0, 0, "off", "promote-on-stop", "on-stop",
      "whether a stop brings harmless changes back to the project" },
    { "locked", KEY_KEYS, SENSE_GROWS, NULL, 0, 0, "", NULL, NULL,
      "keys that project, environment and flags can tighten but not change otherwise; not in a project's file" },
};
/* clang-format on */
const size_t n_config_keys = ARRAY_LEN(config_keys);

/* Other spellings, as agents' files have them. */
static const struct {
    const char *spelling, *name;
} aliases[] = {
    { "network", "network.policy" },
    { "network.allowedDomains", "network.allow" },
    { "network.deniedDomains", "network.deny" },
};

bool key_is_list(const struct config_key *k)
{
    return k->type >= KEY_LIST;
}

int key_find(const char *name)
{
    if (str_starts(name, "sandbox."))
        name += strlen("sandbox.");
    for (size_t i = 0; i < ARRAY_LEN(aliases); i++)
        if (*aliases[i].spelling == *name && strcmp(aliases[i].spelling, name) == 0)
            name = aliases[i].name;
    for (size_t i = 0; i < n_config_keys; i++)
        if (*config_keys[i].name == *name && strcmp(config_keys[i].name, name) == 0)
            return (int)i;
    return -1;
}

int key_by_option(const char *option)
{
    for (size_t i = 0; i < n_config_keys; i++)
        if (str_eq(config_keys[i].option, option))
            return (int)i;
    return -1;
}

int key_find_flat(const char *name)
{
    for (size_t i = 0; i < n_config_keys; i++) {
        const char *dot = strchr(config_keys[i].name, '.');
        if ((str_starts(config_keys[i].name, "resources.") ||
             str_starts(config_keys[i].name, "mounts.")) &&
            strcmp(dot + 1, name) == 0)
            return (int)i;
    }
    return -1;
}

bool key_is_group(const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < n_config_keys; i++)
        if (*config_keys[i].name == *name && strncmp(config_keys[i].name, name, n) == 0 &&
            config_keys[i].name[n] == '.')
            return true;
    return false;
}

/* What may stand below `parent`: the next words of all names that begin with it. */
const char *key_nearest(const char *parent, const char *name)
{
    static const char *const tops[] = {
        "enabled", "runtime",      "image",      "profile",         "resources",    "network",
        "mounts",  "bypass_tools", "keep_alive", "startup_timeout", "idle_timeout", "max_lifetime",
        "limits",  "env",          "promotion",  "locked"
    };
    const char *list[64];
    size_t n = 0, len = strlen(parent);

    if (!len)
        return nearest_word(name, tops, ARRAY_LEN(tops));
    for (size_t i = 0; i < n_config_keys && n < ARRAY_LEN(list); i++)
        if (strncmp(config_keys[i].name, parent, len) == 0 && config_keys[i].name[len] == '.')
            list[n++] = config_keys[i].name + len + 1;
    return nearest_word(name, list, n);
}

char *key_variable(const struct config_key *k)
{
    char *v = str_printf("PETRI_%s", k->name);
    if (strcmp(k->name, "network.policy") == 0) {
        free(v);
        v = str_dup("PETRI_NETWORK");
    }
    for (char *c = v; *c; c++)
        *c = *c == '.' ? '_' : (char)toupper((unsigned char)*c);
    return v;
}
