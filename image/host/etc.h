/* image/host/etc.h - the sandbox's /etc: a cached, filtered copy of the machine's.
 * Owns:  LAYERS/etc-HASH/ (lock, manifest, gen-N/); nobody else writes there.
 * Uses:  base/. Reads /etc only; never follows a link there, never needs a privilege.
 * Crash: a copy appears by rename(2), the manifest after it; what a killed builder left is swept by
 *        the next one. A copy that may not have reached the disk is not trusted after a reboot.
 *
 * A running sandbox keeps the generation it started with: a change on the host makes a new one.
 */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

/* The name in the copy's /etc/hostname and /etc/hosts: the host name to set inside. */
#define HOST_ETC_HOSTNAME "petri"

/* Who the sandbox's user is. Strings that would break a passwd line are replaced. */
struct host_user {
    const char *name; /* NULL: "user" */
    uid_t uid;        /* inside */
    gid_t gid;
    const char *home;       /* inside; NULL: "/" */
    const char *shell;      /* NULL: "/bin/sh" */
    bool root_construction; /* user 0 with a writable system: also what package managers need */
};

/* The directory of a copy that matches the machine's /etc as it is now. */
int host_etc(const char *layers_dir, const struct host_user *u, char **ret_dir, struct err **e);

/* Holds a generation: as long as the descriptor is open (in any process) nobody removes it. Without
 * a hold a replaced generation stays for a day. */
int host_etc_hold(const char *dir, int *ret_fd, struct err **e);

/* The same with the machine's root elsewhere, for tests. */
int host_etc_at(const char *root, const char *layers_dir, const struct host_user *u, char **ret_dir,
                struct err **e);
