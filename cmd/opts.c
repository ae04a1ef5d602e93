/* cmd/opts.c - words on the command line: options from a descriptor, commands by name, mistakes.
 * Uses: getopt_long, and with it optind: one command is parsed at a time.
 */
#include <assert.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <string.h>

#include "base/json.h"
#include "cmd/cmd.h"

enum { MAX_OPTS = 64, LONG_BASE = 256, WORDS = 128 };

/* Whether --json is among the flags, parsed or not: a mistake on the command line is an object, too. Set once, before
 * a command runs. */
static bool want_json;

/* One line on stderr in one write; what a user or a sandbox wrote in it stays harmless. */
static void say(const char *prefix, const char *fmt, va_list ap)
{
    AUTOFREE char *text = NULL;
    AUTOSTR struct str line = STR_INIT;

    if (vasprintf(&text, fmt, ap) < 0)
        abort();
    str_add(&line, prefix);
    str_add(&line, ": ");
    str_add_escaped(&line, text, strlen(text));
    str_addc(&line, '\n');
    fflush(stdout); /* keeps the order where both go to one place */
    fwrite(line.p, 1, line.len, stderr);
}

int cmd_fail(int status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say("petri", fmt, ap);
    va_end(ap);
    return status;
}

void cmd_say(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say("petri", fmt, ap);
    va_end(ap);
}

static struct strv *kept_notes;

void cmd_keep_notes(struct strv *l)
{
    kept_notes = l;
}

bool cmd_keeps_notes(void)
{
    return kept_notes;
}

void cmd_note(const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    if (!kept_notes)
        say("petri", fmt, ap);
    else if (vasprintf(&text, fmt, ap) >= 0)
        strv_take(kept_notes, text);
    va_end(ap);
}

int cmd_output_lost(int error, int status)
{
    return error ? cmd_fail(status ? status : 125, "output of the command was lost: %s",
                            strerror(error))
                 : status;
}

static void print_error(enum err_code code, const char *text)
{
    AUTOJSONW struct jsonw w = { 0 };
    jw_obj(&w, NULL);
    jw_obj(&w, "error");
    jw_str(&w, "code", err_code_name(code));
    jw_bytes(&w, "message", text, strlen(text));
    jw_end_obj(&w);
    jw_end_obj(&w);
    printf("%s\n", w.out.p);
}

int cmd_fail_err(int status, struct err *e, bool json)
{
    AUTOFREE char *text = e ? err_text(e) : str_dup("failed for a reason nobody gave");
    if (json)
        print_error(e ? e->code : ERR_INTERNAL, text);
    cmd_fail(status, "%s", text);
    err_free(e);
    return status;
}

int cmd_usage(const struct cmd *c, const char *fmt, ...)
{
    AUTOFREE char *text = NULL, *whole = NULL;
    char path[64];
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        abort();
    va_end(ap);
    cmd_path(c, path);
    whole = str_printf("%s: %s; see petri %s --help", path, text, path);
    if (want_json)
        print_error(ERR_USAGE, whole);
    return cmd_fail(c->usage_exit ? c->usage_exit : 2, "%s", whole);
}

bool cmd_colour(FILE *out)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return !(no && *no) && term && strcmp(term, "dumb") && isatty(fileno(out));
}

/* --- options --------------------------------------------------------------------------------- */

static const struct opt *find_long(const struct cmd *c, const char *name, size_t len)
{
    for (size_t i = 0; i < c->n_opts; i++)
        if (!strncmp(c->opts[i].name, name, len) && !c->opts[i].name[len])
            return &c->opts[i];
    return NULL;
}

static const struct opt *find_letter(const struct cmd *c, int letter)
{
    for (size_t i = 0; i < c->n_opts; i++)
        if (c->opts[i].letter == letter)
            return &c->opts[i];
    return NULL;
}

static void unknown_long(const struct cmd *c, const char *word, size_t len)
{
    const char *names[MAX_OPTS + 1], *near;
    AUTOFREE char *name = mem_dup(word, len + 1);

    name[len] = 0;
    for (size_t i = 0; i < c->n_opts; i++)
        names[i] = c->opts[i].name;
    names[c->n_opts] = "help";
    near = nearest_word(name, names, c->n_opts + 1);
    if (near)
        cmd_usage(c, "unknown option '--%s' (did you mean '--%s'?)", name, near);
    else
        cmd_usage(c, "unknown option '--%s'", name);
}

/* A long option must be written out: a prefix that is unique today is not tomorrow. */
static bool check_long(const struct cmd *c, const char *word)
{
    size_t len = strcspn(word, "=");
    const struct opt *o = find_long(c, word, len);

    if (len == 4 && !strncmp(word, "help", 4))
        return true;
    if (!o)
        unknown_long(c, word, len);
    else if (!o->arg && word[len])
        cmd_usage(c, "option '--%s' takes no value, it was given '%s'", o->name, word + len + 1);
    else
        return true;
    return false;
}

static const struct opt *show_help(const struct cmd *c)
{
    help_command(c, stdout);
    exit(fflush(stdout) || ferror(stdout) ? 1 : 0);
}

