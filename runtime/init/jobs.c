/* runtime/init/jobs.c - PID 1's children: supervisors, and what works for PROTO_FS.
 *
 * Owns:  deadlines (again, with a grace, in case a supervisor was stopped), and what a dead supervisor
 *        leaves: whatever is a child of PID 1's and not one of these must die.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "runtime/init/server.h"

static void set_timer(struct server *s)
{
    struct itimerspec t = { 0 };
    uint64_t first = 0;

    for (int i = 0; i < s->n_conns; i++) {
        uint64_t at = s->conns[i].used ? s->conns[i].kill_at : 0;
        if (at && (!first || at < first))
            first = at;
    }
    if (!first || (s->wake && s->wake <= first))
        return; /* it may ring too early */
    s->wake = first;
    t.it_value.tv_sec = (time_t)(first / 1000000000);
    t.it_value.tv_nsec = (long)(first % 1000000000);
    timerfd_settime(s->timer, TFD_TIMER_ABSTIME, &t, NULL);
}

static void kill_by(struct conn *c, uint64_t at)
{
    if (!c->kill_at || at < c->kill_at)
        c->kill_at = at;
}

/* When memory runs out, what comes of a client goes before PID 1. The value is inherited, and only one's
 * own process's can be changed by who has no dump: PID 1 takes it for as long as a fork. */
pid_t fork_job(struct server *s, int conn, int jobs)
{
    pid_t pid;
    int error;

    if (s->oom >= 0)
        (void)!pwrite(s->oom, "100", 3, 0);
    pid = fork();
    error = errno;
    if (pid != 0 && s->oom >= 0)
        (void)!pwrite(s->oom, s->oom_own, strlen(s->oom_own), 0);
    errno = error;
    if (pid == 0) {
        dup3(conn, CTL, O_CLOEXEC);
        if (jobs >= 0)
            dup3(jobs, JOBS, O_CLOEXEC);
        syscall(SYS_close_range, jobs >= 0 ? JOBS + 1 : CTL + 1, ~0U, 0);
    }
    return pid;
}

int refuse(struct conn *c, enum proto_stage stage, int error)
{
    struct proto_failed f = { .stage = stage, .error = error };
    return proto_send_now(c->fd, PROTO_FAILED, &f, sizeof f, NULL, 0);
}

static int send_order(int jobs, const struct exec_order *o, int conn)
{
    union {
        struct cmsghdr align;
        char buf[CMSG_SPACE(sizeof(int))];
    } c = { 0 };
    struct iovec iov = { (void *)o, sizeof *o };
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.buf, .msg_controllen = sizeof c.buf
    };
    struct cmsghdr *cm = CMSG_FIRSTHDR(&m);

    cm->cmsg_level = SOL_SOCKET;
    cm->cmsg_type = SCM_RIGHTS;
    cm->cmsg_len = CMSG_LEN(sizeof conn);
    memcpy(CMSG_DATA(cm), &conn, sizeof conn);
    return sendmsg(jobs, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof *o ? 0 : -1;
}

/* Gives the connection to a supervisor that has nothing to do. */
static bool take_spare(struct server *s, struct conn *c, const struct exec_order *o)
{
    s->states[o->slot] = EXEC_ORDERED;
    for (int i = 0; i < s->n_conns; i++) {
        struct conn *old = &s->conns[i];
        if (!old->used || !old->pid || old->jobs < 0 || s->states[i] != EXEC_SPARE)
            continue;
        kill(old->pid, SIGCONT); /* code inside may have stopped it */
        if (send_order(old->jobs, o, c->fd) < 0)
            continue;
        c->pid = old->pid;
        c->jobs = TAKE_FD(old->jobs);
        old->pid = 0;
        hang_up(s, old);
        return true;
    }
    return false;
}

static bool new_supervisor(struct server *s, struct conn *c, const struct exec_order *o)
{
    int pair[2] = { -1, -1 };

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        pair[0] = pair[1] = -1;
    s->states[o->slot] = EXEC_RUNS;
    c->pid = fork_job(s, c->fd, pair[1]);
    if (c->pid == 0) {
        struct exec_job job = {
            .base = s->base, .order = *o, .states = s->states, .again = pair[1] >= 0
        };
        supervise(&job);
    }
    close_p(&pair[1]);
    c->jobs = pair[0];
    if (c->pid > 0)
        return true;
    refuse(c, STAGE_FORK, errno);
    c->pid = 0;
    close_p(&c->jobs);
    hang_up(s, c);
    return false;
}

