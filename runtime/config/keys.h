/* runtime/config/keys.h - the table of everything that can be configured.
 *
 * Parser, messages, `petri config`, the JSON schema, docs/config.md and completion derive from it. A value
 * is a list of words: one for a plain value, any number for a list, NAME=VALUE for a map.
 * Uses:  base/, runtime/config/jsonc.h.
 */
#pragma once
#include "base/str.h"
#include "runtime/config/jsonc.h"

enum key_type {
    KEY_BOOL,
    KEY_INT,
    KEY_CPUS,
    KEY_SIZE,
    KEY_TIME,
    KEY_WORD,    /* one of `words` */
    KEY_RUNTIME, /* one of `words`, or an absolute path */
    KEY_TEXT,
    KEY_PATH,    /* absolute */
    KEY_LIST,    /* of strings */
    KEY_INSIDE,  /* a list of paths or patterns inside the project */
    KEY_DOMAINS, /* a list of names, name:port, addresses, ranges */
    KEY_PORTS,   /* a list of numbers */
    KEY_PUBLISH, /* a list of [HOST:]PORT:PORT */
    KEY_MOUNTS,  /* a list of SRC:DST[:ro] */
    KEY_KEYS,    /* a list of keys */
    KEY_MAP,     /* names and strings */
};

/* Which of two values is the tighter one. */
enum key_sense {
    SENSE_NEUTRAL, /* any value is as safe as any other */
    SENSE_LOOSENS, /* any change loosens */
    SENSE_LESS,    /* less is tighter, 0 or nothing is no limit */
    SENSE_ORDER,   /* `words` go from tight to loose */
    SENSE_GROWS,   /* a list of protections: merging only adds */
    SENSE_WIDENS,  /* a list of permissions: fewer is tighter */
};

enum relation { TIGHTENS = -1, EQUAL = 0, NEUTRAL = 1, LOOSENS = 2 };

struct config_key {
    const char *name; /* below "sandbox" */
    enum key_type type;
    enum key_sense sense;
    const char *words;  /* "a|b|c" */
    uint64_t min, max;  /* of INT and SIZE; 0: no bound */
    const char *def;    /* as one word; "": none, or an empty list */
    const char *option; /* the flag it becomes; NULL: none */
    const char *when;   /* the value that becomes the switch `option` */
    const char *help;   /* one sentence, no full stop */
};

extern const struct config_key config_keys[];
extern const size_t n_config_keys;

bool key_is_list(const struct config_key *k); /* lists and maps */
/* By its name or another spelling ("network", "network.allowedDomains", "sandbox.image"); -1: none. */
int key_find(const char *name);
/* By the option it becomes; -1: none. */
int key_by_option(const char *option);
/* A name like workspace_writable for mounts.workspace_writable, as some write it for an agent; -1: none. */
int key_find_flat(const char *name);
/* True where keys lie below this name: "resources". */
bool key_is_group(const char *name);
/* The nearest name that may stand below `parent` ("" at the top), without the parent; NULL: none is near. */
const char *key_nearest(const char *parent, const char *name);
/* PETRI_RESOURCES_MEMORY */
char *key_variable(const struct config_key *k);

/* What is wanted: "a size like \"512M\" or \"2G\"". */
void key_wanted(const struct config_key *k, struct str *ret);
/* Checks one word (of a list: one of its words); NULL: right, else what is wrong. */
char *key_check(const struct config_key *k, const char *word);
/* The words of a value in a file, not yet checked; NULL: fine, else what is wrong with its type. */
char *key_words(const struct config_key *k, const struct jsonc *j, uint32_t node, struct strv *ret);
/* The words of a value on a command line or in the environment, not yet checked. */
char *key_words_of_text(const struct config_key *k, const char *text, struct strv *ret);
/* The default's words. */
void key_default(const struct config_key *k, struct strv *ret);
/* How `now` differs from `was`; an unset `was` (NULL) is the default. */
enum relation key_compare(const struct config_key *k, const struct strv *now,
                          const struct strv *was);
/* As JSON. */
void key_write(const struct config_key *k, const struct strv *words, struct jsonw *w,
               const char *as);
