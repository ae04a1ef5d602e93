/* runtime/client/exec.c - a command in a running sandbox, in steps that never block. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>

#include "runtime/client/client.h"

struct petri_exec {
    const struct petri_sandbox *s;
    char *command; /* for messages */
    char *cwd, *user;
    int fds[4]; /* stdin, stdout, stderr, terminal */
    bool tty, started, ended;
    struct conn c;
};

static void add_word(struct str *s, const char *word)
{
    str_addn(s, word, strlen(word) + 1);
}

static int make_request(struct petri_sandbox *s, const struct petri_exec_options *o,
                        struct str *ret, struct petri_error *e)
{
    AUTOSTRV struct strv env = { 0 };
    struct proto_exec x = {
        .tty = o->tty != 0,
        .rows = o->rows ? o->rows : 24,
        .cols = o->cols ? o->cols : 80,
        .uid = PROTO_SAME_ID,
        .gid = PROTO_SAME_ID,
        .timeout_ms = o->timeout_ms,
    };

    if (!o->argv || !o->argv[0] || !o->argv[0][0])
        return client_fail(e, "usage", "no command given");
    if (o->user && client_user(s, o->user, &x.uid, &x.gid, &env, e) < 0)
        return -1;
    for (const char *const *v = o->env; v && *v; v++) {
        if (!strchr(*v, '=') || **v == '=')
            return client_fail(e, "invalid", "variable '%s': write it as NAME=VALUE", *v);
        strv_add(&env, *v);
    }
    while (o->argv[x.n_argv])
        x.n_argv++;
    x.n_env = (uint32_t)env.n;
    str_addn(ret, &x, sizeof x);
    add_word(ret, o->cwd && *o->cwd ? o->cwd : s->sub && !o->cwd ? s->sub : ".");
    for (uint32_t i = 0; i < x.n_argv; i++)
        add_word(ret, o->argv[i]);
    for (uint32_t i = 0; i < x.n_env; i++)
        add_word(ret, env.v[i]);
    if (ret->len > PROTO_MAX)
        return client_fail(e, "limit", "command and environment are longer than %d MiB together",
                           PROTO_MAX >> 20);
    return 0;
}

/* Ours do not block; the command's are as a shell's would be. */
static int make_pipes(int ours[3], int theirs[3])
{
    for (int i = 0; i < 3; i++) {
        int p[2];
        if (pipe2(p, O_CLOEXEC) < 0)
            return -1;
        ours[i] = p[i ? 0 : 1];
        theirs[i] = p[i ? 1 : 0];
        if (fcntl(ours[i], F_SETFL, O_NONBLOCK) < 0)
            return -1;
    }
    return 0;
}

int petri_exec_start(struct petri_sandbox *s, const struct petri_exec_options *theirs,
                     struct petri_exec **ret, struct petri_error *e)
{
    struct petri_exec_options o;
    AUTOSTR struct str request = STR_INIT;
    int stdio[3] = { -1, -1, -1 };

    client_take(&o, sizeof o, theirs);
    if (make_request(s, &o, &request, e) < 0)
        return -1;
    struct petri_exec *x = malloc(sizeof *x); /* its buffer is not worth clearing */
    if (!x)
        abort();
    x->s = s;
    x->command = str_dup(o.argv[0]);
    x->cwd = str_dup(o.cwd ? o.cwd : s->sub);
    x->user = str_dup(o.user);
    x->fds[0] = x->fds[1] = x->fds[2] = x->fds[3] = -1;
    x->tty = o.tty != 0;
    x->started = x->ended = false;
    x->c.fd = x->c.passed = -1;

    int rc = client_connect(s, "sock", &x->c, e);
    if (rc == 0 && !x->tty && make_pipes(x->fds, stdio) < 0)
        rc = client_sys(e, "pipes for the command");
    if (rc == 0 && conn_send(&x->c, PROTO_EXEC, request.p, request.len, stdio, x->tty ? 0 : 3) < 0)
        rc = client_lost(s, &x->c, e);
    for (int i = 0; i < 3; i++)
        close_p(&stdio[i]);
    if (rc < 0)
        petri_exec_free(x);
    else
        *ret = x;
    return rc;
}

int petri_exec_fd(const struct petri_exec *x, enum petri_exec_fd which)
{
    return which == PETRI_CONTROL ? x->c.fd : (unsigned)which <= PETRI_TTY ? x->fds[which] : -1;
}

int petri_exec_take_fd(struct petri_exec *x, enum petri_exec_fd which)
{
    int fd = which == PETRI_CONTROL ? -1 : petri_exec_fd(x, which);
    if (fd >= 0)
        x->fds[which] = -1;
    return fd;
}