void start_exec(struct server *s, struct conn *c, uint64_t timeout_ms)
{
    struct exec_order o = { .slot = (uint32_t)(c - s->conns) };

    if (timeout_ms && timeout_ms < UINT32_MAX * 1000ULL)
        o.deadline = now_ns() + timeout_ms * 1000000;
    c->deadline = o.deadline;
    c->exec = true;
    if (!take_spare(s, c, &o) && !new_supervisor(s, c, &o))
        return;
    watch(s, EPOLL_CTL_MOD, c->fd, EPOLLRDHUP | EPOLLET, o.slot);
    if (c->deadline) {
        kill_by(c, c->deadline + GRACE_MS * 1000000ULL);
        set_timer(s);
    }
}

/* It has no child and no client. Killed, not asked: code inside may have stopped it. */
static void dismiss(struct conn *c)
{
    close_p(&c->jobs);
    kill(c->pid, SIGKILL);
}

void dismiss_spares(struct server *s)
{
    for (int i = 0; i < s->n_conns; i++)
        if (s->conns[i].used && s->conns[i].pid && s->states[i] == EXEC_SPARE)
            dismiss(&s->conns[i]);
}

static void last_word(struct server *s, struct conn *c)
{
    struct proto_exit x = { .status = SIGKILL };

    x.timed_out = c->deadline && now_ns() >= c->deadline;
    c->lost = false;
    if (c->fd >= 0)
        proto_send_now(c->fd, PROTO_EXIT, &x, sizeof x, NULL, 0);
    hang_up(s, c);
}

static void ended(struct server *s, struct conn *c, int status)
{
    struct exec_order o = { .slot = (uint32_t)(c - s->conns), .deadline = c->deadline };
    enum exec_state state = s->states[o.slot];

    c->pid = 0;
    close_p(&c->jobs);
    if (c->exec && state == EXEC_ORDERED && c->fd >= 0 && !hung_up(c->fd) &&
        (!c->deadline || now_ns() < c->deadline)) {
        new_supervisor(s, c, &o); /* killed before it took the order: the request is still unread */
        return;
    }
    c->kill_at = 0;
    if (!c->exec) {
        look_at(s, c); /* the next request may be there already */
        return;
    }
    if (status != 0 && state != EXEC_SPARE)
        s->hunting = true;
    if (status == 0 || state > EXEC_RUNS) {
        hang_up(s, c);
        return;
    }
    c->lost = true;
    c->kill_at = now_ns() + LAST_WORD_MS * 1000000ULL;
}

void reap(struct server *s)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0)
        for (int i = 0; i < s->n_conns; i++)
            if (s->conns[i].used && s->conns[i].pid == pid) {
                if (WIFSTOPPED(status)) {
                    kill(pid, SIGCONT); /* by code inside: nobody else would */
                    break;
                }
                ended(s, &s->conns[i], status);
                set_timer(s);
                break;
            }
}

static bool ours(const void *arg, pid_t pid)
{
    const struct server *s = arg;

    for (int i = 0; i < s->n_conns; i++)
        if (s->conns[i].used && s->conns[i].pid == pid)
            return true;
    return false;
}

/* One round against what dead supervisors left. */
void hunt(struct server *s)
{
    int n = kill_children(s->children, ours, s);

    if (n < 0)
        kill(-1, SIGKILL); /* can't tell whose is what: nothing may outlive its deadline */
    if (n != 0)
        return;
    s->hunting = false;
    for (int i = 0; i < s->n_conns; i++)
        if (s->conns[i].used && s->conns[i].lost)
            last_word(s, &s->conns[i]);
    set_timer(s);
}

void on_timer(struct server *s)
{
    uint64_t now = now_ns(), ticks;

    (void)!read(s->timer, &ticks, sizeof ticks);
    s->wake = 0;
    for (int i = 0; i < s->n_conns; i++) {
        struct conn *c = &s->conns[i];
        if (!c->used || !c->kill_at || c->kill_at > now)
            continue;
        c->kill_at = 0;
        if (c->lost)
            last_word(s, c);
        else if (c->exec && c->pid && s->states[i] <= EXEC_RUNS)
            kill(c->pid, SIGKILL);
        else if (c->exec && c->pid && s->states[i] == EXEC_SPARE)
            dismiss(c);
    }
    set_timer(s);
}

/* A supervisor kills what it has, if it can. */
void client_gone(struct server *s, struct conn *c)
{
    if (!c->exec) {
        kill(c->pid, SIGKILL);
        return;
    }
    if (s->states[c - s->conns] > EXEC_RUNS) {
        hang_up(s, c);
        c->kill_at = c->used ? now_ns() + SPARE_MS * 1000000ULL : 0;
        set_timer(s);
        return;
    }
    kill_by(c, now_ns() + GRACE_MS * 1000000ULL);
    set_timer(s);
}
