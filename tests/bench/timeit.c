/* tests/bench/timeit.c - starts commands in turn and says how long each took.
 *
 * Reads cases from stdin, one word and its value per line:
 *     case NAME | uid N | gid N | cwd DIR | env K=V | umount PATH | arg WORD | before WORD | after WORD |
 *     random 1
 * Each case gets a launcher process that takes on the case's identity once (ids, directory, a
 * private mount namespace where PATH is unmounted), so that a sample is only vfork, exec and the
 * wait for the exit. A round runs every case once, in an order drawn anew, after an idle gap.
 *
 * The command lines in `before` and `after` (ended by the word ";") run outside the clock and must
 * return 0. @A@ in a word is a token drawn for each sample. With `random`, so are a variable @E@, an exit
 * status @S@ and stdin, the command is `probe echo`, and rc is 0 where it was given back all of them.
 *
 * Prints one JSON object per sample: case, round, ms, user_ms, sys_ms, rss_kb, rc, out, err.
 * Uses:  libc only, linked statically.
 * Crash: launchers end when their pipe closes; what a sample started is its own business.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "draw.h"

enum {
    MAX_CASES = 64,
    MAX_WORDS = 64,
    MAX_ENV = 16,
    SAMPLE_TIMEOUT_MS = 120000,
    OUT_ROOM = 1 << 20
};

struct bench_case {
    char *name, *cwd, *umount;
    long uid, gid; /* -1: as started */
    char *argv[MAX_WORDS + 1], *envp[MAX_ENV + 1];
    char *before[MAX_WORDS + 1], *after[MAX_WORDS + 1];
    int argc, envc, beforec, afterc;
    int random;
    pid_t launcher;
    int go, result; /* pipe ends of the driver */
};

struct sample {
    double ms, user_ms, sys_ms;
    long rss_kb;
    int rc;
    char out[2048], err[512];
};

static __attribute__((noreturn, format(printf, 1, 2))) void die(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("timeit: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    exit(2);
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void idle(double ms)
{
    struct timespec t = { (time_t)(ms / 1e3), (long)(ms * 1e6) % 1000000000L };
    while (nanosleep(&t, &t) < 0 && errno == EINTR)
        ;
}

static int read_cases(struct bench_case *cases)
{
    char *line = NULL;
    size_t cap = 0;
    int n = 0;
    ssize_t len;

    while ((len = getline(&line, &cap, stdin)) > 0) {
        if (line[len - 1] == '\n')
            line[len - 1] = 0;
        char *value = strchr(line, ' ');
        if (!value)
            die("line without a value: '%s'", line);
        *value++ = 0;
        struct bench_case *c = n ? &cases[n - 1] : NULL;
        if (strcmp(line, "case") == 0 && n < MAX_CASES) {
            cases[n++] = (struct bench_case){ .name = strdup(value), .uid = -1, .gid = -1 };
        } else if (!c) {
            die("'%s' before the first case", line);
        } else if (strcmp(line, "uid") == 0) {
            c->uid = atol(value);
        } else if (strcmp(line, "gid") == 0) {
            c->gid = atol(value);
        } else if (strcmp(line, "cwd") == 0) {
            c->cwd = strdup(value);
        } else if (strcmp(line, "umount") == 0) {
            c->umount = strdup(value);
        } else if (strcmp(line, "env") == 0 && c->envc < MAX_ENV) {
            c->envp[c->envc++] = strdup(value);
        } else if (strcmp(line, "arg") == 0 && c->argc < MAX_WORDS) {
            c->argv[c->argc++] = strdup(value);
        } else if (strcmp(line, "before") == 0 && c->beforec < MAX_WORDS) {
            c->before[c->beforec++] = strdup(value);
        } else if (strcmp(line, "after") == 0 && c->afterc < MAX_WORDS) {
            c->after[c->afterc++] = strdup(value);
        } else if (strcmp(line, "random") == 0) {
            c->random = 1;
        } else {
            die("unknown or too many: '%s'", line);
        }
    }
    free(line);
    return n;
}

/* The launcher: what it takes on here is not in any sample. */
static void become(const struct bench_case *c)
{
    if (c->umount) {
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            umount2(c->umount, MNT_DETACH) < 0)
            die("%s: hide '%s': %s", c->name, c->umount, strerror(errno));
    }
    gid_t gid = (gid_t)c->gid;
    if (c->gid >= 0 && (setgroups(1, &gid) < 0 || setresgid(gid, gid, gid) < 0))
        die("%s: setgid: %s", c->name, strerror(errno));
    uid_t uid = (uid_t)c->uid;
    if (c->uid >= 0 && setresuid(uid, uid, uid) < 0)
        die("%s: setuid: %s", c->name, strerror(errno));
    if (c->cwd && chdir(c->cwd) < 0)
        die("%s: chdir '%s': %s", c->name, c->cwd, strerror(errno));
}

static void take_output(int fd, char *buf, size_t size)
{
    size_t n = 0;
    ssize_t got;
    while (n < size - 1 && (got = read(fd, buf + n, size - 1 - n)) > 0)
        n += (size_t)got;
    buf[n] = 0;
    close(fd);
}

/* The words with what was drawn in them. What it returns lives until the next call with the same room. */
static char **filled(char *const *words, const struct draw *d, char room[][256], char **ret)
{
    const struct {
        const char *mark, *text;
    } marks[] = { { "@A@", d->arg }, { "@E@", d->env }, { "@S@", d->status_text } };
    int n = 0;

    for (; words[n]; n++) {
        ret[n] = words[n];
        for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
            const char *at = strstr(words[n], marks[i].mark);
            if (!at)
                continue;
            snprintf(room[n], sizeof room[n], "%.*s%s%s", (int)(at - words[n]), words[n],
                     marks[i].text, at + strlen(marks[i].mark));
            ret[n] = room[n];
        }
    }
    ret[n] = NULL;
    return ret;
}

