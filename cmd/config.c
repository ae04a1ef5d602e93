/* cmd/config.c - `petri config`: what is configured, where it comes from, and changing it. */
#include "cmd/config.h"

#include <getopt.h>
#include <limits.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "cmd/config_cmds.h"

void config_words_free_p(struct config_words *w)
{
    strv_free_p(&w->operands);
}

bool config_parse(const struct cmd *c, int argc, char **argv, size_t least, size_t most,
                  struct config_words *ret)
{
    const struct opt *o;
    const char *value = NULL;
    bool bad = false;

    ret->how.status = 1;
    for (;;) {
        while ((o = cmd_next_opt(c, argc, argv, &value, &bad))) {
            ret->how.json |= strcmp(o->name, "json") == 0;
            ret->origin |= strcmp(o->name, "origin") == 0;
            ret->yes |= strcmp(o->name, "yes") == 0;
            ret->user |= strcmp(o->name, "user") == 0;
            ret->project |= strcmp(o->name, "project") == 0;
            if (strcmp(o->name, "agent") == 0)
                ret->how.agent = value;
            if (strcmp(o->name, "profile") == 0)
                ret->how.profile = value;
        }
        if (bad)
            return false;
        bool last = optind > 0 && optind <= argc && !strcmp(argv[optind - 1], "--");
        if (optind >= argc)
            break;
        do
            strv_add(&ret->operands, argv[optind++]);
        while (last && optind < argc);
        if (last)
            break;
    }
    if (ret->operands.n < least)
        return cmd_usage(c, "a word is missing"), false;
    if (ret->operands.n > most)
        return cmd_usage(c, "'%s' is one word too many", ret->operands.v[most]), false;
    return true;
}

int config_key_of(const struct cmd *c, const char *word)
{
    int key = key_find(word);
    if (key < 0) {
        const char *names[64], *near;
        for (size_t i = 0; i < n_config_keys; i++)
            names[i] = config_keys[i].name;
        near = nearest_word(word, names, n_config_keys);
        if (!near && key_find_flat(word) >= 0)
            near = config_keys[key_find_flat(word)].name;
        if (near)
            cmd_usage(c, "unknown key '%s' (did you mean '%s'?)", word, near);
        else
            cmd_usage(c, "unknown key '%s'; petri config show lists all", word);
    }
    return key;
}

/* --- show ---------------------------------------------------------------------------------------- */

/* A value in one line, as it would stand in a file. */
static char *value_text(size_t key, const struct strv *words)
{
    AUTOJSONW struct jsonw w = { 0 };
    key_write(&config_keys[key], words, &w, NULL);
    return str_take(&w.out);
}

static char *origins(const struct setting *s)
{
    AUTOSTR struct str out = STR_INIT;
    for (size_t i = 0; s->set && i < s->from.n; i++)
        if (i == 0 || strcmp(s->from.v[i], s->from.v[i - 1]) != 0)
            str_addf(&out, "%s%s", i ? ", " : "", s->from.v[i]);
    if (!out.len)
        str_add(&out, "default");
    return str_take(&out);
}

static void show_lines(const struct config *c, bool origin)
{
    for (size_t i = 0; i < n_config_keys; i++) {
        AUTOSTRV struct strv words = { 0 };
        AUTOSTR struct str line = STR_INIT;
        config_value(c, i, &words);
        AUTOFREE char *value = value_text(i, &words), *from = origins(&c->set[i]);
        str_addf(&line, "%-27s ", config_keys[i].name);
        str_add_escaped(&line, value, strlen(value));
        if (origin) {
            for (size_t n = line.len; n < 48; n++)
                str_addc(&line, ' ');
            str_add(&line, "  ");
            str_add_escaped(&line, from, strlen(from));
        }
        puts(line.p);
    }
    for (size_t i = 0; i < c->waiting_at.n; i++)
        cmd_note("waits for petri config trust: %s", c->waiting_at.v[i]);
    for (size_t i = 0; i < c->locked.n; i++)
        cmd_note("left out: %s", c->locked.v[i]);
}

/* Opens and closes objects until those that hold key `name` are open; returns its last word. */
static const char *open_groups(struct jsonw *w, const char *name, struct strv *open)
{
    size_t depth = 0;
    const char *dot;

    for (; (dot = strchr(name, '.')); name = dot + 1, depth++) {
        AUTOFREE char *group = str_printf("%.*s", (int)(dot - name), name);
        if (depth < open->n && strcmp(open->v[depth], group) == 0)
            continue;
        for (; open->n > depth; free(open->v[--open->n]))
            jw_end_obj(w);
        jw_obj(w, group);
        strv_add(open, group);
    }
    for (; open->n > depth; free(open->v[--open->n]))
        jw_end_obj(w);
    return name;
}

