/* runtime/sandbox/keeper.h - what the keeper of a running sandbox holds, and what it does on each event.
 * Shared by run.c (start, loop, end) and keeper.c (events); nobody else includes it.
 */
#pragma once
#include "runtime/client/streams.h"
#include "runtime/driver/launch.h"
#include "runtime/driver/scratch.h"
#include "runtime/sandbox/run.h"

struct keeper {
    struct run_req *req;
    struct run_result *res;
    struct err **e;
    struct launcher launcher;
    struct cgroup *cgroup;
    struct ids ids;
    struct streams streams;
    int control; /* our end; closing it ends petri-init */
    int launcher_pidfd;
    int timer;
    int signals;
    int watch; /* ticks while only the keeper limits the disk */
    int lock;  /* on the sandbox's directory in the store, where it has one */
    struct scratch scratch;
    struct dirlayer dirs;
    pid_t init;
    bool started, finished, failed;
    int pending_signal;
};

/* Ends everything inside: PID 1 exits when its socket closes, and is killed in any case. */
void keeper_end_sandbox(struct keeper *k);

void keeper_on_control(struct keeper *k); /* petri-init says something */
void keeper_on_report(struct keeper *k);  /* the launcher does */
void keeper_on_signal(struct keeper *k);
void keeper_on_timer(struct keeper *k); /* the deadline that petri-init missed */
void keeper_on_watch(struct keeper *k);
