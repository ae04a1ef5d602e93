#include "runtime/sandbox/live.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>

#include "base/clock.h"
#include "base/fs.h"
#include "runtime/init/proto.h"
#include "runtime/sandbox/events.h"
#include "runtime/sandbox/layers.h"
#include "runtime/sandbox/run.h"

enum {
    START_TIMEOUT_MS = 60000,
    TICK_MIN_MS = 250,
    TICK_MAX_MS = 4000,
    ANSWER_MS = 5000,
    LIVE_OWN_FDS = 6
};

/* A listening socket in the directory `dir`; bound through the directory, since a socket's path is short. */
static int listen_at(int dir, const char *name, int *ret, struct err **e)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    AUTOCLOSE int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/%s", dir, name);
    (void)unlinkat(dir, name, 0);
    if (s < 0 || bind(s, (struct sockaddr *)&a, sizeof a) < 0 || listen(s, 512) < 0)
        return err_sys(e, "make the socket '%s'", name);
    *ret = TAKE_FD(s);
    return 0;
}

static int make_sockets(struct live *l, struct err **e)
{
    AUTOFREE char *path = path_join(l->paths->run, l->plan->id);
    AUTOCLOSE int dir = -1;
    int rc = fs_mkdirs(path, 0700, e);

    if (rc < 0)
        return rc;
    dir = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return err_sys(e, "open '%s'", path);
    if ((rc = listen_at(dir, "sock", &l->listen, e)) < 0)
        return rc;
    return listen_at(dir, "ctl", &l->ctl, e);
}

static void remove_sockets(struct live *l)
{
    AUTOFREE char *path = path_join(l->paths->run, l->plan->id);
    close_p(&l->listen);
    close_p(&l->ctl);
    (void)fs_remove_tree(AT_FDCWD, path, NULL);
}

static int send_serve(struct live *l, struct err **e)
{
    const struct plan *p = l->plan;
    AUTOSTR struct str s = STR_INIT;
    struct proto_serve x = {
        .expect = box_expect(p), .n_env = (uint32_t)p->env.n, .uid = p->uid, .gid = p->gid
    };

    if (ids_init(&l->box.ids, p))
        x.expect = (x.expect & ~(uint32_t)EXPECT_NO_CAPS) | EXPECT_OWN_ID;
    str_addn(&s, &x, sizeof x);
    str_addn(&s, p->cwd, strlen(p->cwd) + 1);
    for (size_t i = 0; i < p->env.n; i++)
        str_addn(&s, p->env.v[i], strlen(p->env.v[i]) + 1);
    if (proto_send(l->box.control, PROTO_SERVE, s.p, s.len, &l->listen, 1) < 0)
        return err_sys(e, "talk to the sandbox's init");
    return 0;
}

/* One frame from petri-init during the start; 1: it serves. */
static int on_hello(struct live *l, struct err **e)
{
    struct proto_header h;
    struct proto_failed f;
    AUTOFREE char *p = NULL;
    int fds[1], n = 0;
    pid_t pid = 0;

    if (proto_recv(l->box.control, &h, &p, fds, 0, &n, &pid) < 0) {
        close_p(&l->box.control); /* the launcher says why */
        return 0;
    }
    if (h.type == PROTO_HELLO && l->box.init == 0) {
        l->box.init = pid;
        return 0;
    }
    if (h.type == PROTO_STARTED && l->box.init > 0)
        return 1;
    if (h.type == PROTO_FAILED && h.len == sizeof f) {
        memcpy(&f, p, sizeof f);
        if (f.stage == STAGE_EXPECT)
            return err_new(e, ERR_INTERNAL,
                           "the sandbox came up without a protection (bits %#x); nothing was run",
                           (unsigned)f.error);
        return err_new(e, ERR_FAILED, "the sandbox's init failed in stage %u: %s", f.stage,
                       strerror(f.error));
    }
    return err_new(e, ERR_FAILED, "the sandbox's init talks nonsense; it was ended");
}

