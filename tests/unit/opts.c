/* Options from a descriptor: every way to write them, every way to get them wrong. */
#include "tests/unit/check.h"

#include <fcntl.h>
#include <getopt.h>

#include "cmd/cmd.h"

static const struct opt table[] = {
    { "memory", 'm', "SIZE", "memory", NULL },      { "env", 'e', "NAME", "a variable", NULL },
    { "interactive", 'i', NULL, "a switch", NULL }, { "tty", 't', NULL, "a switch", NULL },
    { "json", 0, NULL, "a switch", NULL },          { "host", 'h', NULL, "takes -h away", NULL },
};
static const struct cmd test_cmd = {
    .name = "test",
    .summary = "a test",
    .opts = table,
    .n_opts = ARRAY_LEN(table),
    .usage_exit = 125,
};

/* Parses words (split at '|'); "memory=1 tty | a b" or "bad". */
static char *parse(const char *words)
{
    struct str out = STR_INIT;
    AUTOSTRV struct strv argv = { 0 };
    AUTOFREE char *copy = str_dup(words);
    const struct opt *o;
    const char *value;
    char *save = NULL;
    bool bad;

    strv_add(&argv, "test");
    for (char *w = strtok_r(copy, "|", &save); w; w = strtok_r(NULL, "|", &save))
        strv_add(&argv, strcmp(w, "EMPTY") ? w : "");
    optind = 0;
    while ((o = cmd_next_opt(&test_cmd, (int)argv.n, argv.v, &value, &bad)))
        str_addf(&out, "%s%s%s ", o->name, o->arg ? "=" : "", o->arg ? value : "");
    if (bad) {
        str_reset(&out);
        str_add(&out, "bad");
        return str_take(&out);
    }
    str_add(&out, ":");
    for (size_t i = (size_t)optind; i < argv.n; i++)
        str_addf(&out, " %s", argv.v[i]);
    return str_take(&out);
}

static void ways(void)
{
    static const struct {
        const char *in, *want;
    } rows[] = {
        { "", ":" },
        { "-m512M", "memory=512M :" },
        { "-m|512M", "memory=512M :" },
        { "--memory=512M", "memory=512M :" },
        { "--memory|512M|x", "memory=512M : x" },
        { "--memory=", "memory= :" },
        { "--memory|EMPTY|x", "memory= : x" },
        { "-it|cmd", "interactive tty : cmd" },
        { "-itm|1|cmd", "interactive tty memory=1 : cmd" },
        { "-itm1|cmd", "interactive tty memory=1 : cmd" },
        { "-e|A=1|-eB=2|--env=C=3", "env=A=1 env=B=2 env=C=3 :" },
        { "-m|-1", "memory=-1 :" },
        { "--memory|--json", "memory=--json :" },
        { "cmd|-m|1", ": cmd -m 1" }, /* what follows the first word is the command's */
        { "--json|--|-m|1", "json : -m 1" },
        { "--", ":" },
        { "-", ": -" },
        { "-h", "host :" }, /* a descriptor may use -h */
        { "--memroy|1", "bad" },
        { "--mem|1", "bad" }, /* no abbreviations */
        { "--json=1", "bad" },
        { "--json=", "bad" },
        { "--=x", "bad" },
        { "-m", "bad" },
        { "--memory", "bad" },
        { "-Z", "bad" },
        { "-iZ", "bad" },
        { "-i|--nope|cmd", "bad" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTOFREE char *got = parse(rows[i].in);
        CHECK(!strcmp(got, rows[i].want), "%s: got '%s', want '%s'", rows[i].in, got, rows[i].want);
    }
}

static void names(void)
{
    static const struct cmd one = { .name = "start", .aliases = "up go" },
                            two = { .name = "status" }, three = { .name = "art", .hidden = true };
    static const struct cmd *const list[] = { &one, &two, &three, NULL };
    static const struct {
        const char *word, *want;
    } rows[] = {
        { "strat", " (did you mean 'start'?)" },
        { "statsu", " (did you mean 'status' or 'start'?)" },
        { "xyzzy", NULL },
        { "aart", " (did you mean 'start'?)" }, /* never a hidden one */
    };

    CHECK(cmd_find_in(list, "up") == &one && cmd_find_in(list, "go") == &one, "aliases");
    CHECK(cmd_find_in(list, "start") == &one && cmd_find_in(list, "art") == &three, "names");
    CHECK(!cmd_find_in(list, "u") && !cmd_find_in(list, "") && !cmd_find_in(list, "up go"),
          "parts");
    CHECK(!cmd_find_in(NULL, "up"), "no list");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTOSTR struct str s = STR_INIT;
        cmd_suggest(list, rows[i].word, &s);
        CHECK_STR(s.p, rows[i].want);
    }
}

int main(void)
{
    /* what is said about mistakes is tested on the command line */
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC), talk = dup(STDERR_FILENO);
    dup2(null, STDERR_FILENO);
    ways();
    dup2(talk, STDERR_FILENO);
    if (check_failed)
        ways(); /* again, to be seen */
    names();
    close(null);
    close(talk);
    return check_done();
}
