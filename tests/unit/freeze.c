/* A sandbox's processes halted and let go again, by the kernel's freezer and by signals; as root, as an
 * ordinary user, and (tests/vm) on cgroup v2. */
#include "runtime/driver/cgroup_impl.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/unit/check.h"

enum { WRITERS = 4, SLOTS = 64 };

/* What the processes inside write, all the time. */
static volatile uint64_t *counters;

static void nap(unsigned ms)
{
    cgroup_pause_us(ms * 1000);
}

/* A process with two threads' worth of writers, a child that was stopped before, and one that forks. */
static _Noreturn void inside(int ready)
{
    signal(SIGCHLD, SIG_IGN);
    for (int i = 0; i < WRITERS; i++) {
        if (fork() == 0) {
            for (;;)
                counters[i]++;
        }
    }
    if (fork() == 0) { /* the number of processes never rests */
        for (;;) {
            pid_t pid = fork();
            if (pid == 0) {
                for (uint64_t n = 0; n < 1000; n++)
                    counters[WRITERS]++;
                _exit(0);
            }
            nap(1);
        }
    }
    pid_t pid = fork();
    if (pid == 0) {
        setsid(); /* a stopped process of a group whose last parent ends is continued by the kernel */
        raise(SIGSTOP);
        for (;;)
            counters[WRITERS + 1]++;
    }
    (void)waitpid(pid, NULL, WUNTRACED);
    counters[SLOTS - 1] = 1;
    (void)!write(ready, "x", 1);
    for (;;)
        pause();
}

/* The topmost process starts PID 1 of a new pid namespace and stays, like a launcher. */
static pid_t start(struct cgroup *c)
{
    struct clone_args a = { .flags = CLONE_NEWPID | (geteuid() ? CLONE_NEWUSER : 0),
                            .exit_signal = SIGCHLD };
    int p[2];
    char byte;
    pid_t pid;

    if (pipe2(p, O_CLOEXEC) < 0)
        return -1;
    memset((void *)counters, 0, SLOTS * sizeof *counters);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (cgroup_enter(c, NULL) < 0)
            _exit(99);
        pid_t init = (pid_t)syscall(SYS_clone3, &a, sizeof a);
        if (init == 0)
            inside(p[1]);
        close(p[1]);
        (void)waitpid(init, NULL, 0);
        _exit(init < 0 ? 98 : 0);
    }
    close(p[1]);
    if (read(p[0], &byte, 1) != 1)
        fprintf(stderr, "nothing started inside\n");
    close(p[0]);
    return pid;
}

static uint64_t sum(void)
{
    uint64_t n = 0;
    for (int i = 0; i <= WRITERS + 1; i++)
        n += counters[i];
    return n;
}

/* True once each of them has run on (bounded, for a machine under load). */
static bool all_writers_move(void)
{
    uint64_t before[WRITERS + 1];
    int n = 0;

    for (int i = 0; i <= WRITERS; i++)
        before[i] = counters[i];
    for (int k = 0; k < 2000 && n <= WRITERS; k++) {
        n = 0;
        for (int i = 0; i <= WRITERS; i++)
            n += counters[i] != before[i];
        nap(5);
    }
    return n > WRITERS;
}

static bool ends(pid_t pid)
{
    for (int i = 0; i < 2000; i++) {
        if (waitpid(pid, NULL, WNOHANG) == pid)
            return true;
        nap(5);
    }
    return false;
}

static struct cgroup *make(const char *id)
{
    const struct cgroup_limits l = { .pids = 64 };
    CLEANUP(err_free_p) struct err *e = NULL;
    struct cgroup *c = NULL;
    if (cgroup_create(id, &l, &c, &e) < 0 || cgroup_wait(c, &e) < 0) {
        AUTOFREE char *text = err_text(e);
        CHECK(0, "%s: %s", id, text);
        return cgroup_free(c);
    }
    return c;
}

/* `by_signal`: as on a machine whose kernel has no freezer for us. */
static struct cgroup *begin(const char *id, bool by_signal, pid_t *ret_pid)
{
    struct cgroup *c = make(id);

    if (!c)
        return NULL;
    *ret_pid = start(c);
    cgroup_set_root(c, *ret_pid);
    if (by_signal)
        c->kind = CG_NONE;
    return c;
}