struct streams {
    int in[2], out[2], err[2];
    posix_spawn_file_actions_t fa;
};

static void open_streams(struct streams *s)
{
    if (pipe2(s->in, O_CLOEXEC) < 0 || pipe2(s->out, O_CLOEXEC | O_NONBLOCK) < 0 ||
        pipe2(s->err, O_CLOEXEC | O_NONBLOCK) < 0)
        die("pipe: %s", strerror(errno));
    /* Only the launcher's ends are non-blocking: the flag sits on the open file. */
    fcntl(s->out[1], F_SETFL, 0);
    fcntl(s->err[1], F_SETFL, 0);
    /* What is printed is read when the clock has stopped: it must fit, the list of 1,000 sandboxes too. */
    if (fcntl(s->out[0], F_SETPIPE_SZ, OUT_ROOM) < 0)
        die("a pipe of %d bytes: %s", OUT_ROOM, strerror(errno));
    posix_spawn_file_actions_init(&s->fa);
    /* An empty pipe, not /dev/null: OCI runtimes chown their stdio to the container's user. */
    posix_spawn_file_actions_adddup2(&s->fa, s->in[0], 0);
    posix_spawn_file_actions_adddup2(&s->fa, s->out[1], 1);
    posix_spawn_file_actions_adddup2(&s->fa, s->err[1], 2);
}

static void close_streams(struct streams *s, struct sample *ret)
{
    posix_spawn_file_actions_destroy(&s->fa);
    close(s->in[0]);
    close(s->out[1]);
    close(s->err[1]);
    take_output(s->out[0], ret->out, sizeof(ret->out));
    take_output(s->err[0], ret->err, sizeof(ret->err));
}

static void run_one(char **argv, char **envp, const struct draw *d, struct sample *ret)
{
    int status = 0;
    struct rusage ru = { 0 };
    struct streams s;
    pid_t pid;

    memset(ret, 0, sizeof(*ret));
    open_streams(&s);
    if (d && write(s.in[1], d->in, d->in_len) != (ssize_t)d->in_len)
        die("stdin of '%s': %s", argv[0], strerror(errno));
    close(s.in[1]);

    double t0 = now_ms();
    int rc = posix_spawn(&pid, argv[0], &s.fa, NULL, argv, envp);
    if (rc == 0)
        while (wait4(pid, &status, 0, &ru) < 0 && errno == EINTR)
            ;
    ret->ms = now_ms() - t0;

    close_streams(&s, ret);
    if (rc != 0)
        snprintf(ret->err, sizeof(ret->err), "%s: %s", argv[0], strerror(rc));
    ret->rc = rc ? 127 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    ret->rss_kb = ru.ru_maxrss;
    ret->user_ms = ru.ru_utime.tv_sec * 1e3 + ru.ru_utime.tv_usec / 1e3;
    ret->sys_ms = ru.ru_stime.tv_sec * 1e3 + ru.ru_stime.tv_usec / 1e3;
}

/* The commands of `before` or `after`; the first one that fails is in *ret. */
static int run_around(struct bench_case *c, char **words, const struct draw *d, struct sample *ret)
{
    static char room[MAX_WORDS][256];
    char *argv[MAX_WORDS + 1], *part[MAX_WORDS + 1];
    struct sample s;
    int n = 0;

    filled(words, d, room, argv);
    for (char **w = argv;; w++) {
        if (*w && strcmp(*w, ";") != 0) {
            part[n++] = *w;
            continue;
        }
        part[n] = NULL;
        if (n) {
            run_one(part, c->envp, NULL, &s);
            if (s.rc) {
                *ret = s;
                return -1;
            }
        }
        n = 0;
        if (!*w)
            return 0;
    }
}

