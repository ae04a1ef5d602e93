/* cmd/life.h - flags and words of the commands about sandboxes that stay. */
#pragma once
#include "base/paths.h"
#include "cmd/cmd.h"
#include "runtime/sandbox/options.h"
#include "runtime/sandbox/start.h"

struct life {
    struct options o;
    struct paths paths;
    bool json, quiet, force, follow, all;
    const char *message, *count, *signal, *number, *sandbox, *agent, *profile;
    struct strv notes; /* for an answer in JSON */
    char **words;      /* operands, in argv */
    int n_words;
};
void life_free_p(struct life *f);
/* 0, or -1 after the mistake was printed. */
int life_parse(struct life *f, const struct cmd *c, int argc, char **argv);
/* Prints the error, or the remedy where the machine lacks something; frees it. Returns 1. */
int life_fail(struct err *e, bool json);
uint64_t life_now_us(void);
/* After a start or restart (`word`) of `us` microseconds. */
void life_print_started(const struct life *f, const struct started *s, uint64_t us,
                        const char *word);
/* Prints the lines of a file that grows and may start anew; with `follow` until nobody reads. */
void life_lines(const char *path, bool follow, void (*print)(const char *line, bool json),
                bool json);
