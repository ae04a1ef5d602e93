#include "runtime/client/streams.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fs.h"

static struct stream *stream_new(int from, int to, struct stream_output *out)
{
    struct stream *s = malloc(sizeof *s);
    if (!s)
        abort();
    memset(s, 0, offsetof(struct stream, buf)); /* what is in the buffer nobody reads */
    s->from = from;
    s->to = to;
    s->is_input = !out;
    s->out = out;
    termfilter_init(&s->filter);
    return s;
}

static int make_pipe(int host_end_is_read, int *ret_ours, int *ret_theirs)
{
    int p[2];
    if (pipe2(p, O_CLOEXEC) < 0)
        return -1;
    *ret_ours = p[host_end_is_read ? 0 : 1];
    *ret_theirs = p[host_end_is_read ? 1 : 0];
    return fcntl(*ret_ours, F_SETFL, O_NONBLOCK);
}

void streams_attach(struct streams *st, int in, struct stream_output *out,
                    struct stream_output *err, const int ours[3])
{
    *st = (struct streams){ .tty = -1, .master = -1, .in = in, .out = out };
    st->s[0] = stream_new(in, ours[0], NULL);
    if (in < 0)
        close_p(&st->s[0]->to);
    st->s[1] = stream_new(ours[1], out->fd, out);
    st->s[2] = stream_new(ours[2], err->fd, err);
}

int streams_open(struct streams *st, int in, struct stream_output *out, struct stream_output *err,
                 bool tty, int stdio[3], struct err **e)
{
    int ours[3] = { -1, -1, -1 };

    if (tty) {
        *st = (struct streams){ .tty = in, .master = -1, .in = in, .out = out };
        return 0;
    }
    for (int i = 0; i < 3; i++)
        if (make_pipe(i > 0, &ours[i], &stdio[i]) < 0)
            return err_sys(e, "pipes for the command");
    streams_attach(st, in, out, err, ours);
    return 0;
}

/* No handler runs on SIGKILL: a child waits for our end of a pipe to close, and then puts the terminal
 * back, unless we said that we did it ourselves. */
static void start_guard(struct streams *st)
{
    int p[2];
    char c;

    if (pipe2(p, O_CLOEXEC) < 0)
        return;
    st->guard = fork();
    if (st->guard == 0) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, NULL);
        int tty = fcntl(st->tty, F_DUPFD_CLOEXEC, 64), rd = fcntl(p[0], F_DUPFD_CLOEXEC, 64);
        close_range(0, 63, 0);
        if (RETRY(read(rd, &c, 1)) != 1)
            tcsetattr(tty, TCSADRAIN, &st->saved);
        _exit(0);
    }
    close(p[0]);
    st->guard_pipe = p[1];
}

int streams_terminal(struct streams *st, int master)
{
    struct stat sb;
    unsigned n;
    struct termios raw;

    if (fstat(master, &sb) < 0 || !S_ISCHR(sb.st_mode) || ioctl(master, TIOCGPTN, &n) < 0 ||
        fcntl(master, F_SETFL, O_NONBLOCK) < 0) {
        close(master);
        return -1;
    }
    st->master = master;
    st->s[0] = stream_new(st->in, fcntl(master, F_DUPFD_CLOEXEC, 3), NULL);
    /* the master itself stays open to the end: a program may close its terminal before it exits, and
     * would be hung up on if we answered by closing ours */
    st->s[1] = stream_new(fcntl(master, F_DUPFD_CLOEXEC, 3), st->out->fd, st->out);
    if (tcgetattr(st->tty, &st->saved) == 0) {
        raw = st->saved;
        cfmakeraw(&raw);
        start_guard(st);
        st->raw = tcsetattr(st->tty, TCSANOW, &raw) == 0;
    }
    streams_resize(st);
    return 0;
}

void streams_window(const struct streams *st, uint16_t *rows, uint16_t *cols)
{
    struct winsize ws = { .ws_row = 24, .ws_col = 80 };
    if (st->tty >= 0)
        ioctl(st->tty, TIOCGWINSZ, &ws);
    *rows = ws.ws_row;
    *cols = ws.ws_col;
}

void streams_resize(const struct streams *st)
{
    struct winsize ws;
    if (st->master >= 0 && ioctl(st->tty, TIOCGWINSZ, &ws) == 0)
        ioctl(st->master, TIOCSWINSZ, &ws);
}

size_t streams_poll(struct streams *st, struct pollfd *fds)
{
    for (int i = 0; i < 3; i++) {
        struct stream *s = st->s[i];
        bool full = s && s->len;
        fds[2 * i] = (struct pollfd){ .fd = s && !full ? s->from : -1, .events = POLLIN };
        fds[2 * i + 1] = (struct pollfd){ .fd = full ? s->to : -1, .events = POLLOUT };
        /* the command closed its stdin: stop reading the host's */
        if (s && s->is_input && !full && s->to >= 0)
            fds[2 * i + 1] = (struct pollfd){ .fd = s->to, .events = 0 };
    }
    return STREAMS_MAX_POLL;
}

