/* runtime/config/config.h - what is configured: files and environment, checked and merged.
 *
 * Later wins: system, user, project, environment; an agent's own values come after all files' common ones.
 * Lists of protections only grow. From a project's file that nobody has trusted only values count that
 * tighten what the trusted files say, or that are neutral. Only files of the host are read, never those of
 * a sandbox.
 * Owns:  DATA/trust/, copies of the project files that a person has trusted.
 * Uses:  base/, oci/ only; prints nothing.
 * Crash: a trusted copy appears by rename; half a one is not seen.
 */
#pragma once
#include "runtime/config/keys.h"

enum config_layer {
    LAYER_DEFAULT,
    LAYER_SYSTEM,
    LAYER_USER,
    LAYER_PROJECT,
    LAYER_ENVIRONMENT,
    LAYER_FLAG, /* --profile */
};

/* Where to look; NULL: not there. */
struct config_from {
    const char *system;  /* a file */
    const char *user;    /* a directory that holds petri/ and wonopcode/ */
    const char *project; /* a directory */
    const char *data;    /* petri's store, for trust */
    const char *file;    /* this file alone, for checking it */
    const char *agent, *profile;
    char **environment;
    bool trust_all; /* as if every file was trusted: to show what trusting would bring */
};

struct setting {
    bool set;
    enum config_layer layer;
    struct strv words, from; /* of a list: an origin for each word */
};

struct config {
    struct setting *set;   /* as config_keys */
    struct setting *floor; /* what files that need no trust say, alone */
    struct strv
        mistakes; /* "FILE:LINE:COLUMN: KEY: what is wrong"; where there are any, nothing else counts */
    struct strv files;      /* that were read, in order */
    struct strv waiting;    /* keys of project files that wait for trust: "image" */
    struct strv waiting_at; /* where they stand, what they say */
    struct strv untrusted,
        untrusted_text; /* files that have them, with what is trusted with them */
    struct strv agents; /* that the project's files name */
    struct strv locked; /* "KEY (FILE:LINE:COLUMN), locked by FILE:LINE:COLUMN" */
    bool agent_missing; /* an agent was named and no file knows it */
};

enum {
    CONFIG_MAX_AGENTS = 100
}; /* of which `agents` has all; with one more it says that there are others */

/* Where the machine's and the user's files are; `ret_user` is $XDG_CONFIG_HOME or ~/.config. */
extern const char config_system_file[];
char *config_user_dir(void);

/* Fails only for what is no mistake in a file: config.mistakes has those. */
int config_load(const struct config_from *from, struct config **ret, struct err **e);
struct config *config_free(struct config *c);
static inline void config_free_p(struct config **c)
{
    *c = config_free(*c);
}

/* The value of a key, its default where nobody set it. */
void config_value(const struct config *c, size_t key, struct strv *ret);
bool config_true(const struct config *c, const char *key);
/* "FILE:LINE:COLUMN" of a plain value, "default" */
const char *config_origin(const struct config *c, size_t key);

/* Takes an option: 1 taken, 0 this command has no use for it; negative with an error, or without one where
 * no such option exists. `from` is "FILE:LINE:COLUMN: KEY". */
typedef int config_sink(void *ctx, const char *option, const char *value, const char *from,
                        struct err **e);
/* Fails where a lock forbids a flag ("memory=1G"): one of this command's, or of those that the record of
 * `sandbox` has. */
int config_check_flags(const struct config *c, const struct strv *flags, const char *sandbox,
                       struct err **e);
/* Hands every configured option to `sink`, but those that flags have given ("memory=1G"); flags add to lists.
 * Fails where a flag is locked, or where something configured can't be had. */
int config_apply(const struct config *c, const struct strv *given, config_sink *sink, void *ctx,
                 struct err **e);

/* The JSON schema of a petri.json. */
char *config_schema(void);
/* Sets a key in a file's text to `value`, a piece of JSON; comments and layout stay. */
int config_edit(const char *text, size_t len, size_t key, const char *value, struct str *ret,
                struct err **e);

/* Takes a key out of it; *ret_found: it was there. What is left is as it was. */
int config_unset(const char *text, size_t len, size_t key, struct str *ret, bool *ret_found,
                 struct err **e);
/* The last word of a key as other agents write it; NULL: only ours. */
const char *config_other_spelling(const char *name);

/* A ready-made set of values: "resources.memory=1G"; NULL: no such profile. */
const char *const *config_profile(const char *name);