static void test_freeze(bool by_signal)
{
    CLEANUP(err_free_p) struct err *e = NULL;
    enum cgroup_enforce kind;
    struct cgroup_stats s;
    pid_t pid;
    struct cgroup *c = begin("t-freeze", by_signal, &pid);

    if (!c)
        return;
    kind = c->kind;
    CHECK(all_writers_move(), "not running");
    for (int round = 0; round < 5; round++) {
        int rc = cgroup_freeze(c, &e);
        AUTOFREE char *text = e ? err_text(e) : NULL;
        CHECK(rc == 0, "round %d: %s", round, text ? text : "");
        uint64_t n = sum();
        nap(30);
        CHECK(sum() == n, "frozen, but %llu more", (unsigned long long)(sum() - n));
        CHECK(counters[WRITERS + 1] == 0, "what was stopped ran");
        CHECK(cgroup_freeze(c, NULL) == 0, "twice");
        cgroup_thaw(c);
        CHECK(all_writers_move(), "round %d: not thawed", round);
        CHECK(counters[WRITERS + 1] == 0, "what was stopped before runs after the thaw");
    }
    cgroup_stats(c, &s);
    CHECK(s.pids_now >= WRITERS + 4 && s.pids_now < 64, "%llu", (unsigned long long)s.pids_now);
    CHECK(s.memory_now > 0 || kind == CG_CGROUP_V2, "memory");
    CHECK(cgroup_freeze(c, NULL) == 0, "freeze before the kill");
    CHECK(cgroup_kill(c) == 0, "kill while frozen");
    CHECK(ends(pid), "frozen processes survive a kill");
    if (by_signal) /* cgroup_free looks at the leaf again */
        c->kind = c->fds[0] >= 0 ? CG_CGROUP_V1 : CG_NONE;
    cgroup_free(c);
}

static void test_kill_others(bool by_signal, bool frozen)
{
    struct cgroup_stats s = { 0 };
    pid_t pid, init;
    struct cgroup *c = begin("t-others", by_signal, &pid);

    if (!c)
        return;
    init = cgroup_find_init(c);
    CHECK(init > 0 && init != pid, "init %d below %d", (int)init, (int)pid);
    CHECK(!frozen || cgroup_freeze(c, NULL) == 0, "freeze");
    CHECK(cgroup_kill_others(c, frozen ? init : 0) == 0, "kill");
    CHECK(kill(init, 0) == 0 && kill(pid, 0) == 0, "what was to be kept is gone");
    CHECK(!c->frozen, "still frozen");
    cgroup_proc_stats(c, &s);
    CHECK(s.pids_now == 2, "%d left", (int)s.pids_now);
    CHECK(cgroup_kill(c) == 0 && ends(pid), "kill");
    cgroup_free(c);
}

/* The keeper dies while the sandbox is frozen: nothing of it may stay. */
static void test_keeper_dies(bool by_signal)
{
    int p[2];
    char byte;
    pid_t keeper;
    int status;

    if (pipe2(p, O_CLOEXEC) < 0)
        return;
    keeper = fork();
    if (keeper == 0) {
        pid_t pid;
        struct cgroup *c = begin("t-dies", by_signal, &pid);
        (void)!write(p[1], "x", 1);
        if (!c || cgroup_freeze(c, NULL) < 0)
            _exit(1);
        raise(SIGKILL);
    }
    close(p[1]);
    CHECK(read(p[0], &byte, 1) == 1, "no keeper");
    CHECK(waitpid(keeper, &status, 0) == keeper && WIFSIGNALED(status), "keeper %x", status);
    /* all of the sandbox's processes have the pipe's other end open */
    fcntl(p[0], F_SETFL, O_NONBLOCK);
    ssize_t n = -1;
    for (int i = 0; i < 2000 && (n = read(p[0], &byte, 1)) != 0; i++)
        nap(5);
    CHECK(n == 0, "frozen processes outlive their keeper");
    close(p[0]);
    (void)cgroup_sweep(NULL);
}

static void test_nobody(void)
{
    CLEANUP(err_free_p) struct err *e = NULL;
    struct cgroup *c = make("t-nobody");

    if (!c)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        for (;;)
            pause();
    }
    cgroup_set_root(c, pid);
    CHECK(cgroup_freeze(c, &e) < 0 && e, "a sandbox without a first process was frozen");
    cgroup_thaw(c);
    CHECK(kill(pid, SIGKILL) == 0 && ends(pid), "child");
    cgroup_free(c);
}

int main(void)
{
    CLEANUP(cgroup_free_p) struct cgroup *c = make("t-first");

    prctl(PR_SET_CHILD_SUBREAPER, 1);
    counters = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (counters == MAP_FAILED || !c)
        return 1;
    cgroup_set_root(c, start(c));
    bool runs = counters[SLOTS - 1];
    (void)cgroup_kill(c);
    if (!runs && geteuid()) {
        printf("no user namespaces for this user: not tried\n");
        return 77;
    }
    printf("cgroup v%d, uid %d\n", (int)c->kind, (int)geteuid());
    test_nobody();
    for (int by_signal = c->kind == CG_NONE; by_signal < 2; by_signal++) {
        test_freeze(by_signal);
        test_kill_others(by_signal, false);
        test_kill_others(by_signal, true);
        test_keeper_dies(by_signal);
    }
    while (waitpid(-1, NULL, WNOHANG | __WALL) > 0) /* adopted, dead */
        ;
    return check_done();
}
