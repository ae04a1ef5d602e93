#include "runtime/driver/ns.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fs.h"

static int loopback_up(void)
{
    AUTOCLOSE int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq r = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
    return s < 0 ? -1 : ioctl(s, SIOCSIFFLAGS, &r);
}

/* How it went: a code, the namespace's descriptor in its maker, and what is wrong. */
struct outcome {
    int code, fd;
    char text[500];
};

static void say_done(int done, int fd, const struct err *e)
{
    struct outcome o = { .code = e ? (int)e->code : 0, .fd = fd };
    AUTOFREE char *text = e ? err_text(e) : NULL;

    if (text)
        snprintf(o.text, sizeof o.text, "%s", text);
    (void)!write(done, &o, sizeof o);
}

/* The maker in an agent's process. */
struct making {
    int done;
    bool said;
};

static void on_made(void *arg, int inside)
{
    struct making *m = arg;

    say_done(m->done, inside, NULL);
    m->said = true;
}

/* Whoever waits for the rest hears of its failure from the caller. */
static int make_with_agent(int done, const struct holder_agent *a, struct agent *ret,
                           struct err **e)
{
    struct making m = { .done = done };
    struct agent_req req = a->req;
    int rc;

    req.made = on_made;
    req.arg = &m;
    rc = agent_setup(&req, ret, e);
    if (rc == 0)
        (void)!write(done, "", 1);
    else if (m.said)
        a->failed(a->arg, *e);
    else
        say_done(done, -1, *e);
    return rc;
}

static int make_net(struct err **e)
{
    if (unshare(CLONE_NEWNET) < 0 || loopback_up() < 0)
        return err_sys(e, "make a network namespace");
    return 0;
}

/* A holder of nothing but the namespace. It shares its maker's memory, since to copy that takes longer than to make
 * the namespace: so it has a stack of its own, which stays for as long as the maker lives, and makes only system calls
 * that can't fail (errno is shared, too). */
struct bare {
    int go[2];
    char stack[8192] __attribute__((aligned(16)));
};

static int bare_main(void *arg)
{
    const struct bare *b = arg;
    char c;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(b->go[1]);
    while (read(b->go[0], &c, 1) == 1)
        ;
    _exit(0);
}

static void holder_main(int go, int done, const struct holder_agent *a)
{
    struct agent agent = { 0 };
    struct err *e = NULL;
    char c = 0;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (RETRY(read(go, &c, 1)) != 1)
        _exit(1);
    if (a) {
        (void)make_with_agent(done, a, &agent, &e);
    } else {
        (void)make_net(&e);
        say_done(done, -1, e);
    }
    close(done);
    /* until the caller has what it wants, or is gone */
    if (RETRY(read(go, &c, 1)) == 1 && a && !e)
        agent_serve(&agent);
    _exit(0);
}

/* Both ends are the caller's afterwards; an error is that of the clone. */
static int map_ids(const struct idmap *uids, const struct idmap *gids, bool deny_setgroups,
                   struct holder *h, struct err **e)
{
    int rc;

    if (h->pid < 0)
        rc = err_sys(e, "make a user namespace (see petri doctor)");
    else if ((rc = ids_write(uids, gids, h->pid, deny_setgroups, e)) == 0 &&
             write(h->pipe, "", 1) != 1)
        rc = err_sys(e, "start the namespace's holder");
    if (rc < 0)
        holder_end(h);
    return rc;
}

int holder_start(const struct idmap *uids, const struct idmap *gids, bool deny_setgroups,
                 const struct holder_agent *agent, struct holder *ret, struct err **e)
{
    int go[2], done[2] = { -1, -1 };
    pid_t pid;
    int rc;

    if (pipe2(go, O_CLOEXEC) < 0)
        return err_sys(e, "pipe");
    /* A byte that the holder never reads: its end, however it comes, is then an error to who waits here, not an
     * end of file, at which libcrun would look again and again. */
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, done) < 0 ||
        write(done[0], "", 1) != 1) {
        rc = err_sys(e, "socketpair");
        close_p(&done[0]);
        close_p(&done[1]);
        close(go[0]);
        close(go[1]);
        return rc;
    }
    /* libcrun waits for the last of its caller's children: an agent is none that a plain wait() would see */
    pid = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | (agent ? 0 : SIGCHLD), 0, 0, 0, 0);
    if (pid == 0) {
        close(go[1]);
        close(done[0]);
        holder_main(go[0], done[1], agent);
    }
    *ret = (struct holder){ .pid = pid, .pipe = go[1], .done = done[0] };
    rc = map_ids(uids, gids, deny_setgroups, ret, e);
    close(go[0]);
    close(done[1]);
    return rc;
}

int holder_start_bare(const struct idmap *uids, const struct idmap *gids, struct holder *ret,
                      struct err **e)
{
    struct bare *b = mem_zalloc(sizeof *b);
    int rc;

    if (pipe2(b->go, O_CLOEXEC) < 0) {
        free(b);
        return err_sys(e, "pipe");
    }
    *ret = (struct holder){ .pipe = b->go[1], .done = -1 };
    ret->pid = clone(bare_main, b->stack + sizeof b->stack, CLONE_NEWUSER | CLONE_VM | SIGCHLD, b);
    rc = map_ids(uids, gids, false, ret, e);
    close(b->go[0]);
    return rc;
}

static int open_ns(pid_t pid, const char *kind, int *ret_fd, struct err **e)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)pid, kind);
    *ret_fd = open(path, O_RDONLY | O_CLOEXEC);
    return *ret_fd < 0 ? err_sys(e, "open the sandbox's %s namespace", kind) : 0;
}

int holder_user(const struct holder *h, int *ret_fd, struct err **e)
{
    return open_ns(h->pid, "user", ret_fd, e);
}

int holder_net(const struct holder *h, int *ret_fd, struct err **e)
{
    struct outcome o;
    char path[64];

    if (RETRY(read(h->done, &o, sizeof o)) != sizeof o)
        return err_new(e, ERR_FAILED, "make a network namespace: its maker died");
    if (o.code)
        return err_new(e, (enum err_code)o.code, "%s", o.text);
    if (o.fd < 0)
        return open_ns(h->pid, "net", ret_fd, e);
    /* its maker is in another one by now */
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)h->pid, o.fd);
    *ret_fd = open(path, O_RDONLY | O_CLOEXEC);
    return *ret_fd < 0 ? err_sys(e, "open the sandbox's network namespace") : 0;
}

int holder_ready(const struct holder *h, int *ret_fd, struct err **e)
{
    *ret_fd = fcntl(h->done, F_DUPFD_CLOEXEC, 0);
    return *ret_fd < 0 ? err_sys(e, "wait for the sandbox's network") : 0;
}

void holder_serve(struct holder *h)
{
    (void)!write(h->pipe, "", 1);
    close_p(&h->pipe);
    close_p(&h->done);
}

void holder_end(struct holder *h)
{
    /* nobody waits for it: whoever reaps the launcher's children comes by later */
    if (h->pid > 0)
        kill(h->pid, SIGKILL);
    h->pid = 0;
    close_p(&h->pipe);
    close_p(&h->done);
}
