#include "runtime/sandbox/run.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "base/fs.h"
#include "runtime/init/proto.h"
#include "runtime/sandbox/keeper.h"
#include "runtime/sandbox/layers.h"
#include "runtime/sandbox/state.h"
#include "runtime/sandbox/store_lock.h"
#include "runtime/sandbox/totals.h"

static int send_request(struct keeper *k, const int stdio[3])
{
    const struct plan *p = k->req->plan;
    AUTOSTR struct str s = STR_INIT;
    struct proto_exec x = {
        .expect = box_expect(p),
        .tty = p->tty,
        .n_argv = (uint32_t)p->argv.n,
        .n_env = (uint32_t)p->env.n,
        .uid = PROTO_SAME_ID,
        .gid = PROTO_SAME_ID,
        .timeout_ms = weakened() & WEAK_TIMEOUT ? 0 : p->timeout_ms,
    };
    streams_window(&k->streams, &x.rows, &x.cols);
    str_addn(&s, &x, sizeof x);
    str_addn(&s, p->cwd, strlen(p->cwd) + 1);
    for (size_t i = 0; i < p->argv.n; i++)
        str_addn(&s, p->argv.v[i], strlen(p->argv.v[i]) + 1);
    for (size_t i = 0; i < p->env.n; i++)
        str_addn(&s, p->env.v[i], strlen(p->env.v[i]) + 1);
    return proto_send(k->box.control, PROTO_EXEC, s.p, s.len, stdio, p->tty ? 0 : 3);
}

static int open_sources(struct keeper *k, struct err **e)
{
    const struct plan *p = k->req->plan;
    struct itimerspec t = { 0 }, tick = { .it_interval = { .tv_nsec = 250000000 },
                                          .it_value = { .tv_nsec = 250000000 } };
    bool ticks = k->box.scratch.watched || k->box.gate.policy;
    sigset_t set;

    sigemptyset(&set);
    for (const int *s =
             (const int[]){ SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, 0 };
         *s; s++) {
        struct sigaction old;
        /* under nohup the command is to survive the terminal, too */
        if (*s != SIGHUP || sigaction(*s, NULL, &old) < 0 || old.sa_handler != SIG_IGN)
            sigaddset(&set, *s);
    }
    sigprocmask(SIG_BLOCK, &set, NULL);
    k->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    k->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (ticks) {
        k->watch = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        timerfd_settime(k->watch, 0, &tick, NULL);
    }
    if (k->signals < 0 || k->timer < 0 || (ticks && k->watch < 0))
        return err_sys(e, "signals and timers");
    if (p->timeout_ms && !(weakened() & WEAK_TIMEOUT)) {
        /* petri-init keeps the deadline; this one is for the case that it can't */
        uint64_t ms = p->timeout_ms + 500;
        t.it_value.tv_sec = (time_t)(ms / 1000);
        t.it_value.tv_nsec = (long)(ms % 1000) * 1000000;
        timerfd_settime(k->timer, 0, &t, NULL);
    }
    return 0;
}

/* How long to wait for the next event while the sandbox comes up; -1: as long as it takes. */
static int until_started(struct keeper *k, uint64_t since)
{
    uint64_t limit = k->req->plan->startup_ms, now = clock_ms(CLOCK_BOOTTIME) - since;

    if (!limit || k->started || k->failed || k->finished)
        return -1;
    if (now < limit)
        return limit - now > INT_MAX ? INT_MAX : (int)(limit - now);
    k->failed = true;
    err_new(k->e, ERR_LIMIT, "the sandbox did not come up within %llu ms (--startup-timeout)",
            (unsigned long long)limit);
    box_end(&k->box);
    return -1;
}

