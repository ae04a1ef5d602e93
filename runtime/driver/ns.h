/* runtime/driver/ns.h - namespaces made ahead of the container, by a short-lived child.
 * Crash: a child ends when its pipe closes; a namespace lives as long as a descriptor of it.
 */
#pragma once
#include "runtime/driver/ids.h"
#include "runtime/network/agent.h"

struct holder {
    pid_t pid;
    int pipe; /* write end: a byte says the maps are there */
    int done; /* says that the network namespace is there; then a byte when all of it is ready */
};

/* Who makes the sandbox's network and stays as its agent. `failed`: what went wrong after holder_net() had its
 * namespace; the agent's process calls it. */
struct holder_agent {
    struct agent_req req;
    void (*failed)(void *arg, const struct err *e);
    void *arg;
};

/* Starts a child in a new user namespace with these maps. It also makes a network namespace that belongs to
 * it (loopback up; with an agent also the way to its gateway); meanwhile the caller goes on. */
int holder_start(const struct idmap *uids, const struct idmap *gids, bool deny_setgroups,
                 const struct holder_agent *agent, struct holder *ret, struct err **e);
/* One that has a user namespace and nothing else. */
int holder_start_bare(const struct idmap *uids, const struct idmap *gids, struct holder *ret,
                      struct err **e);
/* Descriptors of its namespaces; holder_net waits for it. */
int holder_user(const struct holder *h, int *ret_fd, struct err **e);
int holder_net(const struct holder *h, int *ret_fd, struct err **e);
/* With an agent: a descriptor of which a byte can be read when the network is ready, or an error where its maker
 * died. */
int holder_ready(const struct holder *h, int *ret_fd, struct err **e);
/* It stays as the agent, and dies with the caller, or by holder_end(). */
void holder_serve(struct holder *h);
void holder_end(struct holder *h);