/* `mixed`: flags may come after words; getopt_long moves those to the end. */
static const struct opt *next_opt(const struct cmd *c, int argc, char **argv, bool mixed,
                                  const char **value, bool *bad)
{
    struct option longs[MAX_OPTS + 2] = { 0 };
    char shorts[2 * MAX_OPTS + 8] = "+:", *s = shorts + 2;
    const char *word;
    int got, at = optind ? optind : 1;

    while (mixed && at < argc && (argv[at][0] != '-' || !argv[at][1]))
        at++;
    word = at < argc ? argv[at] : NULL;

    assert(c->n_opts <= MAX_OPTS);
    *bad = false;
    for (size_t i = 0; i < c->n_opts; i++) {
        const struct opt *o = &c->opts[i];
        longs[i] = (struct option){ o->name, o->arg ? required_argument : no_argument, NULL,
                                    LONG_BASE + (int)i };
        if (o->letter)
            *s++ = o->letter;
        if (o->letter && o->arg)
            *s++ = ':';
    }
    longs[c->n_opts] = (struct option){ "help", no_argument, NULL, LONG_BASE + MAX_OPTS };
    if (!find_letter(c, 'h'))
        *s++ = 'h';

    if (word && str_starts(word, "--") && word[2] && !check_long(c, word + 2)) {
        *bad = true;
        return NULL;
    }
    opterr = 0;
    got = getopt_long(argc, argv, shorts + mixed, longs, NULL);
    *value = optarg;
    if (got < 0)
        return NULL;
    if (got == LONG_BASE + MAX_OPTS || (got == 'h' && !find_letter(c, 'h')))
        return show_help(c);
    if (got >= LONG_BASE)
        return &c->opts[got - LONG_BASE];
    if (got != '?' && got != ':')
        return find_letter(c, got);
    *bad = true;
    if (got == '?')
        cmd_usage(c, "unknown option '-%c'", optopt);
    else if (optopt >= LONG_BASE && optopt < LONG_BASE + MAX_OPTS)
        cmd_usage(c, "option '--%s' needs a value (%s)", c->opts[optopt - LONG_BASE].name,
                  c->opts[optopt - LONG_BASE].arg);
    else
        cmd_usage(c, "option '-%c' needs a value (%s)", optopt, find_letter(c, optopt)->arg);
    return NULL;
}

const struct opt *cmd_next_opt(const struct cmd *c, int argc, char **argv, const char **value,
                               bool *bad)
{
    return next_opt(c, argc, argv, false, value, bad);
}

const struct opt *cmd_next_mixed(const struct cmd *c, int argc, char **argv, const char **value,
                                 bool *bad)
{
    return next_opt(c, argc, argv, true, value, bad);
}

/* --- commands -------------------------------------------------------------------------------- */

static bool has_word(const char *words, const char *word)
{
    size_t n = strchr(word, ' ') ? 0 : strlen(word);
    for (const char *p = words; n && p && (p = strstr(p, word)); p += n)
        if ((p == words || p[-1] == ' ') && (!p[n] || p[n] == ' '))
            return true;
    return false;
}

const struct cmd *cmd_find_in(const struct cmd *const *list, const char *name)
{
    for (; list && *list; list++)
        if (!strcmp((*list)->name, name) || has_word((*list)->aliases, name))
            return *list;
    return NULL;
}

const struct cmd *cmd_find(const char *name)
{
    return cmd_find_in(commands, name);
}

const char *cmd_path(const struct cmd *c, char buf[64])
{
    for (size_t i = 0; commands[i]; i++)
        for (size_t j = 0; commands[i]->subs && commands[i]->subs[j]; j++)
            if (commands[i]->subs[j] == c) {
                snprintf(buf, 64, "%s %s", commands[i]->name, c->name);
                return buf;
            }
    snprintf(buf, 64, "%s", c->name);
    return buf;
}

void cmd_suggest(const struct cmd *const *list, const char *word, struct str *out)
{
    AUTOSTRV struct strv all = { 0 }; /* names and aliases */
    const struct cmd *seen[2] = { 0 };

    for (size_t i = 0; list[i]; i++) {
        AUTOFREE char *more = str_dup(list[i]->aliases);
        char *save = NULL;
        if (list[i]->hidden)
            continue;
        strv_add(&all, list[i]->name);
        for (char *a = more ? strtok_r(more, " ", &save) : NULL; a; a = strtok_r(NULL, " ", &save))
            strv_add(&all, a);
    }
    for (int k = 0; k < 2; k++) {
        const char *left[WORDS], *near;
        size_t n = 0;
        for (size_t i = 0; i < all.n && n < WORDS; i++) {
            const struct cmd *c = cmd_find_in(list, all.v[i]);
            if (c != seen[0])
                left[n++] = all.v[i];
        }
        near = nearest_word(word, left, n);
        if (!near)
            break;
        seen[k] = cmd_find_in(list, near);
        str_addf(out, k ? " or '%s'" : " (did you mean '%s'", near);
    }
    if (out->len)
        str_add(out, "?)");
}

bool cmd_have_stdio(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
            return false;
    return true;
}

int cmd_exec(const struct cmd *c, int argc, char **argv)
{
    optind = 0;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0 && !want_json; i++)
        want_json = strcmp(argv[i], "--json") == 0;
    int status = c->run(c, argc, argv);
    if ((fflush(stdout) || ferror(stdout)) && !status) {
        int bad = c->usage_exit > 2 ? c->usage_exit : 1;
        return cmd_fail(bad, "can't write the answer to stdout: %s", strerror(errno));
    }
    return status;
}

int cmd_run_sub(const struct cmd *c, int argc, char **argv)
{
    const char *value;
    bool bad;

    while (cmd_next_opt(c, argc, argv, &value, &bad))
        ;
    if (bad)
        return c->usage_exit ? c->usage_exit : 2;
    if (optind >= argc) {
        help_command(c, stderr);
        return 2;
    }
    const struct cmd *sub = cmd_find_in(c->subs, argv[optind]);
    if (!sub) {
        AUTOSTR struct str hint = STR_INIT;
        cmd_suggest(c->subs, argv[optind], &hint);
        return cmd_usage(c, "'%s' is no %s command%s", argv[optind], c->name,
                         hint.len ? hint.p : "");
    }
    int skip = optind;
    return cmd_exec(sub, argc - skip, argv + skip);
}