/* Everything that happens between the start and the end of the launcher and both streams. */
static void loop(struct keeper *k)
{
    uint64_t since = clock_ms(CLOCK_BOOTTIME);
    bool launcher_alive = true;

    while (launcher_alive || !streams_drained(&k->streams)) {
        int wait = until_started(k, since);
        struct pollfd fds[7 + STREAMS_MAX_POLL] = {
            { .fd = k->box.control, .events = POLLIN },
            { .fd = k->box.launcher.report, .events = POLLIN },
            { .fd = k->signals, .events = POLLIN },
            { .fd = k->timer, .events = POLLIN },
            { .fd = launcher_alive ? k->box.launcher_pidfd : -1, .events = POLLIN },
            { .fd = k->watch, .events = POLLIN },
            { .fd = k->box.gate.control, .events = POLLIN },
        };
        size_t n = 7 + streams_poll(&k->streams, fds + 7);
        if (poll(fds, n, wait) < 0 && errno != EINTR)
            break;
        if (fds[0].revents)
            keeper_on_control(k);
        streams_serve(&k->streams, fds + 7);
        if (fds[1].revents)
            keeper_on_report(k);
        if (fds[2].revents)
            keeper_on_signal(k);
        if (fds[3].revents)
            keeper_on_timer(k);
        if (fds[5].revents)
            keeper_on_watch(k);
        if (fds[6].revents)
            keeper_on_gate(k);
        if (fds[4].revents && k->box.launcher.report < 0 && k->box.control < 0) {
            box_wait(&k->box);
            launcher_alive = false;
            streams_command_gone(&k->streams);
        } else if (fds[4].revents) {
            /* its last words are in the sockets; a dead launcher also means: no sandbox */
            if (k->box.init > 0 && !k->finished && !k->failed)
                kill(k->box.init, SIGKILL);
        }
    }
}

static void report_limits(struct keeper *k)
{
    static const char *const words[] = { "none", "cgroup-v1", "cgroup-v2", "rlimit" };
    static const char *const names[] = { "memory", "cpus", "pids" };
    const struct plan *p = k->req->plan;
    const uint64_t values[] = { p->memory.value, p->cpus_milli.value, p->pids.value };
    struct run_result *r = k->res;

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        r->limits[r->n_limits++] =
            (struct limit_report){ names[i], values[i],
                                   words[cgroup_enforced(k->box.cgroup, names[i])] };
    r->limits[r->n_limits++] =
        (struct limit_report){ "disk", k->box.scratch.size, scratch_word(&k->box.scratch) };
    r->limits[r->n_limits++] =
        (struct limit_report){ "timeout", p->timeout_ms, p->timeout_ms ? "init" : "none" };
}

static void final_stats(struct keeper *k)
{
    struct cgroup_stats s = { 0 };
    cgroup_stats(k->box.cgroup, &s);
    if (s.oom_kills)
        k->res->events |= EVENT_OOM;
    if (s.pids_max_hits)
        k->res->events |= EVENT_PIDS;
    if (s.cpu_usec)
        k->res->cpu_ms = s.cpu_usec / 1000;
    if (s.memory_peak)
        k->res->peak_memory = s.memory_peak;
    gate_settle(&k->box.gate, 200);
    gate_counts(&k->box.gate, &k->res->net);
    if (k->res->denied.n)
        k->res->events |= EVENT_NET_DENIED;
    if (k->res->timed_out)
        k->res->events |= EVENT_TIMEOUT;
    if (k->req->out.seen > k->req->out.cap || k->req->err.seen > k->req->err.cap)
        k->res->events |= EVENT_TRUNCATED;
}

static int start(struct keeper *k, struct err **e)
{
    int stdio[3] = { -1, -1, -1 }, rc = box_launch(&k->box, k->req->count_changes, e);

    if (rc < 0)
        return rc;
    /* after the fork: the launcher never has the command's pipes */
    if ((rc = streams_open(&k->streams, k->req->in, &k->req->out, &k->req->err, k->req->plan->tty,
                           stdio, e)) < 0)
        return rc;
    /* where nobody is there any more, the launcher says why */
    if (send_request(k, stdio) < 0 && errno != EPIPE && errno != ECONNRESET)
        rc = err_sys(e, "hand over the command");
    for (int i = 0; i < 3; i++)
        close_p(&stdio[i]);
    return rc;
}

/* PID 1 is gone without a word: where memory ran out it was among the killed, like the command. */
static int ended_early(struct keeper *k, struct err **e)
{
    struct cgroup_stats s = { 0 };
    cgroup_stats(k->box.cgroup, &s);
    if (!s.oom_kills)
        return err_new(e, ERR_FAILED, "the sandbox ended before the command did");
    k->finished = true;
    k->res->signal = SIGKILL;
    k->res->status = 128 + SIGKILL;
    return 0;
}

static void keeper_close(struct keeper *k)
{
    int *const fds[] = { &k->timer, &k->signals, &k->watch, &k->lock, &k->store };
    streams_close(&k->streams);
    box_free_p(&k->box);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        close_p(fds[i]);
}

/* The record of a sandbox that stays after its run. */
static int keep(struct keeper *k, int status, struct err **e)
{
    const struct plan *p = k->req->plan;
    AUTOSTATE struct state s = { 0 };

    state_from_plan(&s, p, &k->box.ids);
    s.top = str_dup(strrchr(p->top, '/') + 1);
    s.ran = true;
    for (size_t i = 0; i < k->req->options->n; i++)
        if (!str_starts(k->req->options->v[i], "keep="))
            strv_add(&s.options, k->req->options->v[i]);
    s.exit_status = (uint64_t)status;
    return state_write(k->req->paths, &s, e);
}

