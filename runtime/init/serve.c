/* runtime/init/serve.c - PID 1 of a sandbox that lives: takes in clients and answers what is
 * quick; the rest has a process of its own (jobs.c).
 *
 * Owns:  the listening socket and all connections, until a supervisor has one.
 * Never waits for a client: a frame is read when all of it is there, an answer that does not fit into
 *        the socket ends the connection.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/macros.h"
#include "runtime/init/server.h"

void watch(struct server *s, int op, int fd, uint32_t events, uint32_t id)
{
    struct epoll_event ev = { .events = events, .data.u32 = id };
    epoll_ctl(s->epoll, op, fd, &ev);
}

static void listen_again(struct server *s)
{
    watch(s, EPOLL_CTL_MOD, s->listener, s->quiet || s->full ? 0 : EPOLLIN, ID_LISTEN);
}

void hang_up(struct server *s, struct conn *c)
{
    if (c->fd >= 0) {
        watch(s, EPOLL_CTL_DEL, c->fd, 0, 0); /* a supervisor may have it open too */
        close_p(&c->fd);
    }
    c->write = fs_write_drop(c->write);
    if (c->pid || c->lost)
        return;
    c->used = false;
    while (s->n_conns && !s->conns[s->n_conns - 1].used)
        s->n_conns--;
    if (s->full) {
        s->full = false;
        listen_again(s);
    }
}

/* --- clients */

bool hung_up(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLRDHUP };
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

static void fs_request(struct server *s, struct conn *c)
{
    struct proto_fs_request r;
    struct proto_header h;
    AUTOFREE char *frame = NULL;
    int n = 0;

    if (proto_recv(c->fd, &h, &frame, NULL, 0, &n, NULL) < 0 ||
        proto_parse_fs(frame, h.len, &r) < 0) {
        hang_up(s, c);
        return;
    }
    if (!files_slow(&r)) {
        if (files_answer(c->fd, s->base->cwd, &r, &c->write) < 0)
            hang_up(s, c);
        return;
    }
    c->pid = fork_job(s, c->fd, -1);
    if (c->pid == 0) {
        struct fs_write *none = NULL;
        files_answer(CTL, s->base->cwd, &r, &none);
        _exit(0);
    }
    if (c->pid < 0) {
        c->pid = 0;
        if (refuse(c, STAGE_FORK, errno) < 0)
            hang_up(s, c);
    }
}

/* What a connection's next frame is; false: not enough of it is there, or never will be. */
static bool peek(struct server *s, struct conn *c, struct proto_header *ret_h,
                 struct proto_exec *ret_x)
{
    char buf[sizeof *ret_h + sizeof *ret_x];
    ssize_t n = recv(c->fd, buf, sizeof buf, MSG_PEEK | MSG_DONTWAIT);
    size_t need = sizeof *ret_h;
    int queued = 0;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n >= (ssize_t)need) {
        memcpy(ret_h, buf, sizeof *ret_h);
        memcpy(ret_x, buf + sizeof *ret_h, sizeof *ret_x);
        if (ret_h->magic != PROTO_MAGIC || ret_h->version < PROTO_OLDEST ||
            ret_h->version > PROTO_VERSION)
            return true;
        if (ret_h->type == PROTO_EXEC)
            need = sizeof buf; /* the supervisor reads, and waits for, the rest */
        else if (ret_h->type == PROTO_FS && ret_h->len <= FS_MAX)
            need += ret_h->len;
        if (n >= (ssize_t)need || (ioctl(c->fd, FIONREAD, &queued) == 0 && queued >= (int)need))
            return true;
    }
    if (n <= 0 || hung_up(c->fd))
        hang_up(s, c);
    return false;
}

