#include "runtime/sandbox/run.h"

#include <fcntl.h>
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

#include "base/fs.h"
#include "runtime/init/proto.h"
#include "runtime/sandbox/keeper.h"
#include "runtime/sandbox/state.h"

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static int send_request(struct keeper *k, const int stdio[3])
{
    const struct plan *p = k->req->plan;
    AUTOSTR struct str s = STR_INIT;
    unsigned weak = weakened();
    struct proto_exec x = {
        .expect = EXPECT_PID1 | (weak & WEAK_SECCOMP ? 0 : EXPECT_SECCOMP) |
                  (weak & WEAK_NNP ? 0 : EXPECT_NO_NEW_PRIVS) |
                  (p->uid == 0 || weak & WEAK_CAPS ? 0 : EXPECT_NO_CAPS),
        .tty = p->tty,
        .n_argv = (uint32_t)p->argv.n,
        .n_env = (uint32_t)p->env.n,
        .uid = PROTO_SAME_ID,
        .gid = PROTO_SAME_ID,
        .timeout_ms = weak & WEAK_TIMEOUT ? 0 : p->timeout_ms,
    };
    streams_window(&k->streams, &x.rows, &x.cols);
    str_addn(&s, &x, sizeof x);
    str_addn(&s, p->cwd, strlen(p->cwd) + 1);
    for (size_t i = 0; i < p->argv.n; i++)
        str_addn(&s, p->argv.v[i], strlen(p->argv.v[i]) + 1);
    for (size_t i = 0; i < p->env.n; i++)
        str_addn(&s, p->env.v[i], strlen(p->env.v[i]) + 1);
    return proto_send(k->control, PROTO_EXEC, s.p, s.len, stdio, p->tty ? 0 : 3);
}

