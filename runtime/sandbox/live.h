/* runtime/sandbox/live.h - the keeper of a sandbox that stays: a process of its own, one per running sandbox.
 *
 * Owns:  the sandbox's lock and record while it runs, its box, RUN/ID with the sockets `sock` (petri-init
 *        accepts there: the listening descriptor is handed to it) and `ctl` (requests to the keeper), jobs.
 * Alive: it holds the lock. Its last act is to let go of it.
 * Crash: killed at any moment, everything inside ends; RUN/ID is removed by the next command.
 */
#pragma once
#include <poll.h>

#include "base/json.h"
#include "runtime/client/conn.h"
#include "runtime/sandbox/box.h"
#include "runtime/sandbox/denied.h"
#include "runtime/sandbox/options.h"
#include "runtime/sandbox/state.h"

enum { LIVE_MAX_JOBS = 64, LIVE_MAX_CLIENTS = 64 };

/* A command without a client: its output goes to the store. */
struct job {
    unsigned number;
    struct conn conn; /* to petri-init */
    int pipe;         /* its output */
    int file;         /* jobs/N.out */
    uint64_t written, cap;
    bool started, done, timed_out;
    int status; /* as petri exec would exit */
    struct strv argv;
    char *created;
};

/* Somebody who asked something. */
struct asker {
    int fd; /* -1: free */
    struct str in;
    unsigned waits_for; /* a job's number */
};

struct live {
    const struct paths *paths;
    struct plan *plan;
    struct plan_holds holds;
    struct state state;
    struct box box;
    int lock;
    int listen; /* what petri-init accepts on */
    int ctl;
    int signals, tick;
    uint64_t started_ms, idle_ms, life_ms; /* CLOCK_BOOTTIME; limits, 0: none */
    uint64_t active_ms, cpu_usec, tick_ms;
    unsigned events;    /* enum run_event, so far */
    uint64_t hit_ms[3]; /* when memory, processes and disk were last at their limit; 0: never */
    uint64_t oom_kills, pids_hits;
    bool ending;
    bool promote;   /* this end is one that promotion.auto means */
    char *farewell; /* to who asked for the end; NULL: nothing but that it has come */
    struct denied_list denied;
    struct job **jobs;
    size_t n_jobs;
    unsigned last_job;                   /* number */
    void (*on_prepare)(void);            /* before something that takes seconds */
    void (*on_launched)(struct live *l); /* while the walls come up; once */
    struct asker askers[LIVE_MAX_CLIENTS];
};

/* Makes sockets and walls and starts petri-init; an error leaves nothing behind but the record. */
int live_up(struct live *l, struct err **e);
/* Until it is stopped, dies or has lived long enough; then everything is taken down. */
void live_loop(struct live *l);
void live_down(struct live *l);

/* Takes the walls down and builds them again over the plan's layers, as they are now. */
int live_replace(struct live *l, struct err **e);
/* The plan's layers are those of the record. */
void live_replan(struct live *l);
/* How many processes there are besides petri-init; 0: petri-init takes no more until live_resume(). */
int live_quiesce(struct live *l, uint32_t *ret, struct err **e);
/* Looks which limits have been hit; `ret` is what the machine's own counters say. */
void live_look_limits(struct live *l, struct cgroup_stats *ret);
void live_resume(struct live *l);

/* Freezes what was written so far: the layers of all of it result (bottom first). Idle: the top becomes
 * one of them, and the walls must be built anew (*ret_replace). Busy: it is copied while everything
 * stands still for *ret_paused_ms, or with `idle` it is an error: what is half written is of no use then. */
int live_freeze(struct live *l, bool idle, struct strv *ret_chain, bool *ret_replace,
                uint64_t *ret_paused_ms, struct err **e);

/* live_ctl.c: requests. */
void live_accept(struct live *l);
void live_serve(struct live *l, struct asker *a);
void live_answer(struct asker *a, const char *text);
void live_answer_err(struct asker *a, struct err *e); /* frees it */

/* live_net.c */
void live_net_line(void *arg, const struct json *line); /* one verdict of the gateway's */
void live_net_json(struct live *l, struct jsonw *w);
void live_net_show(struct live *l, struct asker *a);
void live_net_denied(struct live *l, struct asker *a, const struct json *r);
void live_net_rules(struct live *l, struct asker *a, const struct json *r, bool allow);

/* live_promote.c, when the walls are down. */
bool live_promotes(const struct live *l);
void live_promote(struct live *l);

/* live_jobs.c */
int job_start(struct live *l, const struct json *request, unsigned *ret_number, struct err **e);
struct job *job_find(struct live *l, uint64_t number);
int job_signal(struct job *j, int sig, struct err **e);
size_t jobs_poll(struct live *l, struct pollfd *fds); /* at most 2 * LIVE_MAX_JOBS */
void jobs_serve(struct live *l, const struct pollfd *fds, size_t n);
void job_json(struct jsonw *w, const char *key, const struct job *j);
void jobs_free(struct live *l);
/* Tells those who wait for a job that it is over. */
void live_job_over(struct live *l, const struct job *j);