/* Takes in what is there of a connection, as far as it makes whole requests. */
void look_at(struct server *s, struct conn *c)
{
    struct proto_header h;
    struct proto_exec x;

    for (int n = 0; c->used && c->fd >= 0 && !c->pid && !c->exec && !s->quiet; n++) {
        if (n == TURN) { /* others wait too: what is left is news again */
            watch(s, EPOLL_CTL_MOD, c->fd, EPOLLIN | EPOLLRDHUP | EPOLLET,
                  (uint32_t)(c - s->conns));
            return;
        }
        if (!peek(s, c, &h, &x))
            return;
        c->asked = true;
        bool known = h.version >= PROTO_OLDEST && h.version <= PROTO_VERSION;
        if (h.magic == PROTO_MAGIC && known && h.type == PROTO_EXEC && h.len > sizeof x &&
            !c->write) {
            start_exec(s, c, x.timeout_ms);
        } else if (h.magic == PROTO_MAGIC && known && h.type == PROTO_FS && h.len <= FS_MAX) {
            fs_request(s, c);
        } else {
            if (h.magic == PROTO_MAGIC && !known)
                say_hello(c->fd);
            hang_up(s, c);
        }
    }
}

static void on_conn(struct server *s, struct conn *c)
{
    if (!c->used || c->fd < 0)
        return;
    if (!c->exec && !c->pid)
        look_at(s, c);
    else if (hung_up(c->fd))
        client_gone(s, c);
}

static void on_listen(struct server *s)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    struct conn *c = s->conns;
    AUTOCLOSE int fd = -1;

    while (c < s->conns + MAX_CONNS && c->used)
        c++;
    if (c == s->conns + MAX_CONNS)
        errno = EMFILE;
    else
        fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            s->full = true; /* until one goes */
            listen_again(s);
        }
        return;
    }
    /* who is outside has no pid here; nobody inside may talk to PID 1 */
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.pid != 0)
        return;
    *c = (struct conn){ .fd = TAKE_FD(fd), .jobs = -1, .used = true, .since = now_ns() };
    if (c - s->conns >= s->n_conns)
        s->n_conns = (int)(c - s->conns) + 1;
    watch(s, EPOLL_CTL_ADD, c->fd, EPOLLIN | EPOLLRDHUP | EPOLLET, (uint32_t)(c - s->conns));
    look_at(s, c);
}

/* --- the keeper */

/* A supervisor that has said PROTO_EXIT and has nobody left is gone in a moment, and so may be who works
 * for PROTO_FS. */
static bool anybody_leaving(const struct server *s)
{
    for (int i = 0; i < s->n_conns; i++)
        if (s->conns[i].used && s->conns[i].pid &&
            (!s->conns[i].exec || s->states[i] == EXEC_ENDED || s->states[i] == EXEC_SPARE))
            return true;
    return false;
}

/* Whoever came a moment ago and has not said yet what for would be cut off in the middle of a word. */
static bool about_to_ask(const struct conn *c)
{
    return c->used && c->fd >= 0 && !c->asked && now_ns() - c->since < 1000000000;
}

static void quiesce(struct server *s)
{
    struct timespec t = { .tv_nsec = 2 * 1000000 };
    sigset_t chld;
    uint32_t n;
    int others;

    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    for (int i = 0; i < s->n_conns; i++)
        if (s->conns[i].used)
            look_at(s, &s->conns[i]);
    for (int i = 0; i < 50; i++) {
        dismiss_spares(s);
        reap(s);
        if (!anybody_leaving(s))
            break;
        sigtimedwait(&chld, NULL, &t);
    }
    others = count_others();
    n = others < 0 ? 1 : (uint32_t)others;
    for (int i = 0; i < s->n_conns; i++) /* a file in the making is work as well */
        n += (s->conns[i].used && s->conns[i].write) || about_to_ask(&s->conns[i]);
    s->quiet = n == 0;
    if (s->quiet)
        listen_again(s);
    if (proto_send(CTL, PROTO_IDLE, &n, sizeof n, NULL, 0) < 0)
        _exit(125);
}

static void resume(struct server *s)
{
    s->quiet = false;
    listen_again(s);
    for (int i = 0; i < s->n_conns; i++)
        if (s->conns[i].used)
            look_at(s, &s->conns[i]);
}

