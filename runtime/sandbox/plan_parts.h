/* runtime/sandbox/plan_parts.h - the parts of plan_make(): words in make_plan.c, the network's in plan_net.c, the root
 * file system in plan_root.c, paths of the project in plan_paths.c, caches in plan_caches.c. */
#pragma once
#include "runtime/sandbox/options.h"

int plan_network(const struct options *o, struct plan *p, struct plan_holds *holds, struct err **e);
int plan_resolver(const struct paths *paths, struct plan *p, struct err **e);
/* Names to hide and to protect, and where the project is seen. */
int plan_project_paths(const struct options *o, struct plan *p, struct err **e);
/* Once the system's mounts are known. */
int plan_judge_workspace(const struct plan *p, struct err **e);
int plan_user(const struct options *o, bool host, const char *image_user, struct plan *p,
              struct err **e);
int plan_volume(const char *v, const struct paths *paths, struct plan_mounts *ret, struct err **e);
void plan_make_room(struct plan *p, const char *dst);
int plan_caches(const struct options *o, const struct paths *paths,
                const struct plan_mounts *volumes, struct plan *p, struct plan_holds *holds,
                struct err **e);
int plan_judge_sockets(struct plan *p, struct err **e);
int plan_host_image(const struct paths *paths, struct plan *p, struct plan_holds *holds,
                    struct err **e);
int plan_store_image(const char *name, const struct paths *paths, struct plan *p,
                     struct plan_holds *holds, struct err **e);
