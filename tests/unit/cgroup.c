/* Control groups as they are on this machine, v1 or v2, as root or not: the limits must really bite.
 * tests/vm runs the same program on cgroup v2, as root and as a user with a login session. */
#include "runtime/driver/cgroup_impl.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "base/fs.h"
#include "tests/unit/check.h"

#define MIB (1ULL << 20)

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static struct cgroup *make(const char *id, const struct cgroup_limits *l)
{
    CLEANUP(err_free_p) struct err *e = NULL;
    struct cgroup *c = NULL;
    if (cgroup_create(id, l, &c, &e) < 0 || cgroup_wait(c, &e) < 0) {
        AUTOFREE char *text = err_text(e);
        CHECK(0, "%s: %s", id, text);
        return cgroup_free(c);
    }
    return c;
}

/* A child in the group: fork() for which the way in is the one the group wants. */
static pid_t fork_in(const struct cgroup *c)
{
    struct clone_args a = { .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD };
    pid_t pid;

    a.cgroup = (unsigned)cgroup_dirfd(c);
    pid = cgroup_dirfd(c) >= 0 ? (pid_t)syscall(SYS_clone3, &a, sizeof a) : fork();
    if (pid == 0 && cgroup_dirfd(c) < 0 && cgroup_enter(c, NULL) < 0)
        _exit(99);
    CHECK(pid >= 0, "start in the group: %s", strerror(errno));
    return pid;
}

static int wait_for(pid_t pid)
{
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
    return status;
}

