#include "runtime/sandbox/keep.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/fs.h"
#include "runtime/sandbox/events.h"
#include "runtime/sandbox/run.h"
#include "runtime/sandbox/snapshot.h"

enum { TICK_NS = 10000000, PAUSE_NS = 500000 }; /* the longest there is: HZ=100 */

void kept_free_p(struct kept *k)
{
    plan_free_p(&k->plan);
    plan_holds_free_p(&k->holds);
    state_free_p(&k->state);
    close_p(&k->lock);
    close_p(&k->store);
}

/* What time it is on the project's own file system: a file made there says so. */
static struct timespec project_clock(const struct state *s)
{
    AUTOCLOSE int fd = open(s->project, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    struct timespec now;
    struct stat st;

    if (fd >= 0 && fstat(fd, &st) == 0)
        return st.st_ctim;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return now;
}

static void set_stamp(struct state *s, const struct timespec *now, long less_ns)
{
    bool borrow = now->tv_nsec < less_ns;
    s->stamp_sec = (uint64_t)now->tv_sec - borrow;
    s->stamp_nsec = (uint64_t)(now->tv_nsec + (borrow ? 1000000000 : 0) - less_ns);
}

/* The kernel's clock for files stands still for a tick, so what has the time of the stamp may have been written after
 * it. That is no harm where nothing has looked at the project before the clock goes on; it does while the walls come
 * up. A copy is made at once: there all of the last tick is in doubt, and so is all of a clock that is too coarse. */
static void settle_stamp(struct state *s)
{
    struct timespec then = { (time_t)s->stamp_sec, (long)s->stamp_nsec }, now;

    if (str_eq(s->mode, "copy")) {
        set_stamp(s, &then, TICK_NS);
        return;
    }
    for (int i = 0; i < TICK_NS / PAUSE_NS; i++) {
        now = project_clock(s);
        if (now.tv_sec != then.tv_sec || now.tv_nsec != then.tv_nsec)
            return;
        clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
    }
    set_stamp(s, &then, 1);
}

/* The index proves later which blob a file was at the start. It is never written in place. */
static void keep_index(const struct paths *paths, const struct state *s)
{
    AUTOFREE char *dir = state_dir(paths, s->id), *to = path_join(dir, "base.index");
    AUTOFREE char *from = path_join(s->project, ".git/index");
    AUTOCLOSE int in = open(from, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), out = -1;
    struct stat st;

    if (in < 0 || fstat(in, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > 256 << 20)
        return;
    out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (out < 0 || fs_copy_fd(in, out, NULL) < 0)
        (void)unlink(to);
}

int kept_make(const struct paths *paths, struct kept *k, struct err **e)
{
    CLEANUP(strv_free_p) struct strv options = k->state.options, configured = k->state.configured;
    AUTOFREE char *base = NULL;
    struct ids ids;
    int rc;

    k->state = (struct state){ 0 };
    if ((rc = fs_mkdirs(k->plan->top, 0755, e)) < 0)
        return rc;
    if (k->plan->mode == WORKSPACE_COPY) {
        if ((rc = layer_new(paths, &base, e)) < 0)
            return rc;
        strv_add(&k->plan->chain, base);
        strv_add(&k->state.chain, strrchr(base, '/') + 1);
    }
    if ((rc = ids_plan(k->plan,
                       geteuid() != 0 && k->plan->uid != getuid() &&
                           strcmp(k->plan->image, "host") == 0,
                       &ids, e)) < 0)
        return rc;
    state_from_plan(&k->state, k->plan, &ids);
    k->state.options = options;
    k->state.configured = configured;
    options = configured = (struct strv){ 0 };
    k->note = ids_note(&ids);
    k->state.top = str_dup(strrchr(k->plan->top, '/') + 1);
    struct timespec now = project_clock(&k->state);
    set_stamp(&k->state, &now, 0);
    keep_index(paths, &k->state);
    /* the project's first is its own: meant where none is named */
    k->state.own = !k->aside && state_own(paths, &k->state, NULL) == 0;
    return 0;
}

/* --- the keeper ---------------------------------------------------------------------------------- */

enum { PREPARING = 127 };
static int preparing_pipe = -1; /* of a keeper: the one global, since a callback has no argument */

static void on_prepare(void)
{
    char code = PREPARING;
    (void)!write(preparing_pipe, &code, 1);
}

static void say(int pipe, const struct err *e)
{
    AUTOFREE char *text = e ? err_text(e) : NULL;
    char code = e ? (char)e->code : 0;
    (void)!write(pipe, &code, 1);
    if (text)
        (void)!write(pipe, text, strlen(text));
}

/* Nothing of the caller's is kept: descriptors, terminal, directory. */
static void leave_caller(const struct paths *paths, const struct kept *k, int pipe)
{
    AUTOFREE char *dir = state_dir(paths, k->plan->id), *path = path_join(dir, "log");
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);

    setsid();
    (void)!chdir("/");
    dup2(null, 0);
    dup2(null, 1);
    dup2(log >= 0 ? log : null, 2);
    close_p(&null);
    close_p(&log);
    for (int s = 1; s < 32; s++)
        if (s != SIGKILL && s != SIGSTOP)
            signal(s, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_NAME, "petri-keeper");
}

int kept_times(const struct strv *flags, uint64_t *ret_idle_ms, uint64_t *ret_life_ms,
               struct err **e)
{
    CLEANUP(options_free_p) struct options o = { 0 };
    int rc;

