/* runtime/config/source.h - one file of the configuration, and what it says. Inside this room only. */
#pragma once
#include "runtime/config/config.h"

struct source {
    enum config_layer layer;
    bool foreign; /* an agent's file: only "sandbox" and "agent" are ours */
    char *path;
    char *text;
    size_t len;
    struct jsonc doc;
    struct strv included, contents; /* of a project's file: what {file:} names in it, read once */
    int trusted;                    /* -1: nobody has looked yet */
};

/* One value of one file or variable. */
struct assign {
    int key;
    const struct source *src; /* NULL: the environment */
    bool agent;               /* of the agent that was named */
    bool open;                /* holds {env:} or {file:}, not yet put in */
    struct strv words;
    char *from;
};

struct loader {
    const struct config_from *from;
    struct config *c;
    struct source *sources;
    size_t n_sources;
    struct assign *assigns;
    size_t n_assigns;
    const struct source **who; /* as config.set: the file that set it last */
    bool agent_found;
};

/* source.c: finds and reads the files; what can't be read is a mistake. */
void sources_read(struct loader *l);
void source_free(struct source *s);
/* True where a person has trusted this very file, with what it includes; looks once. */
bool source_trusted(struct loader *l, const struct source *s);
/* What is trusted: its text, then each file that it includes. */
char *source_whole(const struct source *s);

/* check.c: every value of a file becomes an assign or a mistake. */
void source_check(struct loader *l, const struct source *s);
void environment_check(struct loader *l);
struct assign *assign_add(struct loader *l, int key, const struct source *s);

/* subst.c: {env:X} and {file:P}. */
bool subst_has(const char *text);
/* What can be said of it without looking; NULL: nothing wrong. */
char *subst_check(const char *text, const struct source *s);
/* Reads what {file:} names, so that all that follows means the same content. False: too many files. */
bool subst_read(struct source *s, const char *text);
/* Puts the contents in; NULL: done, else what is wrong. */
char *subst_words(const struct source *s, struct strv *words);

/* merge.c */
void config_merge(struct loader *l);

/* Where the key is locked, if these words are not tighter than what the lock's files say; NULL: fine. */
const char *config_lock(const struct config *c, int key, const struct strv *words);
