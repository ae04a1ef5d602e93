/* runtime/sandbox/box.h - the walls of one running sandbox: ids, scratch, cgroup, launcher, petri-init.
 *
 * Owns:  the cgroup leaf, the launcher, the control socket whose closing ends petri-init.
 * Crash: killed at any moment, processes, mounts and namespaces end by themselves; an empty cgroup stays for the
 *        next sweep.
 */
#pragma once
#include "base/paths.h"
#include "runtime/driver/dirlayer.h"
#include "runtime/driver/launch.h"
#include "runtime/driver/scratch.h"
#include "runtime/driver/skeleton.h"
#include "runtime/network/gate.h"

struct box {
    const struct plan *plan;
    const struct paths *paths;
    struct ids ids;
    struct scratch scratch;
    struct dirlayer dirs;
    struct skeleton skeleton;
    struct cgroup *cgroup;
    struct gate gate;
    char *helper; /* petri-init on the host */
    struct launcher launcher;
    int launcher_pidfd;
    int control; /* our end; closing it ends petri-init */
    pid_t init;  /* 0 until it said hello */
    int counted; /* totals_enter(); -1: not */
};
#define BOX_INIT(p, where)                                                                         \
    {                                                                                              \
        .plan = (p), .paths = (where), .launcher_pidfd = -1, .control = -1, .counted = -1,         \
        .skeleton = SKELETON_INIT, .gate = GATE_INIT, .launcher = {                                \
            .report = -1,                                                                          \
            .go = -1                                                                               \
        }                                                                                          \
    }

/* What a plan says of memory, cpus and processes. */
struct cgroup_limits box_limits(const struct plan *p);
/* Everything that can be refused is refused here, before anything is made; then the cgroup is. */
int box_prepare(struct box *b, void (*on_prepare)(void), struct err **e);
/* Starts the launcher; petri-init will say hello on `control`. May be called again after box_wait(). */
int box_launch(struct box *b, bool count_changes, struct err **e);
/* How many processes in its cgroup are petri's own, petri-init aside. */
static inline uint64_t box_own(const struct box *b)
{
    return b->gate.policy ? 2 : 1;
}
/* petri-init's word about what must be true of itself. */
uint32_t box_expect(const struct plan *p);
/* Ends everything inside: PID 1 exits when its socket closes, and is killed in any case. */
void box_end(struct box *b);
/* Reaps the launcher and forgets petri-init. */
void box_wait(struct box *b);
/* The launcher wants its id maps. */
int box_serve_maps(struct box *b, struct err **e);
void box_free_p(struct box *b); /* the cgroup too */
