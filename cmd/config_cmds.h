/* cmd/config_cmds.h - what the files of `petri config` share. */
#pragma once
#include "cmd/config.h"

struct config_words {
    struct configured how;
    struct strv operands;
    bool origin, yes, user, project;
};
void config_words_free_p(struct config_words *w);
/* Flags before, between and after the words; false after the mistake was printed. */
bool config_parse(const struct cmd *c, int argc, char **argv, size_t least, size_t most,
                  struct config_words *ret);
/* The key of that name; -1 after the mistake was printed. */
int config_key_of(const struct cmd *c, const char *word);

int config_set_run(const struct cmd *c, int argc, char **argv);
int config_unset_run(const struct cmd *c, int argc, char **argv);
int config_trust_run(const struct cmd *c, int argc, char **argv);
int config_untrust_run(const struct cmd *c, int argc, char **argv);