/* One word of the launcher; an error is the sandbox's end. */
static int on_report(struct live *l, struct err **e)
{
    char buf[1024];
    struct report r;
    ssize_t n = recv(l->box.launcher.report, buf, sizeof buf - 1, 0);

    if (n < (ssize_t)sizeof r) {
        close_p(&l->box.launcher.report);
        return l->box.control < 0 ? err_new(e, ERR_FAILED, "the sandbox ended during its start")
                                  : 0;
    }
    buf[n] = '\0';
    memcpy(&r, buf, sizeof r);
    if (r.type == REPORT_MAPS)
        return box_serve_maps(&l->box, e);
    if (r.type == REPORT_ERROR)
        return err_new(e, (enum err_code)r.code, "the sandbox did not start: %s", buf + sizeof r);
    return 0;
}

static int bring_up(struct live *l, struct err **e)
{
    uint64_t limit = l->plan->startup_ms ? l->plan->startup_ms : START_TIMEOUT_MS;
    uint64_t end = clock_ms(CLOCK_BOOTTIME) + limit;
    int rc = box_launch(&l->box, false, e);

    /* where nobody is there any more, the launcher says why */
    if (rc == 0 && send_serve(l, NULL) < 0 && errno != EPIPE && errno != ECONNRESET)
        rc = err_sys(e, "talk to the sandbox's init");
    if (rc == 0 && l->on_launched)
        l->on_launched(l);
    l->on_launched = NULL;
    while (rc == 0) {
        struct pollfd fds[] = { { .fd = l->box.control, .events = POLLIN },
                                { .fd = l->box.launcher.report, .events = POLLIN } };
        uint64_t now = clock_ms(CLOCK_BOOTTIME);
        if (fds[0].fd < 0 && fds[1].fd < 0)
            rc = err_new(e, ERR_FAILED, "the sandbox did not come up");
        else if (now >= end)
            rc = err_new(e, ERR_LIMIT,
                         "the sandbox did not come up within %llu ms (--startup-timeout)",
                         (unsigned long long)limit);
        else if (poll(fds, 2, end - now > INT_MAX ? INT_MAX : (int)(end - now)) < 0 &&
                 errno != EINTR)
            rc = err_sys(e, "poll");
        else if (fds[0].revents)
            rc = on_hello(l, e);
        else if (fds[1].revents)
            rc = on_report(l, e);
    }
    if (rc == 1)
        return 0;
    box_end(&l->box);
    box_wait(&l->box);
    return rc;
}

/* A keeper must never hang on what comes from inside. */
static void bound_waits(int sock)
{
    struct timeval t = { .tv_sec = ANSWER_MS / 1000 };
    setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
}

static void set_tick(struct live *l, uint64_t ms)
{
    struct itimerspec t = { .it_value = { (time_t)(ms / 1000), (long)(ms % 1000) * 1000000 } };
    l->tick_ms = ms;
    timerfd_settime(l->tick, 0, &t, NULL);
}

int live_up(struct live *l, struct err **e)
{
    sigset_t set;
    int rc;

    sigemptyset(&set);
    for (const int *s = (const int[]){ SIGINT, SIGTERM, SIGHUP, SIGCHLD, 0 }; *s; s++)
        sigaddset(&set, *s);
    sigprocmask(SIG_BLOCK, &set, NULL);
    l->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    l->tick = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    for (size_t i = 0; i < LIVE_MAX_CLIENTS; i++)
        l->askers[i].fd = -1;
    if (l->signals < 0 || l->tick < 0)
        return err_sys(e, "signals and timers");
    l->box.gate.on_line = live_net_line;
    l->box.gate.arg = l;
    if ((rc = box_prepare(&l->box, l->on_prepare, e)) < 0 || (rc = make_sockets(l, e)) < 0 ||
        (rc = bring_up(l, e)) < 0) {
        remove_sockets(l);
        box_free_p(&l->box);
        return rc;
    }
    bound_waits(l->box.control);
    l->started_ms = l->active_ms = clock_ms(CLOCK_BOOTTIME);
    set_tick(l, TICK_MIN_MS);
    return 0;
}

