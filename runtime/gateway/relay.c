#include "runtime/gateway/relay.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <linux/sockios.h>

enum {
    TURN = 1 << 20, /* bytes of one flow before others get their turn, and the room of a pipe */
    CROWD = 8,      /* with more in line a turn is as short as a copy */
    COPY = 64 << 10,
    LOOK = 4096, /* what a look costs of a turn */
    POOL = 4,    /* pipes kept for the next one: the kernel counts their pages, by user */
};

/* --- pipes ----------------------------------------------------------------------------------- */

static struct {
    int v[POOL][2];
    unsigned n, out; /* kept, handed out */
} pool;

static bool pipe_take(struct relay *r, int ret[2])
{
    if (pool.n) {
        pool.n--;
        memcpy(ret, pool.v[pool.n], sizeof(pool.v[0]));
        pool.out++;
        return true;
    }
    if (pool.out >= limits_pipes(r->gw) || pipe2(ret, O_NONBLOCK | O_CLOEXEC) < 0)
        return false;
    /* A user who has many pipes gets very small ones: they move next to nothing at a time. */
    if (fcntl(ret[1], F_SETPIPE_SZ, TURN) < 0 && fcntl(ret[1], F_SETPIPE_SZ, COPY) < 0) {
        close(ret[0]);
        close(ret[1]);
        return false;
    }
    pool.out++;
    return true;
}

/* One that still holds bytes must not reach anybody else. */
static void pipe_give(struct flow *f)
{
    if (f->pipe[0] < 0)
        return;
    pool.out--;
    if (f->held == 0 && pool.n < POOL) {
        memcpy(pool.v[pool.n++], f->pipe, sizeof(f->pipe));
    } else {
        close(f->pipe[0]);
        close(f->pipe[1]);
    }
    f->pipe[0] = f->pipe[1] = -1;
    f->held = 0;
}

void relay_pool_free(void)
{
    while (pool.n) {
        pool.n--;
        close(pool.v[pool.n][0]);
        close(pool.v[pool.n][1]);
    }
}

