/* runtime/config/apply.c - from configured values to the options of a sandbox. */
#include <string.h>

#include "runtime/config/config.h"
#include "runtime/config/source.h"

static bool given_has(const struct strv *given, const char *option)
{
    size_t n = strlen(option);
    for (size_t i = 0; i < given->n; i++)
        if (strncmp(given->v[i], option, n) == 0 && given->v[i][n] == '=')
            return true;
    return false;
}

static const char *last_given(const struct strv *given, const char *option)
{
    size_t n = strlen(option);
    for (size_t i = given->n; i > 0; i--)
        if (strncmp(given->v[i - 1], option, n) == 0 && given->v[i - 1][n] == '=')
            return given->v[i - 1] + n + 1;
    return NULL;
}

/* A file's true is a flag's on. */
static const char *switched(const char *word)
{
    static const char *const pairs[] = { "true", "on", "false", "off" };
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++)
        if (strcmp(pairs[i], word) == 0)
            return pairs[i ^ 1];
    return word;
}

/* What a flag says, as the words of its key. */
static void flag_words(const struct config_key *k, const char *option, const struct strv *given,
                       struct strv *ret)
{
    size_t n = strlen(option);
    if (k->when) {
        strv_add(ret, k->when);
        return;
    }
    for (size_t i = 0; i < given->n; i++)
        if (strncmp(given->v[i], option, n) == 0 && given->v[i][n] == '=')
            strv_add(ret,
                     k->type == KEY_BOOL ? switched(given->v[i] + n + 1) : given->v[i] + n + 1);
    if (!key_is_list(k))
        while (ret->n > 1) {
            free(ret->v[0]);
            memmove(ret->v, ret->v + 1, ret->n-- * sizeof *ret->v);
        }
}

static int check_lock(const struct config *c, size_t key, const char *option,
                      const struct strv *flags, const char *sandbox, struct err **e)
{
    const struct config_key *k = &config_keys[key];
    AUTOSTRV struct strv words = { 0 };
    AUTOFREE char *anew = NULL;
    const char *lock;

    if (!given_has(flags, option))
        return 0;
    flag_words(k, option, flags, &words);
    if (!(lock = config_lock(c, (int)key, &words)))
        return 0;
    if (!sandbox)
        return err_new(e, ERR_DENIED, "--%s: sandbox.%s is locked by %s", option, k->name, lock);
    /* a switch can't be taken back, and of a list that is locked empty no value is right */
    if (!k->when && strcmp(option, k->option) == 0 && (!key_is_list(k) || c->floor[key].words.n))
        anew = str_printf("petri restart --%s VALUE %s gives it another, or ", option, sandbox);
    return err_new(e, ERR_DENIED,
                   "--%s: sandbox.%s is locked by %s, and sandbox '%s' has this flag from earlier; "
                   "%spetri rm %s",
                   option, k->name, lock, sandbox, anew ? anew : "", sandbox);
}

int config_check_flags(const struct config *c, const struct strv *flags, const char *sandbox,
                       struct err **e)
{
    int rc = 0;

    for (size_t i = 0; i < n_config_keys && rc == 0; i++) {
        if (config_keys[i].option)
            rc = check_lock(c, i, config_keys[i].option, flags, sandbox, e);
        if (rc == 0 && config_keys[i].type == KEY_MAP) /* a file's name is no NAME=VALUE of env */
            rc = check_lock(c, i, "env-file", flags, sandbox, e);
    }
    return rc;
}

/* Words that are right and can't be had in this version. */
static int check_missing(const struct config *c, size_t key, const char *word, struct err **e)
{
    const char *from = config_origin(c, key), *name = config_keys[key].name;

    if (strcmp(name, "runtime") == 0 && strcmp(word, "auto") != 0 && strcmp(word, "crun") != 0 &&
        strcmp(word, "none") != 0)
        return err_new(
            e, ERR_UNSUPPORTED,
            "sandbox runtime '%s' is not available: petri has crun built in and no other "
            "yet; leave sandbox.runtime out (%s)",
            word, from);
    if (strcmp(name, "image") == 0 &&
        (strcmp(word, "wonopcode/sandbox") == 0 || str_starts(word, "wonopcode/sandbox:")))
        return err_new(e, ERR_UNSUPPORTED,
                       "image '%s' stands for petri's own variant, and images can't be built yet; "
                       "leave sandbox.image out to run on this machine's packages (%s)",
                       word, from);
    return 0;
}