int live_replace(struct live *l, struct err **e)
{
    int rc;
    box_end(&l->box);
    box_wait(&l->box);
    /* nothing of it is mounted at this moment */
    rc = layers_compact(l->paths, &l->state, 2 * LAYERS_LONG, e);
    live_replan(l);
    if (rc == 0)
        rc = bring_up(l, e);
    if (rc < 0)
        l->ending = true;
    else
        bound_waits(l->box.control);
    return rc;
}

int live_quiesce(struct live *l, uint32_t *ret, struct err **e)
{
    struct proto_header h;
    AUTOFREE char *p = NULL;
    int fds[1], n = 0;

    if (proto_send(l->box.control, PROTO_QUIESCE, NULL, 0, NULL, 0) < 0 ||
        proto_recv(l->box.control, &h, &p, fds, 0, &n, NULL) < 0)
        return err_sys(e, "ask the sandbox's init");
    if (h.type != PROTO_IDLE || h.len != sizeof *ret)
        return err_new(e, ERR_FAILED, "the sandbox's init talks nonsense");
    memcpy(ret, p, sizeof *ret);
    return 0;
}

void live_resume(struct live *l)
{
    (void)proto_send(l->box.control, PROTO_RESUME, NULL, 0, NULL, 0);
}

static void on_signal(struct live *l)
{
    struct signalfd_siginfo si;
    while (read(l->signals, &si, sizeof si) == sizeof si)
        l->ending |= si.ssi_signo == SIGTERM || si.ssi_signo == SIGINT;
}

static void hit(struct live *l, enum run_event event, const char *word)
{
    if (!(l->events & event))
        events_add(l->paths, word, &l->state, NULL);
    l->events |= event;
    l->hit_ms[__builtin_ctz(event)] = clock_ms(CLOCK_BOOTTIME);
}

void live_look_limits(struct live *l, struct cgroup_stats *ret)
{
    *ret = (struct cgroup_stats){ 0 };
    cgroup_stats(l->box.cgroup, ret);
    if (ret->oom_kills > l->oom_kills)
        hit(l, EVENT_OOM, "oom");
    if (ret->pids_max_hits > l->pids_hits)
        hit(l, EVENT_PIDS, "pids");
    /* less than before: a new group */
    l->oom_kills = ret->oom_kills;
    l->pids_hits = ret->pids_max_hits;
}

/* Limits that were hit since the last look, and whether anybody is at work. */
static bool look(struct live *l)
{
    struct cgroup_stats s;
    uint32_t others = 0;
    bool busy;

    live_look_limits(l, &s);
    busy = s.cpu_usec != l->cpu_usec || s.pids_now > box_own(&l->box) + 1;
    l->cpu_usec = s.cpu_usec;
    if (!s.pids_now && live_quiesce(l, &others, NULL) == 0) {
        /* nothing counts for us here */
        busy = others > 0;
        live_resume(l);
    }
    return busy;
}

/* Only the keeper limits what is written: beyond the limit all commands are ended, petri-init stays. */
static void watch_disk(struct live *l)
{
    if (!scratch_over(&l->box.scratch))
        return;
    hit(l, EVENT_DISK, "disk");
    (void)cgroup_kill_others(l->box.cgroup, l->box.init);
}

/* The run directory goes with the user's last session on some machines; the sandbox stays, under new sockets. */
static void watch_sockets(struct live *l)
{
    AUTOFREE char *path = str_printf("%s/%s/sock", l->paths->run, l->plan->id);
    struct proto_header h;
    AUTOFREE char *p = NULL;
    int fds[1], n = 0;

    if (access(path, F_OK) == 0 || errno != ENOENT)
        return;
    close_p(&l->listen);
    close_p(&l->ctl);
    if (make_sockets(l, NULL) < 0)
        return; /* the next look tries again */
    if (send_serve(l, NULL) < 0 || proto_recv(l->box.control, &h, &p, fds, 0, &n, NULL) < 0 ||
        h.type != PROTO_STARTED)
        l->ending = true;
}

