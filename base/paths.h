/* base/paths.h - where petri keeps its things, for root and for others.
 * Root: /var/lib/petri and /run/petri. Others: $XDG_DATA_HOME/petri (else ~/.local/share/petri) and
 * $XDG_RUNTIME_DIR/petri, else /tmp/petri-UID. PETRI_HOME overrides both (its run/ below it).
 */
#pragma once
#include "base/err.h"

struct paths {
    char *data; /* images/ layers/ sandboxes/ */
    char *run;  /* sockets, locks, mount points of running sandboxes */
};

/* Says where they are; makes nothing. */
int paths_find(struct paths *ret, struct err **e);
/* Makes both directories, or takes them as they are: 0700, ours, no links. */
int paths_make(const struct paths *p, struct err **e);
int paths_open(struct paths *ret, struct err **e); /* both */
void paths_free_p(struct paths *p);
/* The directory with petri's own helper programs (petri-init, petri-image): beside the running
 * binary (a build tree) or ../libexec/petri. */
char *paths_helper(const char *name, struct err **e);
