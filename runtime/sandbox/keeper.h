/* runtime/sandbox/keeper.h - what the keeper of a running sandbox holds, and what it does on each event.
 * Shared by run.c (start, loop, end) and keeper.c (events); nobody else includes it.
 */
#pragma once
#include "runtime/client/streams.h"
#include "runtime/sandbox/box.h"
#include "runtime/sandbox/run.h"

struct keeper {
    struct run_req *req;
    struct run_result *res;
    struct err **e;
    struct box box;
    struct streams streams;
    int timer;
    int signals;
    int watch; /* ticks while only the keeper limits the disk, or there is a gateway */
    int lock;  /* on the sandbox's directory in the store, where it has one */
    int store; /* its layer has no record yet: nobody may take it for garbage */
    bool started, finished, failed;
    int pending_signal;
};

void keeper_on_control(struct keeper *k); /* petri-init says something */
void keeper_on_report(struct keeper *k);  /* the launcher does */
void keeper_on_signal(struct keeper *k);
void keeper_on_timer(struct keeper *k); /* the deadline that petri-init missed */
void keeper_on_watch(struct keeper *k);
void keeper_on_gate(struct keeper *k);
void keeper_on_verdict(void *arg, const struct json *line);
