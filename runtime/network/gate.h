/* runtime/network/gate.h - a keeper's side of the gateway: its process, its policy, what it says.
 *
 * Owns:  the program petri-gateway of one sandbox, the listening sockets of published ports, the keeper's copy of
 *        the way to the agent (a gateway that is started anew gets it).
 * Crash: the gateway ends when the keeper's end of its socket closes; without it the sandbox is cut off.
 */
#pragma once
#include <poll.h>
#include <sys/types.h>

#include "base/json.h"
#include "runtime/network/policy.h"

struct gate_counts {
    uint64_t open, allowed, denied, bytes_in, bytes_out, malformed, lost;
};

struct gate {
    const struct net_policy *policy; /* NULL: no gateway */
    char *helper;
    pid_t pid, dying;
    int control, feed;
    int *listeners; /* one for each published port */
    uint64_t asked, answered, asked_ms;
    uint64_t again_ms;              /* it died: when there is to be another one, 0 else */
    struct gate_counts now, before; /* of this gateway, of those that died */
    unsigned restarts;
    bool failed; /* it can't be had: the sandbox must end */
    char *why;   /* what it said last when it failed */
    void (*on_line)(void *arg, const struct json *line);
    void *arg;
};
#define GATE_INIT                                                                                  \
    {                                                                                              \
        .control = -1, .feed = -1                                                                  \
    }

/* A policy that needs a gateway at all: everything but `none` without published ports. */
bool gate_needed(const struct net_policy *p);
/* Takes the host's ports; what can be refused is refused here. */
int gate_open(struct gate *g, const struct net_policy *p, struct err **e);
/* For new walls: a way to their agent, whose own end is *ret_agent (-1: no gateway is needed). Then, when the
 * launcher works already: starts the gateway where there is none, and gives it that way. */
int gate_feed(struct gate *g, int *ret_agent, struct err **e);
int gate_walls(struct gate *g, struct err **e);
/* The policy has changed: it is in force when this returns. */
void gate_changed(struct gate *g);
/* Reads what there is to read. */
void gate_serve(struct gate *g);
/* Now and then: whether it still answers; one that died is replaced some seconds later. */
void gate_tick(struct gate *g);
/* Everything it has to say up to now, within `ms`. */
void gate_settle(struct gate *g, int ms);
void gate_counts(const struct gate *g, struct gate_counts *ret);
void gate_close(struct gate *g);
/* gate_line.c: a line of the log as a gateway of ours writes it; no other is handed on. */
bool gate_line_fine(const struct json *line);