static int prepare(struct keeper *k, struct err **e)
{
    const struct plan *p = k->req->plan;
    AUTOFREE char *dir = NULL, *files = NULL;
    int rc = box_prepare(&k->box, k->req->on_prepare, e);

    if (rc < 0 || (p->top && ((rc = store_lock_shared(k->req->paths, &k->store, e)) < 0 ||
                              (rc = fs_mkdirs(p->top, 0755, e)) < 0)))
        return rc;
    k->req->ids_note = ids_note(&k->box.ids);
    if (p->top || k->box.scratch.kind == SCRATCH_DIR) {
        if ((rc = state_create(k->req->paths, p->id, &k->lock, e)) < 0)
            return rc;
        if (p->name && p->keep && (rc = state_name(k->req->paths, p->id, p->name, e)) < 0)
            return rc;
        dir = state_dir(k->req->paths, p->id);
        files = path_join(dir, "files");
        /* the sandbox's root must get through to files/, the directories above stay closed to others */
        if (!p->top && mkdir(files, 0755) < 0)
            return err_sys(e, "make '%s'", files);
    }
    return open_sources(k, e);
}

int sandbox_run(struct run_req *r, struct run_result *ret, struct err **e)
{
    struct keeper k = { .req = r,
                        .res = ret,
                        .e = e,
                        .box = BOX_INIT(r->plan, r->paths),
                        .timer = -1,
                        .signals = -1,
                        .watch = -1,
                        .lock = -1,
                        .store = -1,
                        .streams = { .tty = -1, .master = -1 } };
    uint64_t started = clock_ms(CLOCK_MONOTONIC);
    int rc;

    *ret = (struct run_result){ .exit_code = -1, .status = 125 };
    k.box.gate.on_line = keeper_on_verdict;
    k.box.gate.arg = &k;
    rc = prepare(&k, e);
    if (rc == 0)
        rc = start(&k, e);
    if (rc == 0) {
        sandbox_sweep_some(r->paths); /* while the launcher works: nobody waits for it */
        loop(&k);
        rc = k.failed && ret->status == 125 ? -ERR_FAILED : 0;
        if (rc == 0 && !k.finished && !k.failed)
            rc = ended_early(&k, e);
    } else {
        box_end(&k.box);
        box_wait(&k.box);
    }
    if (k.box.cgroup) {
        report_limits(&k);
        final_stats(&k);
    }
    if (k.lock >= 0 && r->plan->keep && rc == 0 && k.finished)
        rc = keep(&k, ret->status, e);
    else if (k.lock >= 0)
        (void)state_remove(r->paths, r->plan->id, NULL);
    keeper_close(&k);
    ret->wall_ms = clock_ms(CLOCK_MONOTONIC) - started;
    return rc;
}

void sandbox_sweep(const struct paths *paths)
{
    (void)cgroup_sweep(NULL);
    if (state_sweep(paths))
        (void)layers_remove_unreferenced(paths, NULL);
    totals_sweep(paths);
}

enum { MANY_RUN = 100, SWEEP_SECONDS = 10 };

static bool many_run(const char *running)
{
    DIR *d = opendir(running);
    int n = 0;

    while (d && n < MANY_RUN && fs_next(d))
        n++;
    if (d)
        closedir(d);
    return n == MANY_RUN;
}

void sandbox_sweep_some(const struct paths *paths)
{
    AUTOFREE char *running = path_join(paths->data, "running");
    AUTOCLOSE int fd = -1;
    struct stat st;

    if (many_run(running)) {
        AUTOFREE char *swept = path_join(running, ".swept");
        int64_t age = lstat(swept, &st) == 0 ? time(NULL) - st.st_mtim.tv_sec : SWEEP_SECONDS;
        if (age >= 0 && age < SWEEP_SECONDS)
            return;
        fd = open(swept, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0)
            (void)futimens(fd, NULL);
    }
    sandbox_sweep(paths);
}

char *sandbox_unenforced(const struct run_result *r)
{
    AUTOSTR struct str s = STR_INIT;
    for (size_t i = 0; i < r->n_limits; i++)
        if (strcmp(r->limits[i].how, "none") == 0 && strcmp(r->limits[i].name, "timeout") != 0)
            str_addf(&s, "%s%s", s.len ? ", " : "", r->limits[i].name);
    return s.len ? str_take(&s) : NULL;
}