static void show_json(const struct config *c, bool origin)
{
    AUTOJSONW struct jsonw w = { .pretty = true };
    AUTOSTRV struct strv open = { 0 };

    jw_obj(&w, NULL);
    jw_obj(&w, "sandbox");
    for (size_t i = 0; i < n_config_keys; i++) {
        AUTOSTRV struct strv words = { 0 };
        const char *name = open_groups(&w, config_keys[i].name, &open);
        config_value(c, i, &words);
        if (!origin) {
            key_write(&config_keys[i], &words, &w, name);
            continue;
        }
        AUTOFREE char *from = origins(&c->set[i]);
        jw_obj(&w, name);
        key_write(&config_keys[i], &words, &w, "value");
        jw_str(&w, "origin", from);
        jw_end_obj(&w);
    }
    (void)open_groups(&w, "", &open);
    jw_end_obj(&w);
    jw_strv(&w, "files", &c->files);
    jw_strv(&w, "waiting", &c->waiting);
    jw_strv(&w, "locked", &c->locked);
    jw_end_obj(&w);
    puts(w.out.p);
}

static int show_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(config_words_free_p) struct config_words w = { 0 };
    CLEANUP(paths_free_p) struct paths paths = { 0 };
    struct err *e = NULL;

    if (!config_parse(c, argc, argv, 0, 0, &w))
        return 2;
    if (paths_find(&paths, &e) < 0)
        return cmd_fail_err(1, e, w.how.json);
    CLEANUP(config_free_p) struct config *conf = configured_load(&w.how, &paths, false, NULL);
    if (!conf)
        return 1;
    if (w.how.json)
        show_json(conf, w.origin);
    else
        show_lines(conf, w.origin);
    return 0;
}

static int get_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(config_words_free_p) struct config_words w = { 0 };
    CLEANUP(paths_free_p) struct paths paths = { 0 };
    AUTOSTRV struct strv words = { 0 };
    struct err *e = NULL;
    int key;

    if (!config_parse(c, argc, argv, 1, 1, &w) || (key = config_key_of(c, w.operands.v[0])) < 0)
        return 2;
    if (paths_find(&paths, &e) < 0)
        return cmd_fail_err(1, e, w.how.json);
    CLEANUP(config_free_p) struct config *conf = configured_load(&w.how, &paths, false, NULL);
    if (!conf)
        return 1;
    config_value(conf, (size_t)key, &words);
    if (w.how.json) {
        AUTOFREE char *text = value_text((size_t)key, &words);
        puts(text);
        return 0;
    }
    for (size_t i = 0; i < words.n; i++) {
        AUTOSTR struct str line = STR_INIT;
        str_add_escaped(&line, words.v[i], strlen(words.v[i]));
        puts(line.p ? line.p : "");
    }
    return 0;
}

static int check_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(config_words_free_p) struct config_words w = { 0 };
    CLEANUP(paths_free_p) struct paths paths = { 0 };
    CLEANUP(config_free_p) struct config *conf = NULL;
    struct err *e = NULL;

    if (!config_parse(c, argc, argv, 0, 1, &w))
        return 2;
    if (paths_find(&paths, &e) < 0)
        return cmd_fail_err(1, e, false);
    if (w.operands.n) {
        AUTOFREE char *real = fs_realpath(w.operands.v[0]);
        struct config_from from = { .file = real ? real : w.operands.v[0], .trust_all = true };
        if (config_load(&from, &conf, &e) < 0)
            return cmd_fail_err(1, e, false);
        if (!conf->mistakes.n)
            configured_judge(conf);
        for (size_t i = 0; i < conf->mistakes.n; i++)
            cmd_fail(1, "%s", conf->mistakes.v[i]);
        if (conf->mistakes.n)
            return 1;
    } else if (!(conf = configured_load(&w.how, &paths, false, NULL))) {
        return 1;
    }
    for (size_t i = 0; i < conf->files.n; i++) {
        AUTOSTR struct str path = STR_INIT;
        str_add_escaped(&path, conf->files.v[i], strlen(conf->files.v[i]));
        printf("ok %s\n", path.p);
    }
    if (!conf->files.n)
        puts("ok: no configuration, defaults are used");
    for (size_t i = 0; i < conf->waiting_at.n; i++)
        cmd_note("waits for petri config trust: %s", conf->waiting_at.v[i]);
    return 0;
}