/* Without its gateway a sandbox has no network; whether it goes on like that was decided at its start. */
static void watch_gate(struct live *l)
{
    gate_tick(&l->box.gate);
    if (l->box.gate.failed && !l->ending) {
        AUTOJSONW struct jsonw w = { 0 };
        jw_members(&w);
        jw_str(&w, "why", l->box.gate.why ? l->box.gate.why : "the gateway died");
        events_add(l->paths, "net_failed", &l->state, &w);
        l->ending = true;
    }
}

static void on_tick(struct live *l)
{
    uint64_t n, now = clock_ms(CLOCK_BOOTTIME);
    bool busy;

    (void)!read(l->tick, &n, sizeof n);
    watch_sockets(l);
    watch_gate(l);
    busy = look(l);
    if (busy) {
        l->active_ms = now;
        watch_disk(l);
    }
    if ((l->life_ms && now - l->started_ms >= l->life_ms) ||
        (l->idle_ms && !busy && now - l->active_ms >= l->idle_ms))
        l->ending = l->promote = true;
    n = busy ? TICK_MIN_MS : l->tick_ms * 2;
    n = n > TICK_MAX_MS ? TICK_MAX_MS : n;
    if (l->idle_ms && n > l->idle_ms / 2)
        n = l->idle_ms / 2 > TICK_MIN_MS ? l->idle_ms / 2 : TICK_MIN_MS;
    set_tick(l, n);
}

void live_loop(struct live *l)
{
    while (!l->ending) {
        struct pollfd fds[LIVE_OWN_FDS + LIVE_MAX_CLIENTS + 2 * LIVE_MAX_JOBS] = {
            { .fd = l->box.control, .events = POLLIN },
            { .fd = l->box.launcher_pidfd, .events = POLLIN },
            { .fd = l->signals, .events = POLLIN },
            { .fd = l->tick, .events = POLLIN },
            { .fd = l->ctl, .events = POLLIN },
            { .fd = l->box.gate.control, .events = POLLIN },
        };
        size_t n = LIVE_OWN_FDS, jobs;

        for (size_t i = 0; i < LIVE_MAX_CLIENTS; i++)
            fds[n++] = (struct pollfd){ .fd = l->askers[i].fd, .events = POLLIN };
        jobs = jobs_poll(l, fds + n);
        if (poll(fds, n + jobs, -1) < 0 && errno != EINTR)
            break;
        /* petri-init says nothing unasked: whatever comes, it is the end */
        if (fds[0].revents || fds[1].revents)
            break;
        if (fds[2].revents)
            on_signal(l);
        if (fds[3].revents)
            on_tick(l);
        jobs_serve(l, fds + n, jobs);
        for (size_t i = 0; i < LIVE_MAX_CLIENTS; i++)
            if (fds[LIVE_OWN_FDS + i].revents && l->askers[i].fd == fds[LIVE_OWN_FDS + i].fd)
                live_serve(l, &l->askers[i]);
        if (fds[4].revents)
            live_accept(l);
        if (fds[5].revents) {
            gate_serve(&l->box.gate);
            watch_gate(l);
        }
    }
    live_down(l);
}

void live_down(struct live *l)
{
    events_add(l->paths, "stop", &l->state, NULL);
    box_end(&l->box);
    box_wait(&l->box);
    jobs_free(l);
    denied_free_p(&l->denied);
    remove_sockets(l);
    box_free_p(&l->box);
    if (live_promotes(l))
        live_promote(l);
    /* whoever asked for the end hears of it when it has come */
    close_p(&l->holds.caches_fd);
    close_p(&l->lock);
    for (size_t i = 0; i < LIVE_MAX_CLIENTS; i++)
        if (l->askers[i].fd >= 0)
            live_answer(&l->askers[i], l->farewell ? l->farewell : "{\"state\":\"stopped\"}");
}
