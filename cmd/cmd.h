/* cmd/cmd.h - one descriptor per command; parsing, help, man pages and completion derive from it.
 * cmd/ is the only room that prints: answers on stdout, talk on stderr.
 *
 * A command with sub-commands (image ls, image import) lists their descriptors in `subs` and has
 * `.run = cmd_run_sub`: dispatch, help, man pages and completion follow. A sub-command's `name` is
 * its own word ("ls"); its run() gets argv[0] = "ls".
 */
#pragma once
#include <stdbool.h>
#include <stdio.h>

#include "base/err.h"
#include "base/str.h"

struct opt {
    const char *name; /* long name without dashes */
    char letter;      /* short form, or 0 */
    const char *arg;  /* name of its value, NULL: a switch */
    const char *help; /* one sentence, no full stop */
    /* What completion offers: "dir", "file", "image", "user" or words "a|b|c"; may be NULL. */
    const char *complete;
};

struct cmd {
    const char *name;
    const char *aliases;  /* "up" or "ls ps", may be NULL */
    const char *summary;  /* one line, lower case, no full stop */
    const char *usage;    /* what follows the name: "[flags] [--] CMD..." */
    const char *about;    /* paragraphs for help and the man page, may be NULL */
    const char *examples; /* lines "petri run -- make test\twhat it does", may be NULL */
    const struct opt *opts;
    size_t n_opts;
    /* What completion offers for operands: as for options, and "command" (a program, then files)
     * or "petri" (petri's own commands); may be NULL. */
    const char *complete;
    const struct cmd *const *subs; /* NULL-terminated, may be NULL */
    bool hidden;
    int usage_exit; /* 2, or 125 for commands that run other commands */
    int (*run)(const struct cmd *c, int argc, char **argv);
};

extern const struct cmd *const commands[]; /* NULL-terminated, cmd/commands.c */

/* By name or alias, among `list`; NULL: not there. */
const struct cmd *cmd_find_in(const struct cmd *const *list, const char *name);
const struct cmd *cmd_find(const char *name); /* among `commands` */
/* "image ls": the words that lead to the command. */
const char *cmd_path(const struct cmd *c, char buf[64]);
/* Runs one command with its own argv[0]; restarts the option parser, flushes stdout and turns an
 * answer that could not be written into a failure. */
int cmd_exec(const struct cmd *c, int argc, char **argv);
/* The run() of a command with `subs`: argv[1] names the sub-command. */
int cmd_run_sub(const struct cmd *c, int argc, char **argv);
/* " (did you mean 'X' or 'Y'?)" among `list`; adds nothing where no name is near. */
void cmd_suggest(const struct cmd *const *list, const char *word, struct str *out);

/* Walks the options of argv like getopt_long with "+" (stops at the first word). Returns the option,
 * NULL at the end (optind is then the first operand), or sets *bad after it printed the mistake
 * (unknown options name the nearest one) so that the caller returns c->usage_exit.
 * --help is answered inside (prints and exits 0). *value is the option's argument. */
const struct opt *cmd_next_opt(const struct cmd *c, int argc, char **argv, const char **value,
                               bool *bad);
/* The same, but flags may come after words, too. */
const struct opt *cmd_next_mixed(const struct cmd *c, int argc, char **argv, const char **value,
                                 bool *bad);

/* A closed stdin or stdout must not become the number of one of our own sockets; false: it can't be helped. */
bool cmd_have_stdio(void);
/* Prints "petri: MSG" on stderr. Returns `status`, so that `return cmd_fail(...)` reads well. */
int cmd_fail(int status, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Prints the error chain on one line ("petri: ...") and frees it; as JSON {"error":{"code","message"}}
 * on stdout as well when json is true. Returns status. */
int cmd_fail_err(int status, struct err *e, bool json);
/* A command's output could not be written: says so. Returns `status`, or 125 where that would say all is well. */
int cmd_output_lost(int error, int status);
/* "petri: text" on stderr, now: what goes on. */
void cmd_say(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* "petri: note" on stderr: what the user should know of what was done. */
void cmd_note(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* From here on notes go to `l`, for an answer in JSON. */
void cmd_keep_notes(struct strv *l);
bool cmd_keeps_notes(void);
/* True when `out` is a terminal that wants colour (NO_COLOR unset or empty, TERM not dumb). */
bool cmd_colour(FILE *out);
/* Prints a usage mistake with a hint at --help; returns c->usage_exit. */
int cmd_usage(const struct cmd *c, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Help texts, cmd/help.c: everything derives from the descriptors. */
void help_overview(FILE *out);
void help_command(const struct cmd *c, FILE *out);
void help_man(const struct cmd *c, FILE *out);     /* a man(7) page; c == NULL: petri(1) */
int help_man_all(const char *dir, struct err **e); /* petri.1 and petri-NAME.1 for all, cmd/man.c */
