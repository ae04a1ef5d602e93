/* cmd/cmd.h - one descriptor per command; parsing, help, man pages and completion derive from it.
 * cmd/ is the only room that prints: answers on stdout, talk on stderr.
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
    const char *complete; /* what completion offers: "dir", "file", or words "a|b|c"; may be NULL */
};

struct cmd {
    const char *name;
    const char *aliases; /* "up" or "ls ps", may be NULL */
    const char *summary; /* one line, lower case, no full stop */
    const char *usage;   /* what follows the name: "[flags] [--] CMD..." */
    const char *about;   /* paragraphs for help and the man page, may be NULL */
    const char *examples; /* lines "petri run -- make test\twhat it does", may be NULL */
    const struct opt *opts;
    size_t n_opts;
    bool hidden;
    int usage_exit; /* 2, or 125 for commands that run other commands */
    int (*run)(const struct cmd *c, int argc, char **argv);
};

extern const struct cmd *const commands[]; /* NULL-terminated, cmd/main.c */

/* Walks the options of argv like getopt_long with "+" (stops at the first word). Returns the option,
 * NULL at the end (optind is then the first operand), or sets *bad after it printed the mistake
 * (unknown options name the nearest one) so that the caller returns c->usage_exit.
 * --help is answered inside (prints and exits 0). *value is the option's argument. */
const struct opt *cmd_next_opt(const struct cmd *c, int argc, char **argv, const char **value,
                               bool *bad);

/* Prints "petri: MSG" on stderr. Returns `status`, so that `return cmd_fail(...)` reads well. */
int cmd_fail(int status, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Prints the error chain on one line ("petri: ...") and frees it; as JSON {"error":{"code","message"}}
 * on stdout as well when json is true. Returns status. */
int cmd_fail_err(int status, struct err *e, bool json);
/* "petri: note" on stderr. */
void cmd_note(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* Prints a usage mistake with a hint at --help; returns c->usage_exit. */
int cmd_usage(const struct cmd *c, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Help texts, cmd/help.c: everything derives from the descriptors. */
void help_overview(FILE *out);
void help_command(const struct cmd *c, FILE *out);
const struct cmd *cmd_find(const char *name); /* by name or alias */
