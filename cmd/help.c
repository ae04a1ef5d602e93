/* cmd/help.c - what petri says about itself, derived from the descriptors: overview, help of one
 * command, and the commands `help` and `version`. Man pages are in cmd/man.c.
 */
#include <string.h>

#include "base/json.h"
#include "cmd/cmd.h"

enum { WIDTH = 80, COLUMN = 26 };

/* Commands in the order people meet them; what does not exist is left out, what is missing here
 * is listed under the last title. */
static const struct {
    const char *title, *names;
} groups[] = {
    { "Sandboxes",
      "run start stop restart refresh exec shell ls rm logs cp fs inspect jobs wait kill tool" },
    { "Look back", "status diff snapshot rollback fork history" },
    { "Compare", "experiment try" },
    { "Bring home", "promote approve undo redo stages receipts" },
    { "Limits", "net port elevate config init cache" },
    { "Images", "image" },
    { "Around", "tui web doctor audit prune fsck" },
    { "Programs", "mcp events statusline completion help version" },
    { "Others", "" },
};

static const struct {
    const char *verb, *line, *what;
} starters[] = {
    { "run", "petri run -- npm test", "one command in a throw-away copy" },
    { "run", "petri run --json -- make test", "the same, as one JSON object for a program" },
    { "start", "petri start; petri shell", "a sandbox for this project" },
    { "try", "petri try 'rm -rf src/old'", "what would happen? nothing real changes" },
    { "doctor", "petri doctor", "what works on this machine, and what to do" },
};

struct style {
    const char *bold, *off;
};

static struct style style_of(FILE *out)
{
    return cmd_colour(out) ? (struct style){ "\033[1m", "\033[0m" } : (struct style){ "", "" };
}

/* Prints text from column `at` on, wrapped at WIDTH, continuation lines indented by `indent`. */
static void wrap(FILE *out, const char *text, size_t n, int at, int indent)
{
    const char *end = text + n;
    bool first = true;

    while (text < end) {
        text += strspn(text, " \n");
        int len = (int)strcspn(text, " \n");
        if (len > end - text)
            len = (int)(end - text);
        if (len <= 0)
            break;
        if (!first && at + 1 + len > WIDTH) {
            fprintf(out, "\n%*s", indent, "");
            at = indent;
        } else if (!first) {
            fputc(' ', out);
            at++;
        }
        fprintf(out, "%.*s", len, text);
        at += len;
        text += len;
        first = false;
    }
    fputc('\n', out);
}

/* Two columns: `left` at 2, `right` at COLUMN. */
static void two_columns(FILE *out, const char *left, const char *right)
{
    int n = fprintf(out, "  %s", left);
    if (n + 2 > COLUMN) {
        fputc('\n', out);
        n = 0;
    }
    fprintf(out, "%*s", COLUMN - n, "");
    wrap(out, right, strlen(right), COLUMN, COLUMN);
}

static bool in_words(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = words; (p = strstr(p, word)); p += n)
        if ((p == words || p[-1] == ' ') && (!p[n] || p[n] == ' '))
            return true;
    return false;
}

static bool in_some_group(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(groups); i++)
        if (in_words(groups[i].names, name))
            return true;
    return false;
}

/* The commands of one group that exist, in the group's order. */
static void group_members(size_t g, struct strv *ret)
{
    AUTOFREE char *names = str_dup(groups[g].names);
    char *save = NULL;

    for (char *w = strtok_r(names, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        const struct cmd *c = cmd_find_in(commands, w);
        if (c && !c->hidden && !strcmp(c->name, w))
            strv_add(ret, w);
    }
    if (g == ARRAY_LEN(groups) - 1)
        for (size_t i = 0; commands[i]; i++)
            if (!commands[i]->hidden && !in_some_group(commands[i]->name))
                strv_add(ret, commands[i]->name);
}

void help_overview(FILE *out)
{
    struct style st = style_of(out);

    fprintf(out, "%spetri%s: copies of your project, in milliseconds, to break without harm\n\n",
            st.bold, st.off);
    for (size_t i = 0; i < ARRAY_LEN(starters); i++)
        if (cmd_find(starters[i].verb))
            fprintf(out, "  %-32s %s\n", starters[i].line, starters[i].what);
    for (size_t g = 0; g < ARRAY_LEN(groups); g++) {
        AUTOSTRV struct strv members = { 0 };
        group_members(g, &members);
        if (members.n)
            fprintf(out, "\n%s%s%s\n", st.bold, groups[g].title, st.off);
        for (size_t i = 0; i < members.n; i++)
            fprintf(out, "  %-12s %s\n", members.v[i], cmd_find(members.v[i])->summary);
    }
    fprintf(out, "\nEvery command: petri COMMAND --help. A program reads --json.\n");
}

static void help_opts(const struct cmd *c, FILE *out)
{
    struct style st = style_of(out);

    fprintf(out, "\n%sOptions%s\n", st.bold, st.off);
    for (size_t i = 0; i < c->n_opts; i++) {
        const struct opt *o = &c->opts[i];
        AUTOSTR struct str left = STR_INIT;
        str_addf(&left, o->letter ? "-%c, " : "    ", o->letter);
        str_addf(&left, "--%s%s%s", o->name, o->arg ? " " : "", o->arg ? o->arg : "");
        two_columns(out, left.p, o->help);
    }
    two_columns(out, "    --help", "this text");
}

/* Paragraphs are wrapped; lines that start with a space stay as they are. */
static void help_about(const char *text, FILE *out)
{
    while (*text) {
        size_t n = strcspn(text, "\n");
        if (*text == ' ') {
            fprintf(out, "%.*s\n", (int)n, text);
        } else if (n) {
            const char *end = text + n;
            while (*end && end[1] && end[1] != '\n' && end[1] != ' ')
                end += 1 + strcspn(end + 1, "\n");
            n = (size_t)(end - text);
            wrap(out, text, n, 0, 0);
        } else {
            fputc('\n', out);
        }
        text += n;
        text += *text == '\n';
    }
}

static void help_examples(const char *text, FILE *out)
{
    size_t width = 0;
    for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n') {
        size_t n = strcspn(p, "\t\n");
        width = n > width && n < 44 ? n : width;
    }
    for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n') {
        size_t n = strcspn(p, "\t\n"), rest = p[n] == '\t' ? strcspn(p + n + 1, "\n") : 0;
        if (rest && n <= width)
            fprintf(out, "  %-*.*s  %.*s\n", (int)width, (int)n, p, (int)rest, p + n + 1);
        else if (rest)
            fprintf(out, "  %.*s\n      %.*s\n", (int)n, p, (int)rest, p + n + 1);
        else
            fprintf(out, "  %.*s\n", (int)n, p);
    }
}