static int hand_over(const struct config *c, size_t key, size_t i, config_sink *sink, void *ctx,
                     struct err **e)
{
    const struct config_key *k = &config_keys[key];
    const struct setting *s = &c->set[key];
    const char *word = s->words.v[i];
    AUTOFREE char *from = str_printf("%s: sandbox.%s", s->from.v[i < s->from.n ? i : 0], k->name);
    AUTOFREE char *home = k->type == KEY_MOUNTS && str_starts(word, "~/") && getenv("HOME")
                              ? path_join(getenv("HOME"), word + 2)
                              : NULL;
    struct err *why = NULL;
    const char *value = k->when ? NULL : home ? home : k->type == KEY_BOOL ? switched(word) : word;
    int rc = sink(ctx, k->option, value, from, &why);

    if (rc >= 0)
        return 0;
    if (why && e)
        *e = why;
    else if (why)
        err_free(why);
    else
        rc = err_new(e, ERR_UNSUPPORTED,
                     "%s: '%s' can't be had in this version; leave it out, or set it to %s", from,
                     word,
                     k->type == KEY_BOOL ? (strcmp(word, "true") == 0 ? "false" : "true")
                     : *k->def           ? k->def
                                         : "nothing");
    return rc;
}

/* What is so anyway is not asked for: a limit that the user can't have here stops nobody who only writes
 * down what the limits are. The disk's default is another one for each command. */
static bool is_default(const struct config_key *k, const struct strv *words)
{
    bool plain = k->type == KEY_SIZE || k->type == KEY_CPUS || k->type == KEY_INT;
    return !key_is_list(k) && (k->type == KEY_PATH || plain) && strcmp(k->option, "disk") != 0 &&
           key_compare(k, words, NULL) == EQUAL;
}

static int apply_key(const struct config *c, size_t key, const struct strv *given,
                     config_sink *sink, void *ctx, struct err **e)
{
    const struct config_key *k = &config_keys[key];
    const struct setting *s = &c->set[key];
    bool list = key_is_list(k);
    int rc;

    for (size_t i = 0; i < s->words.n; i++) {
        const char *word = s->words.v[i];
        AUTOFREE char *same = list ? str_printf("%s=%s", k->option ? k->option : "", word) : NULL;
        if ((!list && k->option && given_has(given, k->option)) || (same && strv_has(given, same)))
            continue;
        if ((rc = check_missing(c, key, word, e)) < 0)
            return rc;
        if (!k->option || (k->when && strcmp(word, k->when) != 0))
            continue;
        if (is_default(k, &s->words))
            continue;
        if (k->type == KEY_MAP) { /* -e NAME=... comes later than the file */
            AUTOFREE char *name =
                str_printf("%s=%.*s", k->option, (int)strcspn(word, "=") + 1, word);
            bool taken = false;
            for (size_t g = 0; g < given->n; g++)
                taken |= str_starts(given->v[g], name);
            if (taken)
                continue;
        }
        if ((rc = hand_over(c, key, i, sink, ctx, e)) < 0)
            return rc;
    }
    return 0;
}

int config_apply(const struct config *c, const struct strv *flags, config_sink *sink, void *ctx,
                 struct err **e)
{
    AUTOSTRV struct strv given = { 0 }; /* the sink may add to the flags' own list */
    const struct setting *policy = &c->set[key_find("network")];
    const char *network;
    int rc;

    for (size_t i = 0; i < flags->n; i++)
        strv_add(&given, flags->v[i]);
    if ((rc = config_check_flags(c, &given, NULL, e)) < 0)
        return rc;
    network = last_given(&given, "network");
    if (!network && policy->set && policy->words.n)
        network = policy->words.v[0];
    for (size_t i = 0; i < n_config_keys; i++) {
        const char *name = config_keys[i].name;
        /* rules for what nobody can reach anyway */
        if (str_eq(network, "none") && str_starts(name, "network.") &&
            strcmp(name, "network.policy") != 0 && strcmp(name, "network.publish") != 0)
            continue;
        if ((rc = apply_key(c, i, &given, sink, ctx, e)) < 0)
            return rc;
    }
    return 0;
}