void relay_linger(int fd)
{
    struct linger now = { .l_onoff = 1 };
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

void relay_reset_fd(int *fd)
{
    relay_linger(*fd);
    close_p(fd);
}

/* --- one direction --------------------------------------------------------------------------- */

/* What a flow did: moved something, has to wait, or met an error of the socket it reads. */
enum { MOVED = 1, WAIT = 0, FAILED = -1 };

static bool blocked(void)
{
    return errno == EAGAIN || errno == EINTR;
}

/* The reader of the other side has gone; what it sent before may still be read by the other flow. */
static int write_failed(struct flow *f)
{
    pipe_give(f);
    f->eof = f->shut = true;
    return WAIT;
}

static int read_failed(struct relay *r, struct flow *f)
{
    if (blocked()) {
        f->readable = false;
        return WAIT;
    }
    r->error = errno;
    return FAILED;
}

static void moved(struct relay *r, struct flow *f, size_t granted, size_t n)
{
    limits_moved(r->gw, granted, n, f == &r->down);
    r->last = loop_now(r->gw->loop);
    if (f->may != RELAY_ALL)
        f->may -= n;
}

/* Without a pipe: only what the other side takes leaves the socket. */
static int copy_some(struct relay *r, struct flow *f, int from, int to, size_t granted)
{
    static char buf[COPY];
    ssize_t sent = 0;
    ssize_t n = recv(from, buf, granted < COPY ? granted : COPY, MSG_PEEK | MSG_DONTWAIT);
    if (n > 0)
        sent = send(to, buf, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
    int saved = errno;
    if (sent > 0)
        n = recv(from, NULL, (size_t)sent, MSG_TRUNC | MSG_DONTWAIT);
    moved(r, f, granted, sent > 0 ? (size_t)sent : 0);
    errno = saved;
    if (n < 0)
        return read_failed(r, f);
    f->eof = n == 0;
    if (n == 0)
        return WAIT;
    if (sent > 0) {
        f->bytes += (uint64_t)sent;
        return MOVED;
    }
    if (!blocked())
        return write_failed(f);
    f->writable = false;
    return WAIT;
}

static int take_some(struct relay *r, struct flow *f, int from, int to, size_t want)
{
    size_t granted = limits_ask(r->gw, f->may < want ? (size_t)f->may : want, &f->wait);
    if (!granted)
        return WAIT;
    if (!pipe_take(r, f->pipe))
        return copy_some(r, f, from, to, granted);
    ssize_t n = splice(from, NULL, f->pipe[1], NULL, granted, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    int saved = errno;
    moved(r, f, granted, n > 0 ? (size_t)n : 0);
    errno = saved;
    if (n > 0) {
        f->held = (uint32_t)n;
        return MOVED;
    }
    pipe_give(f);
    if (n < 0)
        return read_failed(r, f);
    f->eof = true;
    return WAIT;
}

static int empty_pipe(struct flow *f, int to)
{
    ssize_t n = splice(f->pipe[0], NULL, to, NULL, f->held, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (n <= 0) {
        if (n == 0 || !blocked())
            return write_failed(f);
        f->writable = false;
        return WAIT;
    }
    f->held -= (uint32_t)n;
    f->bytes += (uint64_t)n;
    if (!f->held)
        pipe_give(f);
    return MOVED;
}

/* Up to a turn's worth. MOVED: there may be more. */
static int pump(struct relay *r, struct flow *f, int from, int to)
{
    size_t done = 0, most = loop_turns(r->gw->loop) > CROWD ? COPY : TURN;
    while (done < most) {
        int rc;
        uint64_t before = f->bytes;
        if (f->held) {
            rc = f->writable ? empty_pipe(f, to) : WAIT;
        } else if (f->eof || !f->readable || !f->writable) {
            rc = WAIT;
        } else if (!f->may) {
            rc = r->look(r, f);
            done += LOOK;
        } else {
            rc = take_some(r, f, from, to, most);
        }
        if (rc != MOVED)
            return rc;
        done += f->bytes - before;
    }
    return MOVED;
}

static void end_of(struct relay *r, struct flow *f, int to)
{
    if (!f->eof || f->held || f->shut)
        return;
    f->shut = true;
    if (r->up.shut && r->down.shut)
        return; /* closing both is all that is left */
    shutdown(to, SHUT_WR);
    loop_arm(r->gw->loop, &r->idle, RELAY_HALF_MS);
}

/* A reset is passed on, but not before what came ahead of it. */
static void pass_reset(struct relay *r)
{
    int left = 0;
    struct source *other = r->up.readable && !r->up.eof ? &r->out : &r->in;
    if (ioctl(other->fd, SIOCOUTQ, &left) == 0 && left == 0)
        relay_linger(other->fd);
}

static void on_run(struct task *t)
{
    struct relay *r = CONTAINER(t, struct relay, run);
    int up = pump(r, &r->up, r->in.fd, r->out.fd);
    if (!r->running)
        return; /* `look` ended it */
    int down = up == FAILED ? FAILED : pump(r, &r->down, r->out.fd, r->in.fd);
    if (!r->running)
        return;
    if (up == FAILED || down == FAILED) {
        pass_reset(r);
        r->done(r, r->error);
        return;
    }
    end_of(r, &r->up, r->out.fd);
    end_of(r, &r->down, r->in.fd);
    if (r->up.shut && r->down.shut)
        r->done(r, 0);
    else if (up == MOVED || down == MOVED)
        loop_later(r->gw->loop, &r->run);
}

/* --- both ------------------------------------------------------------------------------------ */

static void on_in(struct source *s, uint32_t ev)
{
    struct relay *r = CONTAINER(s, struct relay, in);
    if (ev & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        r->up.readable = true;
    if (ev & (EPOLLOUT | EPOLLHUP | EPOLLERR))
        r->down.writable = true;
    loop_later(r->gw->loop, &r->run);
}

static void on_out(struct source *s, uint32_t ev)
{
    struct relay *r = CONTAINER(s, struct relay, out);
    if (ev & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        r->down.readable = true;
    if (ev & (EPOLLOUT | EPOLLHUP | EPOLLERR))
        r->up.writable = true;
    loop_later(r->gw->loop, &r->run);
}

static void on_idle(struct timer *t)
{
    struct relay *r = CONTAINER(t, struct relay, idle);
    uint64_t quiet = loop_now(r->gw->loop) - r->last;
    uint64_t limit = r->up.shut || r->down.shut ? RELAY_HALF_MS : RELAY_IDLE_MS;
    if (quiet < limit)
        loop_arm(r->gw->loop, &r->idle, limit - quiet);
    else
        r->done(r, ETIMEDOUT);
}

static void up_granted(struct limits_wait *w)
{
    relay_kick(CONTAINER(w, struct relay, up.wait));
}

static void down_granted(struct limits_wait *w)
{
    relay_kick(CONTAINER(w, struct relay, down.wait));
}

void relay_kick(struct relay *r)
{
    loop_later(r->gw->loop, &r->run);
}

void relay_start(struct relay *r, struct gw *gw, int in, int out,
                 void (*done)(struct relay *, int error))
{
    r->gw = gw;
    r->running = true;
    r->done = done;
    r->run.on = on_run;
    r->idle.on = on_idle;
    r->last = loop_now(gw->loop);
    r->in.fd = in;
    r->in.on = on_in;
    r->out.fd = out;
    r->out.on = on_out;
    r->up = (struct flow){ .pipe = { -1, -1 }, .may = RELAY_ALL, .wait.on = up_granted };
    r->down = (struct flow){ .pipe = { -1, -1 }, .may = RELAY_ALL, .wait.on = down_granted };
    /* A client has often spoken by now; of the other socket its events tell. */
    r->up.readable = r->up.writable = r->down.writable = true;
    loop_arm(gw->loop, &r->idle, RELAY_IDLE_MS);
    if ((!r->in.added && loop_set(gw->loop, &r->in, RELAY_EVENTS) < 0) ||
        loop_set(gw->loop, &r->out, RELAY_EVENTS) < 0) {
        loop_arm(gw->loop, &r->idle, 0);
        r->last -=
            RELAY_IDLE_MS; /* reported from the loop, as a relay that has been idle for too long */
    }
    relay_kick(r);
}

static void rest(struct relay *r)
{
    struct loop *l = r->gw->loop;
    r->running = false;
    loop_forget(l, &r->run);
    loop_disarm(l, &r->idle);
    limits_cancel(r->gw, &r->up.wait);
    limits_cancel(r->gw, &r->down.wait);
    pipe_give(&r->up);
    pipe_give(&r->down);
}

void relay_stop(struct relay *r)
{
    if (!r->running)
        return;
    rest(r);
    loop_close(r->gw->loop, &r->in);
    loop_close(r->gw->loop, &r->out);
}

void relay_reset(struct relay *r)
{
    if (!r->running)
        return;
    relay_linger(r->in.fd);
    relay_linger(r->out.fd);
    relay_stop(r);
}

int relay_take_in(struct relay *r)
{
    rest(r);
    relay_linger(r->out.fd);
    loop_close(r->gw->loop, &r->out);
    loop_del(r->gw->loop, &r->in);
    return TAKE_FD(r->in.fd);
}