static int failed(const struct petri_exec *x, const struct proto_failed *f, struct petri_event *ev,
                  struct petri_error *e)
{
    ev->type = PETRI_FAILED;
    ev->status = 125;
    ev->exit_code = -1;
    errno = f->error > 0 && f->error < 4096 ? f->error : EIO;
    switch (f->stage) {
    case STAGE_EXEC:
        ev->status = errno == ENOENT ? 127 : 126;
        if (errno == ENOENT)
            client_fail(e, "not_found", "'%s': not found in the sandbox", x->command);
        else
            client_fail(e, "invalid", "'%s': can't be executed: %m", x->command);
        break;
    case STAGE_CHDIR:
        client_fail(e, "invalid", "working directory '%s': %m in the sandbox",
                    x->cwd ? x->cwd : ".");
        break;
    case STAGE_USER:
        client_fail(
            e, "unsupported",
            "user '%s': this sandbox can't run as it: %m (one that was started with -u 0 can)",
            x->user ? x->user : "?");
        break;
    case STAGE_FORK:
        client_fail(e, "limit", "no more processes in sandbox '%s': %m", x->s->name);
        break;
    case STAGE_PTY:
        client_sys(e, "no terminal in sandbox '%s'", x->s->name);
        break;
    default:
        client_sys(e, "sandbox '%s' refused the command (stage %u)", x->s->name, f->stage);
    }
    return 1;
}

static int ended(const struct proto_exit *f, struct petri_event *ev)
{
    ev->type = PETRI_EXIT;
    ev->exit_code = -1;
    ev->cpu_us = f->cpu_usec;
    ev->max_rss = f->maxrss_bytes;
    if (f->timed_out) {
        ev->timed_out = 1;
        ev->signal = SIGKILL;
        ev->status = 124;
    } else if (WIFSIGNALED(f->status)) {
        ev->signal = WTERMSIG(f->status);
        ev->status = 128 + ev->signal;
    } else {
        ev->status = ev->exit_code = WEXITSTATUS(f->status);
    }
    return 1;
}

/* What came is a terminal's master and nothing else. */
static bool take_tty(struct petri_exec *x)
{
    struct stat st;
    unsigned n;
    int fd = conn_take_fd(&x->c);

    x->fds[PETRI_TTY] = fd;
    return fd >= 0 && fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && ioctl(fd, TIOCGPTN, &n) == 0 &&
           fcntl(fd, F_SETFL, O_NONBLOCK) == 0;
}

int petri_exec_next(struct petri_exec *x, struct petri_event *ret, struct petri_error *e)
{
    struct petri_event ev = PETRI_EVENT_INIT;
    struct frame f;
    int rc;

    if (x->ended)
        return 0;
    if ((rc = conn_next(&x->c, &f)) == 0)
        return 0;
    if (rc > 0) {
        rc = -1;
        errno = EPROTO;
        if (f.type == PROTO_STARTED && !x->started && (!x->tty || take_tty(x))) {
            x->started = true;
            ev.type = PETRI_STARTED;
            rc = 1;
        } else if (f.type == PROTO_FAILED && !x->started && f.len == sizeof(struct proto_failed)) {
            struct proto_failed p;
            memcpy(&p, f.p, sizeof p);
            rc = failed(x, &p, &ev, e);
        } else if (f.type == PROTO_EXIT && f.len == sizeof(struct proto_exit)) {
            /* perhaps the first word: code inside can kill who was about to say that it started */
            struct proto_exit p;
            memcpy(&p, f.p, sizeof p);
            rc = ended(&p, &ev);
        }
        x->ended = rc > 0 && ev.type != PETRI_STARTED;
        if (x->c.passed >= 0)
            rc = -1;
    }
    if (rc < 0) {
        x->ended = true;
        return client_lost(x->s, &x->c, e);
    }
    client_give(&ev, sizeof ev, ret);
    return 1;
}

int petri_exec_signal(struct petri_exec *x, int sig, struct petri_error *e)
{
    uint32_t s = (uint32_t)sig;

    if (x->ended)
        return client_fail(e, "failed", "'%s' has ended", x->command);
    if (conn_send(&x->c, PROTO_SIGNAL, &s, sizeof s, NULL, 0) < 0)
        return client_lost(x->s, &x->c, e);
    return 0;
}

void petri_exec_free(struct petri_exec *x)
{
    if (!x)
        return;
    conn_close(&x->c);
    for (int i = 0; i < 4; i++)
        close_p(&x->fds[i]);
    free(x->command);
    free(x->cwd);
    free(x->user);
    free(x);
}
