#include "cmd/attach.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <time.h>

#include "base/clock.h"
enum { DRAIN_MS = 100, GRACE_MS = 2000 };

struct session {
    struct attach *a;
    struct petri_exec *x;
    struct streams streams;
    int signals;
    bool started, ended;
    int pending_signal;
    uint64_t until; /* the deadline, or how long we wait for the pipes to close; 0: none */
};

static int open_signals(void)
{
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
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* False: somebody wants us to end, and there is nobody to pass it on to. */
static bool on_signal(struct session *n)
{
    struct signalfd_siginfo si;

    while (read(n->signals, &si, sizeof si) == sizeof si) {
        int sig = (int)si.ssi_signo;
        if (sig == SIGWINCH)
            streams_resize(&n->streams);
        else if (n->ended)
            return false;
        else if (!n->started)
            n->pending_signal = sig;
        else
            (void)petri_exec_signal(n->x, sig, NULL);
    }
    return true;
}

static int on_control(struct session *n, struct petri_error *e)
{
    struct petri_event ev = PETRI_EVENT_INIT;
    int rc;

    while ((rc = petri_exec_next(n->x, &ev, e)) > 0) {
        if (ev.type == PETRI_STARTED) {
            n->started = true;
            if (n->a->tty)
                (void)streams_terminal(&n->streams, petri_exec_take_fd(n->x, PETRI_TTY));
            if (n->pending_signal)
                (void)petri_exec_signal(n->x, n->pending_signal, NULL);
        } else {
            n->a->end = ev;
            n->ended = true;
            streams_ended(&n->streams);
            n->until = clock_ms(CLOCK_BOOTTIME) + DRAIN_MS;
            return ev.type == PETRI_FAILED ? -1 : 0;
        }
    }
    return rc;
}

/* How long poll may wait: not at all for what is late, for ever while our own reader is slow. */
static int patience(const struct session *n)
{
    uint64_t now;
    if (!n->until || (n->ended && streams_pending(&n->streams)))
        return -1;
    now = clock_ms(CLOCK_BOOTTIME);
    return now < n->until ? (int)(n->until - now) : 0;
}

static int loop(struct session *n, struct petri_error *e)
{
    while (!n->ended || !streams_drained(&n->streams)) {
        struct pollfd fds[2 + STREAMS_MAX_POLL] = {
            { .fd = n->ended ? -1 : petri_exec_fd(n->x, PETRI_CONTROL), .events = POLLIN },
            { .fd = n->signals, .events = POLLIN },
        };
        int wait = patience(n);
        int got = poll(fds, 2 + streams_poll(&n->streams, fds + 2), wait);
        if (got < 0 && errno != EINTR)
            return -1;
        if (got == 0 && wait >= 0 && patience(n) == 0 && !n->ended) {
            n->a->end = (struct petri_event){
                .status = 124, .timed_out = 1, .exit_code = -1, .signal = SIGKILL
            };
            return 0; /* petri-init keeps the deadline; this one is for the case that it can't */
        }
        if (got < 0)
            continue;
        streams_serve(&n->streams, fds + 2);
        if (n->ended && patience(n) == 0 && !streams_pending(&n->streams) &&
            (got == 0 || !streams_rest(&n->streams))) {
            n->a->held = !streams_drained(&n->streams);
            return 0;
        }
        if (fds[1].revents && !on_signal(n))
            return 0;
        if (fds[0].revents && on_control(n, e) < 0)
            return -1;
    }
    return 0;
}

int attach_run(struct attach *a, struct petri_sandbox *s, const struct petri_exec_options *o,
               struct petri_error *e)
{
    struct session n = { .a = a, .streams = { .tty = -1, .master = -1 } };
    uint64_t began = clock_ms(CLOCK_BOOTTIME);
    int ours[3], rc;

    a->end = (struct petri_event){ .status = 125, .exit_code = -1 };
    if ((n.signals = open_signals()) < 0)
        return -1;
    rc = petri_exec_start(s, o, &n.x, e);
    if (rc == 0) {
        for (int i = 0; i < 3; i++)
            ours[i] = petri_exec_take_fd(n.x, (enum petri_exec_fd)i);
        if (a->tty)
            (void)streams_open(&n.streams, a->in, &a->out, &a->err, true, NULL, NULL);
        else
            streams_attach(&n.streams, a->in, &a->out, &a->err, ours);
        n.until = a->timeout_ms ? began + a->timeout_ms + GRACE_MS : 0;
        rc = loop(&n, e);
        petri_exec_free(n.x);
        streams_close(&n.streams);
    }
    close(n.signals);
    a->wall_ms = clock_ms(CLOCK_BOOTTIME) - began;
    return rc;
}