static void take_sample(struct bench_case *c, struct sample *s)
{
    static char words[MAX_WORDS][256], vars[MAX_ENV][256];
    char *argv[MAX_WORDS + 1], *envp[MAX_ENV + 1];
    struct draw d;

    if (draw_new(&d) < 0)
        die("no random bytes: %s", strerror(errno));
    if (run_around(c, c->before, &d, s) < 0)
        return;
    run_one(filled(c->argv, &d, words, argv), filled(c->envp, &d, vars, envp),
            c->random ? &d : NULL, s);
    if (c->random && (s->rc != d.status || strcmp(s->out, d.expected) != 0)) {
        size_t n = strlen(s->err);
        snprintf(s->err + n, sizeof(s->err) - n, " expected %d '%.100s'", d.status, d.expected);
        s->rc = 255;
    } else if (c->random) {
        s->rc = 0;
    }
    if (!s->rc)
        run_around(c, c->after, &d, s);
}

static void start_launcher(struct bench_case *c)
{
    int go[2], result[2];
    if (pipe2(go, O_CLOEXEC) < 0 || pipe2(result, O_CLOEXEC) < 0)
        die("pipe: %s", strerror(errno));
    c->launcher = fork();
    if (c->launcher < 0)
        die("fork: %s", strerror(errno));
    if (c->launcher > 0) {
        close(go[0]);
        close(result[1]);
        c->go = go[1];
        c->result = result[0];
        return;
    }
    setpgid(0, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* monitors that outlive their sample end here */
    close(go[1]);
    become(c);
    char byte;
    struct sample s;
    while (read(go[0], &byte, 1) == 1) {
        take_sample(c, &s);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        if (write(result[1], &s, sizeof(s)) != (ssize_t)sizeof(s))
            break;
    }
    _exit(0);
}

static void get_sample(struct bench_case *c, struct sample *s)
{
    size_t n = 0;
    if (write(c->go, "g", 1) != 1)
        die("%s: launcher is gone", c->name);
    while (n < sizeof(*s)) {
        struct pollfd p = { .fd = c->result, .events = POLLIN };
        if (poll(&p, 1, SAMPLE_TIMEOUT_MS) <= 0) {
            kill(-c->launcher, SIGKILL);
            die("%s: no end after %d s", c->name, SAMPLE_TIMEOUT_MS / 1000);
        }
        ssize_t got = read(c->result, (char *)s + n, sizeof(*s) - n);
        if (got <= 0)
            die("%s: launcher is gone", c->name);
        n += (size_t)got;
    }
}

static void print_string(const char *key, const char *s)
{
    printf(",\"%s\":\"", key);
    for (; *s; s++) {
        unsigned char ch = (unsigned char)*s;
        if (ch == '"' || ch == '\\')
            printf("\\%c", ch);
        else if (ch < 0x20 || ch > 0x7e)
            printf("\\u%04x", ch);
        else
            putchar(ch);
    }
    putchar('"');
}

static void shuffle(int *order, int n, uint64_t *state)
{
    for (int i = n - 1; i > 0; i--) {
        *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
        int j = (int)((*state >> 33) % (uint64_t)(i + 1));
        int t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
}

int main(int argc, char **argv)
{
    static struct bench_case cases[MAX_CASES];
    int order[MAX_CASES], rounds = 20, warm = 2, opt;
    double gap = 10;
    uint64_t seed = 1;

    while ((opt = getopt(argc, argv, "n:g:w:s:")) != -1) {
        if (opt == 'n')
            rounds = atoi(optarg);
        else if (opt == 'g')
            gap = atof(optarg);
        else if (opt == 'w')
            warm = atoi(optarg);
        else if (opt == 's')
            seed = strtoull(optarg, NULL, 10);
        else
            die("usage: timeit [-n rounds] [-g gap ms] [-w warm-up rounds] [-s seed] <cases");
    }
    int n = read_cases(cases);
    for (int i = 0; i < n; i++) {
        if (!cases[i].argc)
            die("case '%s' has no command", cases[i].name);
        order[i] = i;
    }
    fflush(stdout);
    for (int i = 0; i < n; i++)
        start_launcher(&cases[i]);
    for (int r = -warm; r < rounds; r++) {
        shuffle(order, n, &seed);
        for (int i = 0; i < n; i++) {
            struct bench_case *c = &cases[order[i]];
            struct sample s;
            idle(gap);
            get_sample(c, &s);
            printf("{\"case\":\"%s\",\"round\":%d,\"ms\":%.4f,\"user_ms\":%.3f,\"sys_ms\":%.3f,"
                   "\"rss_kb\":%ld,"
                   "\"rc\":%d",
                   c->name, r, s.ms, s.user_ms, s.sys_ms, s.rss_kb, s.rc);
            print_string("out", s.out);
            print_string("err", s.err);
            puts("}");
        }
    }
    /* A launcher holds copies of the pipe ends of those before it: close all, then wait. */
    for (int i = 0; i < n; i++)
        close(cases[i].go);
    for (int i = 0; i < n; i++)
        waitpid(cases[i].launcher, NULL, 0);
    return 0;
}