static void check_gone(const char *record)
{
    AUTOFREE char *copy = str_dup(record);
    for (char *save, *l = strtok_r(copy, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        /* on a busy machine the killed ones may still be dying: then the next sweep takes it */
        for (int i = 0; i < 30 && fs_exists(l); i++)
            cgroup_reap(record);
        CHECK(!fs_exists(l), "'%s' is still there", l);
    }
}

static void test_values(void)
{
    static const char *const bad[] = { "", "a/b", "..", "a.b", "x y" };
    static const struct {
        uint64_t milli, quota, period;
    } cpus[] = { { 2000, 200000, 100000 }, { 500, 50000, 100000 }, { 1, 1000, 1000000 } };
    const struct cgroup_limits none = { 0 };
    uint64_t quota, period;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct cgroup *c = NULL;
        CHECK(cgroup_create(bad[i], &none, &c, NULL) == -ERR_INVALID && !c, "'%s'", bad[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(cpus); i++) {
        cgroup_cpu_quota(cpus[i].milli, &quota, &period);
        CHECK(quota == cpus[i].quota && period == cpus[i].period, "%zu", i);
    }
}

static void test_memory(void)
{
    const struct cgroup_limits l = { .memory = 64 * MIB, .memory_asked = true };
    AUTOSTR struct str record = STR_INIT;
    struct cgroup_stats st;
    struct cgroup *c = make("t-memory", &l);
    int status;

    if (!c)
        return;
    CHECK(cgroup_enforced(c, "memory") == c->kind && c->kind != CG_NONE, "memory");
    CHECK(cgroup_enforced(c, "cpus") == CG_NONE && cgroup_enforced(c, "pids") == CG_NONE, "others");
    pid_t pid = fork_in(c);
    if (pid == 0) {
        char *p = mmap(NULL, 256 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(p, 1, 256 * MIB);
        _exit(0);
    }
    status = wait_for(pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %x", status);
    cgroup_stats(c, &st);
    CHECK(st.oom_kills >= 1, "%llu", (unsigned long long)st.oom_kills);
    CHECK(st.memory_peak > 32 * MIB && st.memory_peak <= 65 * MIB, "%llu",
          (unsigned long long)st.memory_peak);
    cgroup_record(c, &record);
    CHECK(record.len > 0, "no record");
    cgroup_free(c);
    check_gone(record.p);
}

static void test_pids(void)
{
    const struct cgroup_limits l = { .pids = 8, .pids_asked = true };
    struct cgroup_stats st;
    struct cgroup *c = make("t-pids", &l);

    if (!c)
        return;
    CHECK(cgroup_enforced(c, "pids") == c->kind, "pids");
    pid_t pid = fork_in(c);
    if (pid == 0) {
        int n = 0;
        for (; n < 20; n++) {
            pid_t k = fork();
            if (k == 0) {
                pause();
                _exit(0);
            }
            if (k < 0)
                break;
        }
        _exit(errno == EAGAIN ? n : 50);
    }
    CHECK(WEXITSTATUS(wait_for(pid)) == 7, "children");
    cgroup_stats(c, &st);
    CHECK(st.pids_max_hits >= 1, "hits");
    CHECK(cgroup_kill(c) == 0, "kill"); /* the seven that pause belong to nobody now */
    AUTOSTR struct str record = STR_INIT;
    cgroup_record(c, &record);
    cgroup_free(c);
    check_gone(record.p);
}

static void test_cpu(void)
{
    const struct cgroup_limits l = { .cpu_milli = 200, .cpu_asked = true };
    struct cgroup_stats st;
    struct cgroup *c = make("t-cpu", &l);

    if (!c)
        return;
    pid_t pid = fork_in(c);
    if (pid == 0) {
        for (double end = now_ms() + 1000; now_ms() < end;)
            ;
        _exit(0);
    }
    wait_for(pid);
    cgroup_stats(c, &st);
    CHECK(st.cpu_usec > 40000 && st.cpu_usec < 350000, "%llu", (unsigned long long)st.cpu_usec);
    cgroup_free(c);
}

static void test_kill(void)
{
    const struct cgroup_limits l = { .memory = 256 * MIB, .pids = 64 };
    struct cgroup *c = make("t-kill", &l);
    int p[2];
    char byte;

    if (!c || pipe2(p, O_CLOEXEC) < 0)
        return;
    pid_t pid = fork_in(c);
    if (pid == 0) {
        signal(SIGTERM, SIG_IGN);
        for (int i = 0; i < 3; i++) {
            if (fork() == 0) {
                setsid();
                if (fork() == 0) {
                    (void)!write(p[1], "x", 1);
                    for (;;)
                        pause();
                }
                _exit(0);
            }
        }
        for (;;)
            pause();
    }
    close(p[1]);
    for (int i = 0; i < 3; i++)
        CHECK(read(p[0], &byte, 1) == 1, "grandchild %d", i);
    CHECK(cgroup_kill(c) == 0, "kill");
    CHECK(WTERMSIG(wait_for(pid)) == SIGKILL, "child");
    CHECK(read(p[0], &byte, 1) == 0, "a grandchild lives"); /* all writers are gone */
    close(p[0]);
    cgroup_free(c);
}

/* A keeper that dies without a word, with a process left in its group. */
static void abandon(int out)
{
    const struct cgroup_limits l = { .memory = 256 * MIB, .pids = 64 };
    AUTOSTR struct str record = STR_INIT;
    struct cgroup *c = make("t-abandoned", &l);

    if (!c)
        _exit(1);
    if (fork_in(c) == 0) {
        for (;;)
            pause();
    }
    cgroup_record(c, &record);
    (void)!write(out, record.p, record.len + 1);
    _exit(0);
}

static void test_sweep(bool by_record)
{
    const struct cgroup_limits l = { .pids = 64 };
    AUTOSTR struct str mine = STR_INIT;
    struct cgroup *c = make("t-alive", &l);
    char record[4096] = "", byte;
    int p[2], alive[2], n;

    if (!c || pipe2(p, O_CLOEXEC) < 0 || pipe2(alive, O_CLOEXEC) < 0)
        return;
    cgroup_record(c, &mine);
    pid_t pid = fork();
    if (pid == 0)
        abandon(p[1]);
    close(alive[1]);
    CHECK(WEXITSTATUS(wait_for(pid)) == 0, "keeper");
    CHECK(read(p[0], record, sizeof record) > 0, "no record");
    n = by_record ? cgroup_reap(record) : cgroup_sweep(NULL);
    CHECK(n >= 1, "%d removed", n);
    check_gone(record);
    CHECK(read(alive[0], &byte, 1) == 0, "what the dead keeper left lives");
    CHECK(cgroup_reap(mine.p) == 0 && cgroup_sweep(NULL) == 0, "a live one was swept");
    *strchr(mine.p, '\n') = '\0';
    CHECK(fs_exists(mine.p), "'%s' was swept", mine.p);
    CHECK(cgroup_reap("/etc/petri-x.1.1.1\n/sys/fs/cgroup/../petri-x.1.1.1\njunk") == 0, "junk");
    close(alive[0]);
    close(p[0]);
    close(p[1]);
    cgroup_free(c);
}

/* What a user without cgroups and without a user manager gets. */
static void test_powerless(void)
{
    const struct cgroup_limits defaults = { .memory = 2048 * MIB, .cpu_milli = 2000, .pids = 256 };
    struct cgroup_limits asked = defaults;
    pid_t pid;

    if (geteuid() != 0)
        return;
    pid = fork();
    if (pid == 0) {
        CLEANUP(err_free_p) struct err *e = NULL;
        struct cgroup *c = NULL;
        check_failed = 0;
        if (setgroups(0, NULL) < 0 || setresgid(65533, 65533, 65533) < 0 ||
            setresuid(65533, 65533, 65533) < 0)
            _exit(1);
        c = make("t-user", &defaults);
        CHECK(c && cgroup_enforced(c, "memory") == CG_NONE, "memory");
        CHECK(c && cgroup_enforced(c, "pids") == CG_RLIMIT, "pids");
        CHECK(c && cgroup_dirfd(c) == -1 && cgroup_enter(c, NULL) == 0, "enter");
        c = cgroup_free(c);
        asked.memory_asked = true;
        CHECK(cgroup_create("t-user", &asked, &c, &e) == -ERR_UNSUPPORTED, "asked");
        AUTOFREE char *text = err_text(e);
        CHECK(text && strstr(text, "memory") && strstr(text, "root"), "%s", text);
        _exit(check_failed);
    }
    CHECK(WEXITSTATUS(wait_for(pid)) == 0, "as another user");
}

static void test_cost(void)
{
    const struct cgroup_limits l = { .memory = 2048 * MIB, .cpu_milli = 2000, .pids = 256 };
    double create = 0, start = 0, end = 0, t;
    const int n = 5;

    for (int i = 0; i < n; i++) {
        nanosleep(&(struct timespec){ .tv_nsec = 100 * 1000 * 1000 }, NULL);
        t = now_ms();
        struct cgroup *c = make("t-cost", &l);
        if (!c)
            return;
        create += now_ms() - t;
        t = now_ms();
        pid_t pid = fork_in(c);
        if (pid == 0)
            _exit(0);
        wait_for(pid);
        start += now_ms() - t;
        t = now_ms();
        cgroup_free(c);
        end += now_ms() - t;
    }
    printf("after idle: create %.2f ms, child in it %.2f ms, free %.2f ms\n", create / n, start / n,
           end / n);
}

/* `unit-cgroup memory`: how would that limit be enforced? `unit-cgroup hold`: the same, until a line
 * comes. For tests that change the surroundings. */
static int ask(const char *argument)
{
    const char *what = str_eq(argument, "hold") ? "memory" : argument;
    const struct cgroup_limits l = { .memory = 64 * MIB,
                                     .cpu_milli = 500,
                                     .pids = 64,
                                     .memory_asked = str_eq(what, "memory"),
                                     .cpu_asked = str_eq(what, "cpus"),
                                     .pids_asked = str_eq(what, "pids") };
    static const char *const words[] = { "none", "v1", "v2", "rlimit" };
    CLEANUP(cgroup_free_p) struct cgroup *c = NULL;
    CLEANUP(err_free_p) struct err *e = NULL;
    AUTOSTR struct str record = STR_INIT;

    if (cgroup_create("t-ask", &l, &c, &e) < 0 || cgroup_wait(c, &e) < 0) {
        AUTOFREE char *text = err_text(e);
        printf("error %s %s\n", err_code_name(e->code), text);
        return 1;
    }
    cgroup_record(c, &record);
    printf("%s %s", words[cgroup_enforced(c, what)], record.len ? record.p : "\n");
    fflush(stdout);
    if (str_eq(argument, "hold"))
        (void)getchar();
    return 0;
}

int main(int argc, char **argv)
{
    const struct cgroup_limits l = { .memory = 64 * MIB };
    double t = now_ms();
    struct cgroup *c;

    if (argc > 1)
        return ask(argv[1]);
    c = make("t-first", &l);

    prctl(PR_SET_CHILD_SUBREAPER, 1);
    printf("cgroup v%d, uid %d, first one after %.2f ms\n", c ? (int)c->kind : 0, (int)geteuid(),
           now_ms() - t);
    CHECK(c != NULL, "none");
    if (c && c->kind == CG_NONE && getenv("PETRI_TEST_CGROUP"))
        CHECK(0, "no control group, though PETRI_TEST_CGROUP says that there is one");
    bool usable = c && cgroup_enforced(c, "memory") != CG_NONE;
    cgroup_free(c);
    test_values();
    test_powerless();
    if (!usable) {
        printf("no control group for this user: limits are not tested\n");
        return check_failed ? 1 : 77;
    }
    test_memory();
    test_pids();
    test_cpu();
    test_kill();
    test_sweep(false);
    test_sweep(true);
    test_cost();
    return check_done();
}