static int schema_run(const struct cmd *c, int argc, char **argv)
{
    CLEANUP(config_words_free_p) struct config_words w = { 0 };
    AUTOFREE char *text = NULL;
    if (!config_parse(c, argc, argv, 0, 0, &w))
        return 2;
    text = config_schema();
    puts(text);
    return 0;
}

#define JSON_OPT                                                                                   \
    {                                                                                              \
        "json", 0, NULL, "print JSON", NULL                                                        \
    }
#define WHO_OPTS                                                                                   \
    { "agent", 0, "NAME", "with the values of this agent", NULL },                                 \
    {                                                                                              \
        "profile", 0, "NAME", "with this profile: untrusted, user or trusted",                     \
            "untrusted|user|trusted"                                                               \
    }

static const struct opt show_opts[] = {
    { "origin", 0, NULL, "where each value comes from", NULL },
    JSON_OPT,
    WHO_OPTS,
};
static const struct opt get_opts[] = { JSON_OPT, WHO_OPTS };
static const struct opt set_opts[] = {
    { "user", 0, NULL, "in the user's own file", NULL },
    { "project", 0, NULL, "in the project's petri.json (the default)", NULL },
};
static const struct opt trust_opts[] = {
    { "yes", 'y', NULL, "do not ask", NULL },
};

static const struct cmd config_show = {
    .name = "show",
    .summary = "print all values that count here",
    .usage = "[--origin] [--json] [--agent NAME] [--profile NAME]",
    .opts = show_opts,
    .n_opts = ARRAY_LEN(show_opts),
    .usage_exit = 2,
    .run = show_run,
};
static const struct cmd config_check = {
    .name = "check",
    .summary = "look for mistakes in all files, or in one",
    .usage = "[FILE]",
    .complete = "file",
    .usage_exit = 2,
    .run = check_run,
};
static const struct cmd config_get = {
    .name = "get",
    .summary = "print one value",
    .usage = "[--json] KEY",
    .opts = get_opts,
    .n_opts = ARRAY_LEN(get_opts),
    .complete = "key",
    .usage_exit = 2,
    .run = get_run,
};
static const struct cmd config_set = {
    .name = "set",
    .summary = "set one value in a file; comments and layout stay",
    .usage = "[--user | --project] KEY VALUE",
    .about = "A list is written as a,b or as [\"a\", \"b\"], a map as {\"NAME\": \"value\"}.",
    .examples = "petri config set resources.memory 4G\tin this project\n"
                "petri config set --user network allowlist\tfor all projects",
    .opts = set_opts,
    .n_opts = ARRAY_LEN(set_opts),
    .complete = "key",
    .usage_exit = 2,
    .run = config_set_run,
};
static const struct cmd config_unset_ = {
    .name = "unset",
    .summary = "take one value out of a file; comments and layout stay",
    .usage = "[--user | --project] KEY",
    .opts = set_opts,
    .n_opts = ARRAY_LEN(set_opts),
    .complete = "key",
    .usage_exit = 2,
    .run = config_unset_run,
};
static const struct cmd config_schema_ = {
    .name = "schema",
    .summary = "print the JSON schema of petri.json",
    .usage = "",
    .usage_exit = 2,
    .run = schema_run,
};
static const struct cmd config_trust = {
    .name = "trust",
    .summary = "let all values of this project's files count",
    .usage = "[--yes]",
    .about = "Shows what the files would loosen and asks. The trust ends when a file changes.",
    .opts = trust_opts,
    .n_opts = ARRAY_LEN(trust_opts),
    .usage_exit = 2,
    .run = config_trust_run,
};
static const struct cmd config_untrust = {
    .name = "untrust",
    .summary = "take that back",
    .usage = "",
    .usage_exit = 2,
    .run = config_untrust_run,
};

static const struct cmd *const subs[] = { &config_show,   &config_get,     &config_set,
                                          &config_unset_, &config_check,   &config_schema_,
                                          &config_trust,  &config_untrust, NULL };

extern const struct cmd cmd_config;
const struct cmd cmd_config = {
    .name = "config",
    .summary = "what is configured, and where it comes from",
    .usage = "COMMAND",
    .about =
        "Values come from /etc/petri/config.json, ~/.config/petri/config.json, the project's "
        "petri.json and PETRI_* variables; later ones win, flags over all. A project's file can "
        "only tighten until you trust it.",
    .examples = "petri config show --origin\tall values and where they come from\n"
                "petri config set network allowlist\tchange one in this project\n"
                "petri config unset network\ttake it out again\n"
                "petri config trust\tlet this project's file loosen things",
    .subs = subs,
    .usage_exit = 2,
    .run = cmd_run_sub,
};
