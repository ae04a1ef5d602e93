/* runtime/change/source.h - what a sandbox has, for a process that is nobody special.
 *
 * A child reads the sandbox's layers, for an ordinary user as root of a user namespace with the sandbox's
 * ids, and hands over the list of changes and descriptors of single files. So whoever writes to the
 * project has no right that the user has not.
 * Crash: the child ends when its socket closes.
 */
#pragma once
#include <sys/types.h>

#include "runtime/change/changeset.h"

struct source_dir {
    char *path;
    mode_t mode;
};

struct source {
    int sock;
    pid_t pid;
    struct changeset c;      /* without views and old contents */
    struct source_dir *made; /* directories that only the sandbox has, parents first */
    size_t n_made;
    struct strv gone; /* directories that only the project has */
    size_t *ahead;    /* contents that will be asked for, in this order */
    size_t n_ahead, sent, got;
};

/* `paths` may be NULL. */
int source_open(const struct record *r, const struct strv *paths, struct source *ret,
                struct err **e);
void source_close_p(struct source *s);
/* The sandbox's side of change i: one of the two comes out. The sandbox may be at work: a link's text is the
 * one that the list has, or it is an error; whoever reads a file has to compare it. */
int source_content(struct source *s, size_t i, int *ret_fd, char **ret_link, struct err **e);
/* ERR_BUSY where the text is not the content of change i as it was listed. */
int source_same(const struct source *s, size_t i, const char *text, size_t n, struct err **e);
/* Says which contents come next, so that the child can be at work on them meanwhile. Takes `order`. */
void source_ahead(struct source *s, size_t *order, size_t n);
/* A file of the sandbox's workspace by its path; ERR_NOT_FOUND where it is none. */
int source_file(struct source *s, const char *path, int *ret_fd, struct err **e);
/* The file as it was when the sandbox was made: workspaces that are copies only. */
int source_base(struct source *s, const char *path, int *ret_fd, struct err **e);
/* overlay's note of which file or directory of the project this one was: ERR_NOT_FOUND where there is none, empty where
 * it could not say which (always for an ordinary user). */
int source_origin(struct source *s, const char *path, struct str *ret, struct err **e);
/* Commits made inside: a pack of what the project's repository lacks, and refs, one per line "HEX NAME".
 * *ret_fd is -1 where there are none. */
int source_commits(struct source *s, int *ret_fd, struct str *ret_refs, struct err **e);

/* --- the child's half (serve.c) ------------------------------------------------------------------- */

struct serve {
    const struct record *r;
    const struct strv *paths;
    int sock;
};
int serve_run(void *arg, struct err **e);

/* Messages: a letter, a length, bytes; at most one descriptor goes along. */
int source_send(int sock, char what, const void *p, size_t n, int fd);
int source_receive(int sock, char *ret_what, struct str *ret, int *ret_fd, struct err **e);