/* The old socket has no name any more. Who waits in its queue waits for nothing, and hears of it. */
static void listen_on(struct server *s, int listener)
{
    watch(s, EPOLL_CTL_DEL, s->listener, 0, 0);
    close(s->listener);
    s->listener = listener;
    fcntl(listener, F_SETFL, O_NONBLOCK);
    watch(s, EPOLL_CTL_ADD, listener, s->quiet || s->full ? 0 : EPOLLIN, ID_LISTEN);
    if (proto_send(CTL, PROTO_STARTED, NULL, 0, NULL, 0) < 0)
        _exit(125);
}

static void obey(struct server *s)
{
    struct proto_header h;
    AUTOFREE char *p = NULL;
    int n = 0, fd = -1;

    if (proto_recv(CTL, &h, &p, &fd, 1, &n, NULL) < 0)
        _exit(125); /* the keeper is gone: everything ends */
    if ((n == 1) != (h.type == PROTO_SERVE))
        _exit(125);
    if (h.type == PROTO_SERVE)
        listen_on(s, fd);
    else if (h.type == PROTO_QUIESCE)
        quiesce(s);
    else if (h.type == PROTO_RESUME)
        resume(s);
    else
        _exit(125);
}

static void on_child(int sig)
{
    (void)sig; /* it interrupts a wait, no more */
}

static void set_signals(sigset_t *ret_waiting)
{
    struct sigaction child = { .sa_handler = on_child };

    for (int i = 1; i < 65; i++)
        signal(i, SIG_DFL);
    sigaction(SIGCHLD, &child, NULL);
    sigfillset(ret_waiting);
    sigprocmask(SIG_SETMASK, ret_waiting, NULL);
    sigdelset(ret_waiting, SIGCHLD);
}

/* Its own value and the file to change it by. The file belongs to who can be dumped: nothing foreign runs
 * yet. */
static void oom_open(struct server *s)
{
    prctl(PR_SET_DUMPABLE, 1);
    s->oom = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    prctl(PR_SET_DUMPABLE, 0);
    if (s->oom >= 0 &&
        (read(s->oom, s->oom_own, sizeof s->oom_own - 1) <= 0 || atoi(s->oom_own) >= 100))
        close_p(&s->oom);
}

_Noreturn void serve(const struct proto_serving *base, int listener)
{
    struct server *s =
        mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *states = mmap(NULL, MAX_CONNS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct epoll_event ev[16];
    sigset_t waiting;
    int fd;

    if (s == MAP_FAILED || states == MAP_FAILED)
        _exit(125);
    while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd < 3) /* 0, 1 and 2 are a command's own */
        ;
    close(fd);
    (void)!chdir("/");
    s->base = base;
    s->states = states;
    s->listener = listener;
    s->children = children_open();
    oom_open(s);
    user_files(&base->head);
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    s->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    fcntl(listener, F_SETFL, O_NONBLOCK);
    set_signals(&waiting);
    watch(s, EPOLL_CTL_ADD, CTL, EPOLLIN, ID_CTL);
    watch(s, EPOLL_CTL_ADD, listener, EPOLLIN, ID_LISTEN);
    watch(s, EPOLL_CTL_ADD, s->timer, EPOLLIN, ID_TIMER);
    if (s->epoll < 0 || s->timer < 0 || proto_send(CTL, PROTO_STARTED, NULL, 0, NULL, 0) < 0)
        _exit(125);
    for (;;) {
        int n = epoll_pwait(s->epoll, ev, ARRAY_LEN(ev), s->hunting ? 20 : -1, &waiting);
        for (int i = 0; i < n; i++) {
            uint32_t id = ev[i].data.u32;
            if (id == ID_CTL)
                obey(s);
            else if (id == ID_LISTEN)
                on_listen(s);
            else if (id == ID_TIMER)
                on_timer(s);
            else if (id < MAX_CONNS)
                on_conn(s, &s->conns[id]);
        }
        reap(s);
        if (s->hunting)
            hunt(s);
    }
}