void help_command(const struct cmd *c, FILE *out)
{
    struct style st = style_of(out);
    char path[64];

    cmd_path(c, path);
    fprintf(out, "%spetri %s%s: %s\n\n", st.bold, path, st.off, c->summary);
    fprintf(out, "%sUsage%s  petri %s%s%s\n", st.bold, st.off, path,
            c->usage && *c->usage ? " " : "", c->usage ? c->usage : "");
    if (c->aliases)
        fprintf(out, "%sAlso%s   %s\n", st.bold, st.off, c->aliases);
    if (c->about) {
        fputc('\n', out);
        help_about(c->about, out);
    }
    if (c->subs)
        fprintf(out, "\n%sCommands%s\n", st.bold, st.off);
    for (size_t i = 0; c->subs && c->subs[i]; i++)
        if (!c->subs[i]->hidden)
            two_columns(out, c->subs[i]->name, c->subs[i]->summary);
    help_opts(c, out);
    if (c->examples) {
        fprintf(out, "\n%sExamples%s\n", st.bold, st.off);
        help_examples(c->examples, out);
    }
    if (c->subs)
        fprintf(out, "\nMore: petri %s COMMAND --help\n", path);
}

/* --- petri help, petri version --------------------------------------------------------------- */

static const struct opt help_opts_table[] = {
    { "man", 0, "NAME", "write the man page of a command, or of petri itself, to stdout", "petri" },
    { "man-all", 0, "DIR", "write petri.1 and petri-NAME.1 of every command into DIR", "dir" },
};

static int help_one(int argc, char **argv)
{
    const struct cmd *const *list = commands, *c = NULL;
    for (int i = 0; i < argc; i++) {
        const struct cmd *sub = cmd_find_in(list, argv[i]);
        if (!sub) {
            AUTOSTR struct str hint = STR_INIT;
            static const struct cmd *const none[] = { NULL };
            cmd_suggest(list ? list : none, argv[i], &hint);
            return cmd_fail(2, "no help for '%s', there is no such command%s", argv[i],
                            hint.len ? hint.p : "");
        }
        c = sub;
        list = sub->subs;
    }
    help_command(c, stdout);
    return 0;
}

static int help_run(const struct cmd *c, int argc, char **argv)
{
    const struct opt *o;
    const char *value, *man = NULL, *dir = NULL;
    bool bad;

    while ((o = cmd_next_opt(c, argc, argv, &value, &bad)))
        *(str_eq(o->name, "man") ? &man : &dir) = value;
    if (bad)
        return c->usage_exit;
    if ((man || dir) && optind < argc)
        return cmd_usage(c, "'%s' is one word too many", argv[optind]);
    if (dir) {
        struct err *e = NULL;
        return help_man_all(dir, &e) < 0 ? cmd_fail_err(1, e, false) : 0;
    }
    if (man) {
        const struct cmd *m = cmd_find(man);
        if (!m && strcmp(man, "petri"))
            return cmd_usage(c, "no man page for '%s', there is no such command", man);
        help_man(m, stdout);
        return 0;
    }
    if (optind < argc)
        return help_one(argc - optind, argv + optind);
    help_overview(stdout);
    return 0;
}

const struct cmd cmd_help = {
    .name = "help",
    .summary = "explain petri or one of its commands",
    .usage = "[COMMAND...] | --man NAME | --man-all DIR",
    .examples = "petri help run\twhat run does, with all its options\n"
                "petri help --man run | man -l -\tthe same as a man page",
    .opts = help_opts_table,
    .n_opts = ARRAY_LEN(help_opts_table),
    .complete = "petri",
    .usage_exit = 2,
    .run = help_run,
};

static const struct opt version_opts[] = {
    { "json", 0, NULL, "one JSON object", NULL },
};

static int version_run(const struct cmd *c, int argc, char **argv)
{
    const char *value;
    bool bad, json = false;

    while (cmd_next_opt(c, argc, argv, &value, &bad))
        json = true;
    if (bad)
        return c->usage_exit;
    if (optind < argc)
        return cmd_usage(c, "'%s' is one word too many", argv[optind]);
    if (json) {
        AUTOJSONW struct jsonw w = { 0 };
        jw_obj(&w, NULL);
        jw_str(&w, "version", PETRI_VERSION);
        jw_end_obj(&w);
        printf("%s\n", w.out.p);
    } else {
        printf("petri " PETRI_VERSION "\n");
    }
    return 0;
}

const struct cmd cmd_version = {
    .name = "version",
    .summary = "print the version, as petri --version does",
    .usage = "[--json]",
    .opts = version_opts,
    .n_opts = ARRAY_LEN(version_opts),
    .usage_exit = 2,
    .run = version_run,
};
