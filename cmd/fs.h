/* cmd/fs.h - what the commands of petri fs share: cmd/fs.c has the table, fs_file.c reads and writes. */
#pragma once
#include "cmd/attach.h"

struct fs_flags {
    bool json, parents, exclusive, lines, no_follow, recursive, force;
    const char *mode, *offset, *length;
    uint64_t mode_bits, from, count;
    struct target t;
    struct petri_error e;
    const char *path;
};

void fs_flags_free_p(struct fs_flags *f);
/* Options, then between min and max operands, the first of which ("[SANDBOX:]PATH") is opened. A status other
 * than 0 is the end. */
int fs_begin(const struct cmd *c, int argc, char **argv, int min, int max, struct fs_flags *f);
int fs_fail(const struct fs_flags *f);
void fs_json_stat(struct jsonw *w, const struct petri_stat *st, const char *target);
/* {"path":...} for commands that have nothing more to say. */
int fs_done(const struct fs_flags *f, const char *word);

int fs_read_run(const struct cmd *c, int argc, char **argv);
int fs_write_run(const struct cmd *c, int argc, char **argv);