    *ret_idle_ms = *ret_life_ms = 0;
    options_restore(&o, flags);
    if (o.idle_timeout && (rc = parse_duration(o.idle_timeout, ret_idle_ms, e)) < 0)
        return err_wrap(e, "--idle-timeout");
    if (o.lifetime && (rc = parse_duration(o.lifetime, ret_life_ms, e)) < 0)
        return err_wrap(e, "--lifetime");
    if (o.no_keep_alive && !*ret_idle_ms)
        *ret_idle_ms = 1000;
    return 0;
}

/* Changes of one system make no sense on another. */
static bool same_image(const struct state *s, const struct plan *p)
{
    bool same = p->image_layers.n == s->image_layers.n;
    for (size_t i = 0; same && i < p->image_layers.n; i++)
        same = str_eq(p->image_layers.v[i], s->image_layers.v[i]);
    return same;
}

static int other_project(const struct state *s, struct err **e)
{
    return err_new(e, ERR_DENIED,
                   "'%s' is not the directory that sandbox '%s' was made for; petri rm it, or put "
                   "the directory back",
                   s->project, s->name ? s->name : s->id);
}

int kept_same_project(const struct state *s, struct err **e)
{
    const char *name = s->name ? s->name : s->id;
    struct stat st;

    if (stat(s->project, &st) < 0)
        return err_new(e, ERR_NOT_FOUND,
                       "'%s', the project of sandbox '%s', is not there: %s; put it back, or petri "
                       "rm %s",
                       s->project, name, strerror(errno), name);
    return st.st_dev == s->project_dev && st.st_ino == s->project_ino ? 0 : other_project(s, e);
}

int kept_same_base(const struct state *s, const struct plan *p, struct err **e)
{
    if (!same_image(s, p))
        return err_new(
            e, ERR_DENIED,
            "image '%s' is another one than when sandbox '%s' was made; give the old one "
            "its name back, or petri rm the sandbox",
            s->image, s->name ? s->name : s->id);
    return p->project_dev == s->project_dev && p->project_ino == s->project_ino
               ? 0
               : other_project(s, e);
}

/* In a child: a scope moves whoever asks for it. */
static _Noreturn void try_limits(const struct plan *p, int pipe)
{
    AUTOFREE char *id = str_printf("%s-try", p->id); /* the one that runs has the name itself */
    struct cgroup_limits limits = box_limits(p);
    struct cgroup *c = NULL;
    struct err *e = NULL;

    if (cgroup_create(id, &limits, &c, &e) == 0)
        (void)cgroup_wait(c, &e);
    cgroup_free(c);
    say(pipe, e);
    _exit(0);
}

int kept_limits(const struct plan *p, struct err **e)
{
    AUTOCLOSE int in = -1;
    int pair[2], rc;
    pid_t pid;

    if (!p->memory.asked && !p->cpus_milli.asked)
        return 0;
    if (pipe2(pair, O_CLOEXEC) < 0)
        return err_sys(e, "pipe");
    in = pair[0];
    pid = fork();
    if (pid == 0)
        try_limits(p, pair[1]);
    close(pair[1]);
    if (pid < 0)
        return err_sys(e, "fork");
    rc = kept_wait(in, NULL, e);
    (void)RETRY(waitpid(pid, NULL, 0));
    return rc;
}

struct keeping {
    struct live live;
    int store;
    char *before; /* the record, as it was before this start; NULL: there was none */
    struct err *e;
};

/* A start that failed changes nothing: flags that can't be had are forgotten with it. */
static void forget_start(struct keeping *k)
{
    AUTOFREE char *dir = state_dir(k->live.paths, k->live.state.id);
    AUTOFREE char *path = path_join(dir, "state.json");
    if (k->before)
        (void)fs_write_atomic(AT_FDCWD, path, k->before, strlen(k->before), 0600, NULL);
    else /* here and now: whoever gets the lock next must not find it */
        (void)state_remove(k->live.paths, k->live.state.id, NULL);
}

/* The record is written while the launcher works. */
static void write_record(struct live *l)
{
    struct keeping *k = (struct keeping *)l;
    AUTOSTR struct str leaf = STR_INIT;

    if (!k->before && !l->state.parent)
        settle_stamp(&l->state);
    cgroup_record(l->box.cgroup, &leaf);
    free(l->state.cgroup);
    l->state.cgroup = str_take(&leaf);
    (void)state_write(l->paths, &l->state, &k->e);
    close_p(&k->store);
}

static _Noreturn void keeper_main(const struct paths *paths, struct kept *from, int pipe)
{
    struct keeping *k = mem_zalloc(sizeof *k);
    struct live *l = &k->live;

    leave_caller(paths, from, pipe);
    close_p(&from->callers_store);
    *l = (struct live){ .paths = paths,
                        .plan = TAKE_PTR(from->plan),
                        .holds = from->holds,
                        .state = from->state,
                        .lock = TAKE_FD(from->lock),
                        .listen = -1,
                        .ctl = -1,
                        .signals = -1,
                        .tick = -1,
                        .on_prepare = on_prepare,
                        .on_launched = write_record };
    preparing_pipe = pipe;
    l->box = (struct box)BOX_INIT(l->plan, paths);
    k->store = TAKE_FD(from->store);
    (void)state_text(paths, l->state.id, &k->before, NULL);
    if (kept_times(&l->state.options, &l->idle_ms, &l->life_ms, &k->e) < 0 ||
        live_up(l, &k->e) < 0) {
        forget_start(k);
        say(pipe, k->e);
        _exit(1);
    }
    if (k->e) { /* the record could not be written */
        forget_start(k);
        live_down(l);
        say(pipe, k->e);
        _exit(1);
    }
    events_add(paths, "start", &l->state, NULL);
    say(pipe, NULL);
    close(pipe);
    if (from->sweep)
        sandbox_sweep_some(paths);
    live_loop(l);
    _exit(0);
}

int kept_fork(const struct paths *paths, struct kept *k, int *ret_pipe, struct err **e)
{
    int p[2];
    pid_t pid;

    if (pipe2(p, O_CLOEXEC) < 0)
        return err_sys(e, "pipe");
    pid = fork();
    if (pid == 0) {
        close(p[0]);
        keeper_main(paths, k, p[1]);
    }
    close(p[1]);
    if (pid < 0) {
        close(p[0]);
        return err_sys(e, "start the keeper");
    }
    /* the keeper has it now: the lock lives as long as any copy of it */
    close_p(&k->lock);
    close_p(&k->store);
    *ret_pipe = p[0];
    return 0;
}

int kept_wait(int pipe, void (*prepare)(void), struct err **e)
{
    char text[2048], code = ERR_INTERNAL;
    ssize_t n = RETRY(read(pipe, &code, 1)), got = 0;

    if (n == 1 && code == PREPARING) {
        if (prepare)
            prepare();
        code = ERR_INTERNAL;
        n = RETRY(read(pipe, &code, 1));
    }
    if (n == 1 && code == 0)
        return 0;
    while (n > 0 && got < (ssize_t)sizeof text - 1 &&
           (n = RETRY(read(pipe, text + got, sizeof text - 1 - (size_t)got))) > 0)
        got += n;
    text[got] = '\0';
    return err_new(e, (enum err_code)code, "%s", got ? text : "the keeper ended during the start");
}

int kept_start(const struct paths *paths, struct kept *k, struct started *ret, struct err **e)
{
    AUTOCLOSE int pipe = -1;
    int rc;

    ret->ids_note = k->note;
    for (size_t i = 0; i < k->plan->missing.n; i++)
        strv_add(&ret->missing, k->plan->missing.v[i]);
    k->sweep = true;
    if ((rc = kept_fork(paths, k, &pipe, e)) < 0)
        return rc;
    return kept_wait(pipe, ret->on_prepare, e);
}
