/* runtime/sandbox/live_ctl.c - what a keeper is asked: one JSON object in a line, and one back. */
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "base/fs.h"
#include "runtime/driver/inside.h"
#include "runtime/sandbox/events.h"
#include "runtime/sandbox/keep.h"
#include "runtime/sandbox/live.h"
#include "runtime/sandbox/run.h"
#include "runtime/sandbox/snapshot.h"
#include "runtime/sandbox/store_lock.h"
#include "runtime/workspace/layer_copy.h"

enum { REQUEST_MAX = 1 << 20, SEND_MS = 1000 };

/* Somebody who does not read is not waited for long. */
static void send_all(int fd, const char *p, size_t n)
{
    uint64_t end = clock_ms(CLOCK_MONOTONIC) + SEND_MS;

    while (n > 0) {
        struct pollfd room = { .fd = fd, .events = POLLOUT };
        ssize_t did = send(fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        uint64_t now = clock_ms(CLOCK_MONOTONIC);
        if (did < 0 && ((errno != EAGAIN && errno != EINTR) || now >= end))
            return;
        if (did < 0)
            (void)poll(&room, 1, (int)(end - now));
        p += did > 0 ? did : 0;
        n -= did > 0 ? (size_t)did : 0;
    }
}

void live_answer(struct asker *a, const char *text)
{
    send_all(a->fd, text, strlen(text));
    send_all(a->fd, "\n", 1);
    close_p(&a->fd);
    str_reset(&a->in);
    a->waits_for = 0;
}

void live_answer_err(struct asker *a, struct err *e)
{
    AUTOJSONW struct jsonw w = { 0 };
    AUTOFREE char *text = err_text(e);

    jw_obj(&w, NULL);
    jw_obj(&w, "error");
    jw_str(&w, "code", err_code_name(e ? e->code : ERR_INTERNAL));
    jw_str(&w, "message", text);
    jw_end_obj(&w);
    jw_end_obj(&w);
    live_answer(a, w.out.p);
    err_free(e);
}

void live_accept(struct live *l)
{
    int fd = accept4(l->ctl, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    for (size_t i = 0; fd >= 0 && i < LIVE_MAX_CLIENTS; i++)
        if (l->askers[i].fd < 0) {
            l->askers[i] = (struct asker){ .fd = fd };
            return;
        }
    if (fd >= 0)
        close(fd);
}

/* --- layers ------------------------------------------------------------------------------------ */

struct copying {
    const char *from, *to;
};

static int copy_layer(void *arg, struct err **e)
{
    const struct copying *c = arg;
    AUTOCLOSE int from = open(c->from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTOCLOSE int to = open(c->to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (from < 0 || to < 0)
        return err_sys(e, "open the layers");
    return layer_copy(from, to, e);
}

static int copy_paused(struct live *l, const char *to, uint64_t *ret_ms, struct err **e)
{
    struct copying c = { l->plan->top, to };
    uint64_t from = clock_ms(CLOCK_MONOTONIC);
    int rc = cgroup_freeze(l->box.cgroup, e);

    if (rc < 0)
        return rc;
    rc = inside_run(&l->box.ids, copy_layer, &c, e);
    cgroup_thaw(l->box.cgroup);
    *ret_ms = clock_ms(CLOCK_MONOTONIC) - from;
    return rc;
}

void live_replan(struct live *l)
{
    strv_free_p(&l->plan->chain);
    layers_of(l->paths, &l->state.chain, &l->plan->chain);
    free(l->plan->top);
    l->plan->top = str_printf("%s/changes/%s", l->paths->data, l->state.top);
    l->box.scratch.watched = l->plan->top;
}

int live_freeze(struct live *l, bool idle, struct strv *ret_chain, bool *ret_replace,
                uint64_t *ret_paused_ms, struct err **e)
{
    AUTOFREE char *copy = NULL;
    size_t before = l->state.chain.n;
    uint32_t others;
    int rc;

    *ret_replace = false;
    *ret_paused_ms = 0;
    if ((rc = live_quiesce(l, &others, e)) < 0)
        return rc;
    if (others == 0) {
        if ((rc = state_freeze(l->paths, &l->state, e)) < 0) {
            live_resume(l);
            return rc;
        }
        *ret_replace = l->state.chain.n != before;
        if (!*ret_replace)
            live_resume(l);
    } else if (idle) {
        return err_new(e, ERR_BUSY,
                       "%u processes run in the sandbox; end them first, or petri stop it", others);
    } else if ((rc = layer_new(l->paths, &copy, e)) < 0 ||
               (rc = copy_paused(l, copy, ret_paused_ms, e)) < 0) {
        return rc;
    }
    for (size_t i = 0; i < l->state.chain.n; i++)
        strv_add(ret_chain, l->state.chain.v[i]);
    if (copy)
        strv_add(ret_chain, strrchr(copy, '/') + 1);
    return 0;
}

/* Answers first: whoever waits for the layers need not wait for the new walls. */
static void answer_layers(struct live *l, struct asker *a, const struct strv *chain,
                          const char *snapshot, bool replace, uint64_t paused_ms)
{
    AUTOJSONW struct jsonw w = { 0 };
    struct err *e = NULL;

    jw_obj(&w, NULL);
    if (snapshot)
        jw_str(&w, "snapshot", snapshot);
    jw_strv(&w, "chain", chain);
    jw_u64(&w, "paused_ms", paused_ms);
    jw_bool(&w, "copied", paused_ms > 0 || !replace);
    jw_end_obj(&w);
    live_answer(a, w.out.p);
    if (replace && live_replace(l, &e) < 0) {
        events_add(l->paths, "error", &l->state, NULL);
        err_free(e);
    }
}

/* The record could not be written: memory says again what the disk says, and what is mounted. */
static void forget(struct live *l)
{
    struct state disk = { 0 };
    if (state_read(l->paths, l->state.id, &disk, NULL) < 0) {
        l->ending = true;
        return;
    }
    state_free_p(&l->state);
    l->state = disk;
}

static void do_layer(struct live *l, struct asker *a, const char *message, bool snapshot, bool idle)
{
    AUTOSTRV struct strv chain = { 0 };
    AUTOCLOSE int store = -1;
    struct err *e = NULL;
    bool replace = false;
    uint64_t paused = 0;

    if (store_lock_shared(l->paths, &store, &e) < 0 ||
        live_freeze(l, idle, &chain, &replace, &paused, &e) < 0) {
        live_answer_err(a, e);
        return;
    }
    if (snapshot)
        snapshot_add(&l->state, &chain, message);
    if ((snapshot || replace) && state_write(l->paths, &l->state, &e) < 0) {
        live_answer_err(a, e);
        forget(l);
        live_resume(l);
        return;
    }
    if (snapshot)
        events_add(l->paths, "snapshot", &l->state, NULL);
    answer_layers(l, a, &chain, snapshot ? l->state.snaps[l->state.n_snaps - 1].id : NULL, replace,
                  paused);
}

/* Ends everything inside, keeps what was there as a snapshot, and goes on from the older one. */
static void do_rollback(struct live *l, struct asker *a, const char *to)
{
    AUTOFREE char *saved = NULL;
    AUTOCLOSE int store = -1;
    struct err *e = NULL;

    if (!to || !snapshot_find(&l->state, to, &e) || kept_same_project(&l->state, &e) < 0 ||
        store_lock_shared(l->paths, &store, &e) < 0) {
        live_answer_err(a, e);
        return;
    }
    box_end(&l->box);
    box_wait(&l->box);
    if (snapshot_back(l->paths, &l->state, to, &e) < 0 ||
        state_write(l->paths, &l->state, &e) < 0) {
        live_answer_err(a, e);
        l->ending = true;
        return;
    }
    /* a copy: new walls may bring a shorter chain, and with it another record in memory */
    saved = str_dup(l->state.snaps[l->state.n_snaps - 1].id);
    if (live_replace(l, &e) < 0) {
        live_answer_err(a, e);
        return;
    }
    events_add(l->paths, "rollback", &l->state, NULL);
    AUTOJSONW struct jsonw w = { 0 };
    jw_obj(&w, NULL);
    jw_str(&w, "snapshot", to);
    jw_str(&w, "saved", saved);
    jw_end_obj(&w);
    live_answer(a, w.out.p);
}

static void do_snapshot_rm(struct live *l, struct asker *a, const char *id)
{
    struct err *e = NULL;
    if (snapshot_remove(&l->state, id ? id : "", &e) < 0 ||
        state_write(l->paths, &l->state, &e) < 0) {
        live_answer_err(a, e);
        forget(l);
    } else {
        live_answer(a, "{}");
    }
}

static void do_refresh(struct live *l, struct asker *a)
{
    struct err *e = NULL;
    uint32_t others = 0;

    if (live_quiesce(l, &others, &e) == 0 && others > 0)
        err_new(&e, ERR_BUSY,
                "%u processes run in the sandbox; end them first, or use petri restart", others);
    if (e || live_replace(l, &e) < 0)
        live_answer_err(a, e);
    else
        live_answer(a, "{}");
}

/* --- questions --------------------------------------------------------------------------------- */

static void do_status(struct live *l, struct asker *a)
{
    static const struct {
        unsigned bit;
        const char *word;
    } events[] = { { EVENT_OOM, "oom" },
                   { EVENT_PIDS, "pids" },
                   { EVENT_DISK, "disk" },
                   { EVENT_NET_DENIED, "net_denied" } };
    static const char *const how[] = { "none", "cgroup-v1", "cgroup-v2", "rlimit" };
    AUTOJSONW struct jsonw w = { 0 };
    struct cgroup_stats s = { 0 };
    uint64_t files = 0, used = scratch_used(l->plan->top, &files);
    const struct plan *p = l->plan;

    cgroup_stats(l->box.cgroup, &s);
    jw_obj(&w, NULL);
    jw_str(&w, "state", "running");
    jw_int(&w, "keeper_pid", getpid());
    jw_int(&w, "init_pid", l->box.init);
    jw_u64(&w, "uptime_ms", clock_ms(CLOCK_BOOTTIME) - l->started_ms);
    jw_double(&w, "cpu_seconds", (double)s.cpu_usec / 1e6);
    jw_u64(&w, "memory", s.memory_now);
    jw_u64(&w, "memory_peak", s.memory_peak);
    /* without the launcher and the agent */
    jw_u64(&w, "pids", s.pids_now > box_own(&l->box) ? s.pids_now - box_own(&l->box) : s.pids_now);
    jw_u64(&w, "disk", used);
    jw_obj(&w, "limits");
    jw_u64(&w, "memory", p->memory.value);
    jw_double(&w, "cpus", (double)p->cpus_milli.value / 1000);
    jw_u64(&w, "pids", p->pids.value);
    jw_u64(&w, "disk", l->box.scratch.size);
    jw_str(&w, "memory_enforced", how[cgroup_enforced(l->box.cgroup, "memory")]);
    jw_str(&w, "cpus_enforced", how[cgroup_enforced(l->box.cgroup, "cpus")]);
    jw_str(&w, "pids_enforced", how[cgroup_enforced(l->box.cgroup, "pids")]);
    jw_str(&w, "disk_enforced", scratch_word(&l->box.scratch));
    jw_end_obj(&w);
    jw_u64(&w, "idle_timeout_ms", l->idle_ms);
    jw_u64(&w, "lifetime_ms", l->life_ms);
    jw_arr(&w, "events");
    for (size_t i = 0; i < ARRAY_LEN(events); i++)
        if (l->events & events[i].bit)
            jw_str(&w, NULL, events[i].word);
    jw_end_arr(&w);
    jw_u64(&w, "jobs", l->n_jobs);
    live_net_json(l, &w);
    jw_end_obj(&w);
    live_answer(a, w.out.p);
}

static void do_jobs(struct live *l, struct asker *a)
{
    AUTOJSONW struct jsonw w = { 0 };
    jw_obj(&w, NULL);
    jw_arr(&w, "jobs");
    for (size_t i = 0; i < l->n_jobs; i++)
        job_json(&w, NULL, l->jobs[i]);
    jw_end_arr(&w);
    jw_end_obj(&w);
    live_answer(a, w.out.p);
}

static void answer_job(struct asker *a, const struct job *j)
{
    AUTOJSONW struct jsonw w = { 0 };
    job_json(&w, NULL, j);
    live_answer(a, w.out.p);
}

void live_job_over(struct live *l, const struct job *j)
{
    for (size_t i = 0; i < LIVE_MAX_CLIENTS; i++)
        if (l->askers[i].fd >= 0 && l->askers[i].waits_for == j->number)
            answer_job(&l->askers[i], j);
}

static void do_job(struct live *l, struct asker *a, const char *op, const struct json *r)
{
    struct err *e = NULL;
    uint64_t number = 0, sig = 0;
    unsigned made = 0;
    struct job *j;

    if (strcmp(op, "job") == 0) {
        if (job_start(l, r, &made, &e) < 0)
            live_answer_err(a, e);
        else
            answer_job(a, job_find(l, made));
        return;
    }
    json_u64(r, "job", &number);
    j = job_find(l, number);
    if (!j) {
        err_new(&e, ERR_NOT_FOUND, "no job %llu; petri jobs lists them",
                (unsigned long long)number);
        live_answer_err(a, e);
    } else if (strcmp(op, "wait") == 0) {
        a->waits_for = j->number;
        if (j->done)
            answer_job(a, j);
    } else {
        json_u64(r, "signal", &sig);
        if (job_signal(j, (int)sig, &e) < 0)
            live_answer_err(a, e);
        else
            live_answer(a, "{}");
    }
}

static void answer(struct live *l, struct asker *a, const struct json *r)
{
    const char *op = json_str(r, "op");
    struct err *e = NULL;

    if (!op) {
        err_new(&e, ERR_INVALID, "a request without \"op\"");
        live_answer_err(a, e);
    } else if (strcmp(op, "ping") == 0) {
        live_answer(a, "{}");
    } else if (strcmp(op, "status") == 0) {
        do_status(l, a);
    } else if (strcmp(op, "stop") == 0) {
        l->ending = true; /* live_down() answers */
        l->promote = json_bool(r, "promote");
    } else if (strcmp(op, "layer") == 0 || strcmp(op, "snapshot") == 0) {
        do_layer(l, a, json_str(r, "message"), strcmp(op, "snapshot") == 0,
                 json_str(r, "idle") != NULL);
    } else if (strcmp(op, "rollback") == 0) {
        do_rollback(l, a, json_str(r, "snapshot"));
    } else if (strcmp(op, "snapshot_rm") == 0) {
        do_snapshot_rm(l, a, json_str(r, "snapshot"));
    } else if (strcmp(op, "refresh") == 0) {
        do_refresh(l, a);
    } else if (strcmp(op, "net") == 0) {
        live_net_show(l, a);
    } else if (strcmp(op, "net_denied") == 0) {
        live_net_denied(l, a, r);
    } else if (strcmp(op, "net_allow") == 0 || strcmp(op, "net_deny") == 0) {
        live_net_rules(l, a, r, strcmp(op, "net_allow") == 0);
    } else if (strcmp(op, "jobs") == 0) {
        do_jobs(l, a);
    } else if (strcmp(op, "job") == 0 || strcmp(op, "wait") == 0 || strcmp(op, "kill") == 0) {
        do_job(l, a, op, r);
    } else {
        err_new(&e, ERR_UNSUPPORTED,
                "this sandbox was started by petri %s, which does not know '%s'; petri restart",
                PETRI_VERSION, op);
        live_answer_err(a, e);
    }
}

void live_serve(struct live *l, struct asker *a)
{
    AUTOJSON struct json *r = NULL;
    struct err *e = NULL;
    char buf[4096];
    ssize_t n = recv(a->fd, buf, sizeof buf, 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || a->in.len + (size_t)n > REQUEST_MAX) {
        close_p(&a->fd);
        str_reset(&a->in);
        return;
    }
    str_addn(&a->in, buf, (size_t)n);
    if (a->in.p[a->in.len - 1] != '\n' || a->waits_for)
        return;
    if (json_parse(a->in.p, a->in.len, &r, &e) < 0)
        live_answer_err(a, e);
    else
        answer(l, a, r);
}
