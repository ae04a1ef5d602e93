/* runtime/client/collect.c - petri_exec(): a command from start to end, its output in memory. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>

#include "runtime/client/client.h"

enum { DRAIN_US = 100000, GRACE_US = 2000000, DEFAULT_CAP = 10 << 20, CHUNK = 65536 };

struct run {
    struct petri_exec *x;
    const char *input;
    size_t input_left;
    uint64_t cap, deadline, ended_at;
    struct str kept[2];
    bool truncated[2];
    size_t rest[2]; /* what was in the pipe when the command ended */
    int fds[3];     /* stdin, stdout, stderr; -1: done */
    struct petri_event end;
};

/* A write to a pipe whose reader is gone would raise SIGPIPE in a program that never asked for it. */
static ssize_t quiet_write(int fd, const void *p, size_t n)
{
    sigset_t pipe_only, old, pending;
    const struct timespec now = { 0 };

    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe_only, &old);
    ssize_t w = write(fd, p, n);
    int saved = errno;
    if (w < 0 && saved == EPIPE && !sigismember(&pending, SIGPIPE))
        while (sigtimedwait(&pipe_only, NULL, &now) < 0 && errno == EINTR)
            ;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    errno = saved;
    return w;
}

static void feed(struct run *r)
{
    size_t n = r->input_left < CHUNK ? r->input_left : CHUNK;
    ssize_t w = n ? quiet_write(r->fds[0], r->input, n) : 0;

    if (w > 0) {
        r->input += w;
        r->input_left -= (size_t)w;
    }
    if (!r->input_left || (w < 0 && errno != EAGAIN && errno != EINTR))
        close_p(&r->fds[0]);
}

static void collect(struct run *r, int i)
{
    char buf[CHUNK];
    ssize_t n = read(r->fds[i + 1], buf, sizeof buf);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        close_p(&r->fds[i + 1]);
        return;
    }
    size_t got = (size_t)n, room = r->cap - r->kept[i].len;
    str_addn(&r->kept[i], buf, got < room ? got : room);
    r->truncated[i] |= got > room;
    r->rest[i] -= got < r->rest[i] ? got : r->rest[i];
}

static void on_end(struct run *r)
{
    r->ended_at = client_now_us();
    close_p(&r->fds[0]);
    for (int i = 0; i < 2; i++) {
        int n = 0;
        if (r->fds[i + 1] >= 0 && ioctl(r->fds[i + 1], FIONREAD, &n) == 0 && n > 0)
            r->rest[i] = (size_t)n;
    }
}

/* How long to wait for the next thing; 0 after the end: what is there is read, nothing is waited for. */
static int patience(const struct run *r, uint64_t now)
{
    uint64_t until = r->end.type ? r->ended_at + DRAIN_US : r->deadline;
    if (!until)
        return -1;
    return now >= until ? 0 : (int)((until - now) / 1000 + 1);
}

static bool settled(const struct run *r)
{
    return r->end.type && r->fds[1] < 0 && r->fds[2] < 0;
}

/* All that came: two events may be in one piece, and poll knows of none that we have. */
static int on_control(struct run *r, struct petri_error *e)
{
    struct petri_event ev = PETRI_EVENT_INIT;
    int rc = 0;

    while (!r->end.type && (rc = petri_exec_next(r->x, &ev, e)) > 0) {
        if (ev.type == PETRI_FAILED) {
            r->end.status = ev.status;
            return -1;
        }
        if (ev.type == PETRI_EXIT) {
            r->end = ev;
            on_end(r);
        }
    }
    if (rc < 0)
        r->end.status = 125;
    return rc < 0 ? -1 : 0;
}

/* 0, or -1 where nobody knows how the command ended. */
static int loop(struct run *r, struct petri_error *e)
{
    while (!settled(r)) {
        struct pollfd p[4] = {
            { .fd = r->end.type ? -1 : petri_exec_fd(r->x, PETRI_CONTROL), .events = POLLIN },
            { .fd = r->fds[0], .events = POLLOUT },
            { .fd = r->fds[1], .events = POLLIN },
            { .fd = r->fds[2], .events = POLLIN },
        };
        int wait = r->deadline || r->end.type ? patience(r, client_now_us()) : -1;
        int n = poll(p, 4, wait);
        if (n < 0 && errno != EINTR)
            return client_sys(e, "poll");
        if (n == 0 && wait == 0 && r->end.type)
            return 0; /* held open by something in the background */
        if (n == 0 && wait == 0) {
            r->end = (struct petri_event){
                .type = PETRI_EXIT, .timed_out = 1, .status = 124, .exit_code = -1, .signal = 9
            };
            return 0;
        }
        if (p[1].revents)
            feed(r);
        for (int i = 0; i < 2; i++)
            if (p[i + 2].revents)
                collect(r, i);
        if (wait == 0 && r->end.type && !r->rest[0] && !r->rest[1])
            return 0; /* it goes on writing: that is not the command's */
        if (p[0].revents && on_control(r, e) < 0)
            return -1;
    }
    return 0;
}

int petri_exec(struct petri_sandbox *s, const struct petri_exec_options *theirs,
               struct petri_result *ret, struct petri_error *e)
{
    struct petri_exec_options o;
    struct petri_result res = PETRI_RESULT_INIT;
    struct run r = { .fds = { -1, -1, -1 }, .end = PETRI_EVENT_INIT };
    uint64_t began = client_now_us();
    int rc;

    client_take(&o, sizeof o, theirs);
    o.tty = 0;
    res.status = 125;
    res.exit_code = -1;
    client_give(&res, sizeof res, ret);
    if (petri_exec_start(s, &o, &r.x, e) < 0)
        return -1;
    for (int i = 0; i < 3; i++)
        r.fds[i] = petri_exec_take_fd(r.x, (enum petri_exec_fd)i);
    r.input = o.input;
    r.input_left = o.input ? o.input_len : 0;
    if (!r.input_left)
        close_p(&r.fds[0]);
    r.cap = o.max_output ? o.max_output : DEFAULT_CAP;
    r.deadline = o.timeout_ms ? began + o.timeout_ms * 1000 + GRACE_US : 0;
    rc = loop(&r, e);
    petri_exec_free(r.x);

    res.status = r.end.status;
    res.exit_code = rc < 0 ? -1 : r.end.exit_code;
    res.signal = r.end.signal;
    res.timed_out = r.end.timed_out;
    res.cpu_us = r.end.cpu_us;
    res.max_rss = r.end.max_rss;
    res.held_open = rc == 0 && (r.fds[1] >= 0 || r.fds[2] >= 0);
    res.out_truncated = r.truncated[0];
    res.err_truncated = r.truncated[1];
    res.wall_us = client_now_us() - began;
    res.out_len = r.kept[0].len;
    res.err_len = r.kept[1].len;
    res.out = str_take(&r.kept[0]);
    res.err = str_take(&r.kept[1]);
    for (int i = 0; i < 3; i++)
        close_p(&r.fds[i]);
    client_give(&res, sizeof res, ret);
    return rc;
}

void petri_result_free(struct petri_result *r)
{
    free(r->out);
    free(r->err);
    r->out = r->err = NULL;
    r->out_len = r->err_len = 0;
}