static int open_sources(struct keeper *k, struct err **e)
{
    const struct plan *p = k->req->plan;
    struct itimerspec t = { 0 }, tick = { .it_interval = { .tv_nsec = 250000000 },
                                          .it_value = { .tv_nsec = 250000000 } };
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
    if (k->scratch.kind == SCRATCH_DIR) {
        k->watch = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        timerfd_settime(k->watch, 0, &tick, NULL);
    }
    if (k->signals < 0 || k->timer < 0 || (k->scratch.kind == SCRATCH_DIR && k->watch < 0))
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

/* Everything that happens between the start and the end of the launcher and both streams. */
static void loop(struct keeper *k)
{
    bool launcher_alive = true;

    while (launcher_alive || !streams_drained(&k->streams)) {
        struct pollfd fds[6 + STREAMS_MAX_POLL] = {
            { .fd = k->control, .events = POLLIN },
            { .fd = k->launcher.report, .events = POLLIN },
            { .fd = k->signals, .events = POLLIN },
            { .fd = k->timer, .events = POLLIN },
            { .fd = launcher_alive ? k->launcher_pidfd : -1, .events = POLLIN },
            { .fd = k->watch, .events = POLLIN },
        };
        size_t n = 6 + streams_poll(&k->streams, fds + 6);
        if (poll(fds, n, -1) < 0 && errno != EINTR)
            break;
        if (fds[0].revents)
            keeper_on_control(k);
        streams_serve(&k->streams, fds + 6);
        if (fds[1].revents)
            keeper_on_report(k);
        if (fds[2].revents)
            keeper_on_signal(k);
        if (fds[3].revents)
            keeper_on_timer(k);
        if (fds[5].revents)
            keeper_on_watch(k);
        if (fds[4].revents && k->launcher.report < 0 && k->control < 0) {
            waitpid(k->launcher.pid, NULL, 0);
            launcher_alive = false;
            streams_command_gone(&k->streams);
        } else if (fds[4].revents) {
            /* its last words are in the sockets; a dead launcher also means: no sandbox */
            if (k->init > 0 && !k->finished && !k->failed)
                kill(k->init, SIGKILL);
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
                                   words[cgroup_enforced(k->cgroup, names[i])] };
    r->limits[r->n_limits++] =
        (struct limit_report){ "disk", k->scratch.size, scratch_word(k->scratch.kind) };
    r->limits[r->n_limits++] =
        (struct limit_report){ "timeout", p->timeout_ms, p->timeout_ms ? "init" : "none" };
}

static void final_stats(struct keeper *k)
{
    struct cgroup_stats s = { 0 };
    cgroup_stats(k->cgroup, &s);
    if (s.oom_kills)
        k->res->events |= EVENT_OOM;
    if (s.pids_max_hits)
        k->res->events |= EVENT_PIDS;
    if (s.cpu_usec)
        k->res->cpu_ms = s.cpu_usec / 1000;
    if (s.memory_peak)
        k->res->peak_memory = s.memory_peak;
    if (k->res->timed_out)
        k->res->events |= EVENT_TIMEOUT;
    if (k->req->out.seen > k->req->out.cap || k->req->err.seen > k->req->err.cap)
        k->res->events |= EVENT_TRUNCATED;
}

static int start(struct keeper *k, const char *init, struct err **e)
{
    const struct plan *p = k->req->plan;
    int pair[2], stdio[3] = { -1, -1, -1 }, one = 1, rc;
    struct launch l = {
        .plan = p,
        .ids = &k->ids,
        .scratch = &k->scratch,
        .dirs = &k->dirs,
        .init = init,
        .count_changes = k->req->count_changes,
        .cgroup = weakened() & WEAK_LIMITS ? NULL : k->cgroup,
    };

    if (cgroup_enforced(k->cgroup, "pids") == CG_RLIMIT && !(weakened() & WEAK_LIMITS))
        l.nproc = p->pids.value;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(e, "socketpair");
    k->control = pair[0];
    l.control = pair[1];
    setsockopt(k->control, SOL_SOCKET, SO_PASSCRED, &one, sizeof one);
    rc = launcher_start(&l, &k->launcher, e);
    close(pair[1]);
    if (rc < 0)
        return rc;
    k->launcher_pidfd = (int)syscall(SYS_pidfd_open, k->launcher.pid, 0);
    if (k->launcher_pidfd < 0)
        return err_sys(e, "pidfd of the launcher");
    /* after the fork: the launcher never has the command's pipes */
    if ((rc = streams_open(&k->streams, k->req->in, &k->req->out, &k->req->err, p->tty, stdio, e)) <
        0)
        return rc;
    if (send_request(k, stdio) < 0)
        rc = err_sys(e, "hand over the command");
    for (int i = 0; i < 3; i++)
        close_p(&stdio[i]);
    return rc;
}

/* PID 1 is gone without a word: where memory ran out it was among the killed, like the command. */
static int ended_early(struct keeper *k, struct err **e)
{
    struct cgroup_stats s = { 0 };
    cgroup_stats(k->cgroup, &s);
    if (!s.oom_kills)
        return err_new(e, ERR_FAILED, "the sandbox ended before the command did");
    k->finished = true;
    k->res->signal = SIGKILL;
    k->res->status = 128 + SIGKILL;
    return 0;
}

static void keeper_close(struct keeper *k)
{
    int *const fds[] = { &k->control, &k->launcher.report, &k->launcher.go, &k->launcher_pidfd,
                         &k->timer,   &k->signals,         &k->watch,       &k->lock };
    streams_close(&k->streams);
    scratch_free_p(&k->scratch);
    dirlayer_free_p(&k->dirs);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        close_p(fds[i]);
}

/* All sandboxes together: none is started that the machine could not carry. */
static int enough_memory(const struct plan *p, struct err **e)
{
    AUTOFREE char *text = NULL;
    char *line, have[24], need[24];
    uint64_t kb = 0;

    if (fs_read(AT_FDCWD, "/proc/meminfo", 65536, &text, NULL, NULL) < 0 ||
        !(line = strstr(text, "MemAvailable:")))
        return 0;
    kb = strtoull(line + strlen("MemAvailable:"), NULL, 10);
    if (kb * 1024 >= p->memory.value / 4)
        return 0;
    format_size(kb * 1024, have);
    format_size(p->memory.value / 4, need);
    return err_new(
        e, ERR_LIMIT,
        "%s of memory are available, less than a quarter of the sandbox's limit (%s); end "
        "something or lower --memory",
        have, need);
}

/* Where the launcher mounts the scratch, in its own mount namespace. Root's sandboxes run under other ids and
 * must get through to it, which petri's own directories (0700) forbid: /boot is on every system, open to
 * be passed, and no project's place. */
static char *mount_point(const struct paths *paths)
{
    struct stat st;
    if (geteuid() == 0 && lstat("/boot", &st) == 0 && S_ISDIR(st.st_mode) && st.st_mode & S_IXOTH)
        return str_dup("/boot");
    return path_join(paths->run, "mnt");
}

/* Everything that can be refused is refused here, before anything is made. */
static int prepare(struct keeper *k, char **ret_init, struct err **e)
{
    const struct plan *p = k->req->plan;
    AUTOFREE char *at = mount_point(k->req->paths),
                  *layers = path_join(k->req->paths->data, "layers");
    bool many = geteuid() != 0 && p->uid != getuid() && strcmp(p->image, "host") == 0;
    struct cgroup_limits limits = {
        .memory = p->memory.value,
        .cpu_milli = p->cpus_milli.value,
        .pids = p->pids.value,
        .memory_asked = p->memory.asked,
        .cpu_asked = p->cpus_milli.asked,
        .pids_asked = p->pids.asked,
    };
    int rc;

    if ((rc = ids_plan(p, many, &k->ids, e)) < 0 ||
        (rc = scratch_choose(p, k->req->paths->data, at, &k->scratch, e)) < 0)
        return rc;
    k->req->ids_note = ids_note(&k->ids);
    if ((rc = enough_memory(p, e)) < 0)
        return rc;
    if (!(*ret_init = paths_helper("petri-init", e)))
        return -ERR_NOT_FOUND;
    /* before limits and the deadline count */
    if ((rc = dirlayer_open(layers, p, &k->ids, k->req->on_prepare, &k->dirs, e)) < 0)
        return rc;
    if ((rc = cgroup_create(p->id, &limits, &k->cgroup, e)) < 0 ||
        (rc = cgroup_wait(k->cgroup, e)) < 0 || (rc = fs_mkdirs(at, 0700, e)) < 0)
        return rc;
    if (k->scratch.kind == SCRATCH_DIR && (rc = state_create(k->req->paths, p, &k->lock, e)) < 0)
        return rc;
    return open_sources(k, e);
}

int sandbox_run(struct run_req *r, struct run_result *ret, struct err **e)
{
    struct keeper k = { .req = r,
                        .res = ret,
                        .e = e,
                        .control = -1,
                        .launcher_pidfd = -1,
                        .timer = -1,
                        .signals = -1,
                        .watch = -1,
                        .lock = -1,
                        .launcher = { .report = -1, .go = -1 },
                        .streams = { .tty = -1, .master = -1 } };
    AUTOFREE char *init = NULL;
    uint64_t started = now_ms();
    int rc;

    *ret = (struct run_result){ .exit_code = -1, .status = 125 };
    rc = prepare(&k, &init, e);
    if (rc == 0)
        rc = start(&k, init, e);
    if (rc == 0) {
        sandbox_sweep(r->paths); /* while the launcher works: nobody waits for it */
        loop(&k);
        rc = k.failed && ret->status == 125 ? -ERR_FAILED : 0;
        if (rc == 0 && !k.finished && !k.failed)
            rc = ended_early(&k, e);
    } else {
        keeper_end_sandbox(&k);
        if (k.launcher.pid > 0)
            waitpid(k.launcher.pid, NULL, 0);
    }
    if (k.cgroup) {
        report_limits(&k);
        final_stats(&k);
        cgroup_free(k.cgroup);
    }
    if (k.lock >= 0 && r->plan->keep && rc == 0 && k.finished)
        rc = state_keep(r->paths, r->plan, &k.ids, ret->status, e);
    else if (k.lock >= 0)
        (void)state_remove(r->paths, r->plan->id, NULL);
    keeper_close(&k);
    ret->wall_ms = now_ms() - started;
    return rc;
}

void sandbox_sweep(const struct paths *paths)
{
    (void)cgroup_sweep(NULL);
    state_sweep(paths);
}

char *sandbox_unenforced(const struct run_result *r)
{
    AUTOSTR struct str s = STR_INIT;
    for (size_t i = 0; i < r->n_limits; i++)
        if (strcmp(r->limits[i].how, "none") == 0 && strcmp(r->limits[i].name, "timeout") != 0)
            str_addf(&s, "%s%s", s.len ? ", " : "", r->limits[i].name);
    return s.len ? str_take(&s) : NULL;
}