static void close_stream(struct stream *s)
{
    /* the host's own descriptors stay open */
    if (s->is_input) {
        close_p(&s->to);
        s->from = -1;
    } else {
        close_p(&s->from);
        s->to = -1;
    }
    s->len = s->off = 0;
}

/* Applies the cap: what is beyond it is counted, marked once, and dropped. */
static size_t cap(struct stream *s, size_t n)
{
    struct stream_output *o = s->out;
    uint64_t room = o->cap > s->passed ? o->cap - s->passed : 0;
    char size[24];

    o->seen += n;
    if (n <= room) {
        s->passed += n;
        return n;
    }
    n = (size_t)room;
    s->passed += n;
    if (!s->marked && o->fd >= 0) {
        format_size(o->cap, size);
        n += (size_t)snprintf(s->buf + n, 96,
                              "\n[petri: output truncated after %s; --max-output changes it]\n",
                              size);
    }
    s->marked = true;
    return n;
}

static void on_readable(struct stream *s)
{
    ssize_t n = read(s->from, s->buf, STREAM_BUF);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) {
        close_stream(s);
        return;
    }
    s->off = 0;
    s->len = (size_t)n;
    s->rest -= (size_t)n < s->rest ? (size_t)n : s->rest;
    if (s->is_input)
        return;
    s->len = cap(s, (size_t)n);
    if (s->out->fd < 0) {
        str_addn(&s->out->kept, s->buf, s->len);
        s->len = 0;
    } else if (s->out->terminal && s->len) {
        char in[STREAM_BUF + 128];
        memcpy(in, s->buf, s->len);
        s->len = termfilter_run(&s->filter, in, s->len, s->buf);
    }
}

static void on_writable(struct stream *s)
{
    /* our descriptors may be blocking and shared: what a pipe with POLLOUT surely takes */
    size_t chunk = s->len < 4096 ? s->len : 4096;
    ssize_t n = write(s->to, s->buf + s->off, chunk);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n < 0) {
        /* the reader is gone: the command learns it by SIGPIPE, as it would without us. Any other
         * reason it may never learn: what it wrote last it took for written */
        if (s->out && errno != EPIPE)
            s->out->lost = errno;
        close_stream(s);
        return;
    }
    s->off += (size_t)n;
    s->len -= (size_t)n;
}

void streams_serve(struct streams *st, const struct pollfd *fds)
{
    for (int i = 0; i < 3; i++) {
        struct stream *s = st->s[i];
        if (!s)
            continue;
        if (fds[2 * i].revents)
            on_readable(s);
        else if (fds[2 * i + 1].revents && s->len)
            on_writable(s);
        else if (fds[2 * i + 1].revents)
            close_stream(s);
    }
}

void streams_command_gone(struct streams *st)
{
    if (st->s[0])
        close_stream(st->s[0]);
}

bool streams_drained(const struct streams *st)
{
    for (int i = 1; i < 3; i++)
        if (st->s[i] && (st->s[i]->from >= 0 || st->s[i]->len))
            return false;
    return true;
}

void streams_ended(struct streams *st)
{
    enum {
        TTY_REST = 256 << 10
    }; /* a terminal does not say; more than its buffers is not its own */

    streams_command_gone(st);
    for (int i = 1; i < 3; i++) {
        int n = 0;
        if (st->s[i] && st->s[i]->from >= 0)
            st->s[i]->rest = st->master >= 0                                     ? TTY_REST
                             : ioctl(st->s[i]->from, FIONREAD, &n) == 0 && n > 0 ? (size_t)n
                                                                                 : 0;
    }
}

bool streams_pending(const struct streams *st)
{
    return (st->s[1] && st->s[1]->len) || (st->s[2] && st->s[2]->len);
}

bool streams_rest(const struct streams *st)
{
    for (int i = 1; i < 3; i++)
        if (st->s[i] && st->s[i]->from >= 0 && st->s[i]->rest)
            return true;
    return false;
}

void streams_close(struct streams *st)
{
    for (int i = 1; i < 3; i++) {
        struct stream *s = st->s[i];
        /* a program that died in the alternate screen leaves it to us to come back */
        if (s && s->out && s->out->terminal && s->out->fd >= 0)
            (void)fs_write_all(s->out->fd, s->buf, termfilter_end(&s->filter, s->buf));
    }
    if (st->raw)
        tcsetattr(st->tty, TCSADRAIN, &st->saved);
    st->raw = false;
    if (st->guard > 0) {
        (void)!write(st->guard_pipe, "", 1);
        waitpid(st->guard, NULL, 0);
        close_p(&st->guard_pipe);
        st->guard = 0;
    }
    for (int i = 0; i < 3; i++) {
        if (st->s[i])
            close_stream(st->s[i]);
        free(st->s[i]);
        st->s[i] = NULL;
    }
    close_p(&st->master);
}
