/* cmd/config.h - configuration for commands: found, read, its mistakes printed, its values as options. */
#pragma once
#include "cmd/cmd.h"
#include "runtime/config/config.h"
#include "runtime/sandbox/options.h"

struct configured {
    const char *agent, *profile; /* flags; NULL: PETRI_AGENT, none */
    const char *workspace;       /* --workspace; NULL: the project around here */
    const char *sandbox;         /* that there is already, its name; NULL: none */
    const struct strv *recorded; /* its own flags, of earlier starts: locks hold for them, too */
    bool json, quiet;
    int status; /* of the program where something is wrong */
};

/* Reads the configuration of this place. NULL: it said what is wrong; *ret_project may be NULL where no
 * project is. `all`: as if everything was trusted. */
struct config *configured_load(const struct configured *how, const struct paths *paths, bool all,
                               char **ret_project);
/* Adds mistakes in what the key table does not know about: rules of the network, places inside. */
void configured_judge(struct config *c);
/* One line about what waits for trust, and one for each value that a lock keeps out. */
void configured_notes(const struct config *c);
/* For commands that take nothing from the configuration: whether its locks let these flags be. 0, or the status
 * after it said what is wrong. */
int configured_check(const struct configured *how, const struct paths *paths,
                     const struct strv *flags);
/* For commands that read no configuration: says it where `enabled` is false, which does not concern them. */
void configured_say_enabled(void);
/* Adds what is configured to the options that flags have given; options that `c` has no flag for are left
 * out. 0, or the status after it said what is wrong. */
int configured_options(const struct cmd *c, const struct configured *how, const struct paths *paths,
                       struct options *o);
