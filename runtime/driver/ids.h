/* runtime/driver/ids.h - which ids a sandbox sees and what they are outside.
 *
 * root    container ids are a range of their own (outside /etc/subuid), files come in idmapped.
 * single  an ordinary user: one id inside, the user's own; no helper program.
 * sub     an ordinary user with a /etc/subuid range: 65536 ids, by newuidmap.
 *
 * An ordinary user's launcher works in a user namespace of its own where it is uid 0 ("outer");
 * the sandbox gets another one below it, so that it can never touch the launcher's mounts.
 */
#pragma once
#include "oci/config.h"

enum ids_mode { IDS_ROOT, IDS_SINGLE, IDS_SUB };

struct ids {
    enum ids_mode mode;
    struct idmap outer_uids, outer_gids; /* launcher's namespace -> host; empty for root */
    struct idmap uids, gids;             /* sandbox -> launcher's namespace (host for root) */
    /* root: how files of the project appear: on disk -> host id seen by the sandbox */
    struct idmap project_uids, project_gids;
    bool
        direct; /* root: the project's file system takes no id map, so the user is its owner outside too */
    bool swap;      /* the project's map differs from the sandbox's own */
    uid_t root_uid; /* what the sandbox's uid 0 is for the launcher; the user's own id in single */
    gid_t root_gid;
    uid_t user_uid; /* what the sandbox's user is for the launcher */
    gid_t user_gid;
};

const char *ids_mode_name(enum ids_mode m);
/* What a user must know where the sandbox's id is one that exists outside too; NULL: nothing. */
const char *ids_note(const struct ids *ids);
/* The sandbox's user is root outside (without any of its rights): root of a container. */
bool ids_is_root(const struct ids *ids);
/* An id inside for petri-init alone, where the sandbox has many; 0: there is none. */
uint32_t ids_init(const struct ids *ids, const struct plan *p);
/* `many`: the sandbox needs more than its user's id (another -u, an image). */
int ids_plan(const struct plan *p, bool many, struct ids *ret, struct err **e);
/* "inside outside count\n" lines for uid_map and gid_map. */
void idmap_format(const struct idmap *m, struct str *out);
/* Writes the outer maps of `pid`: directly, or by newuidmap and newgidmap. */
int ids_write_outer(const struct ids *ids, pid_t pid, struct err **e);
/* Writes the maps of `pid` from above (root, or the launcher inside its own namespace). */
int ids_write(const struct idmap *uids, const struct idmap *gids, pid_t pid, bool deny_setgroups,
              struct err **e);
