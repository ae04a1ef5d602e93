/* tests/bench/client.c - a long-lived client of libpetri: what an exec and a file read cost it.
 *
 * client PROJECT ROUNDS WARM-UP: the project's own sandbox must run. Each round does, in an order drawn
 * anew and after an idle gap: `exec` (petri_exec of ./probe in the sandbox), `host` (fork, exec and wait
 * of the same program here, with the same pipes), `read` (petri_fs_read of 4 KiB) and `stat`. Arguments,
 * environment, stdin, exit status and the file's content are drawn for each sample and checked.
 *
 * Prints one JSON object per sample, as timeit does.
 * Uses:  libpetri, and nothing of petri's but its header.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "draw.h"
#include "petri.h"

enum { FILE_SIZE = 4096, GAP_MS = 5 };

struct target {
    struct petri_sandbox *sandbox;
    const char *probe; /* on the host */
    char text[2048];   /* what is wrong */
};

static __attribute__((noreturn, format(printf, 1, 2))) void die(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("client: ", stderr);
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

static int wrong(struct target *t, const char *fmt, const char *text)
{
    snprintf(t->text, sizeof t->text, fmt, text ? text : "");
    return -1;
}

static double run_exec(struct target *t, const struct draw *d)
{
    char var[64];
    const char *const argv[] = { "./probe", "echo", d->arg, d->status_text, NULL };
    const char *const env[] = { var, NULL };
    struct petri_exec_options o = PETRI_EXEC_OPTIONS_INIT;
    struct petri_result r = PETRI_RESULT_INIT;
    struct petri_error e = PETRI_ERROR_INIT;

    snprintf(var, sizeof var, "PROBE=%s", d->env);
    o.argv = argv;
    o.env = env;
    o.input = d->in;
    o.input_len = d->in_len;
    double t0 = now_ms();
    int rc = petri_exec(t->sandbox, &o, &r, &e);
    double ms = now_ms() - t0;
    if (rc < 0)
        wrong(t, "%s", e.message);
    else if (r.status != d->status || strcmp(r.out, d->expected) != 0)
        wrong(t, "another status or output: %s", r.out);
    petri_result_free(&r);
    return ms;
}

static void child(const char *probe, const struct draw *d, const int *in, const int *out,
                  const int *err)
{
    char var[64];
    char *const argv[] = { (char *)(uintptr_t)probe, "echo", (char *)(uintptr_t)d->arg,
                           (char *)(uintptr_t)d->status_text, NULL };
    char *const env[] = { var, NULL };

    snprintf(var, sizeof var, "PROBE=%s", d->env);
    if (dup2(in[0], 0) == 0 && dup2(out[1], 1) == 1 && dup2(err[1], 2) == 2)
        execve(probe, argv, env);
    _exit(127);
}

/* Until both streams end. */
static void collect(int out, int err, char *buf, size_t size)
{
    struct pollfd p[2] = { { .fd = out, .events = POLLIN }, { .fd = err, .events = POLLIN } };
    size_t n = 0;
    char rest[256];

    while (p[0].fd >= 0 || p[1].fd >= 0) {
        if (poll(p, 2, -1) < 0)
            die("poll: %s", strerror(errno));
        if (p[0].fd >= 0 && p[0].revents) {
            ssize_t got = read(out, buf + n, size - 1 - n);
            n += got > 0 ? (size_t)got : 0;
            p[0].fd = got > 0 ? out : -1;
        }
        if (p[1].fd >= 0 && p[1].revents)
            p[1].fd = read(err, rest, sizeof rest) > 0 ? err : -1;
    }
    buf[n] = '\0';
}

static double run_host(struct target *t, const struct draw *d)
{
    char text[512];
    int in[2], out[2], err[2], status = 0;
    double t0 = now_ms();

    if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0)
        die("pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0)
        child(t->probe, d, in, out, err);
    if (pid < 0)
        die("fork: %s", strerror(errno));
    close(in[0]);
    close(out[1]);
    close(err[1]);
    if (write(in[1], d->in, d->in_len) != (ssize_t)d->in_len)
        wrong(t, "%s", "a short write to its stdin");
    close(in[1]);
    collect(out[0], err[0], text, sizeof text);
    close(out[0]);
    close(err[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    double ms = now_ms() - t0;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != d->status || strcmp(text, d->expected) != 0)
        wrong(t, "another status or output: %s", text);
    return ms;
}

static double run_read(struct target *t, const struct draw *d)
{
    char want[FILE_SIZE], *got = NULL;
    struct petri_error e = PETRI_ERROR_INIT;
    size_t n = 0;

    for (size_t i = 0; i < sizeof want; i++)
        want[i] = d->arg[i % DRAW_TOKEN];
    if (petri_fs_write(t->sandbox, "bench-read", want, sizeof want, 0, 0, &e) < 0) {
        wrong(t, "%s", e.message);
        return 0;
    }
    double t0 = now_ms();
    int rc = petri_fs_read(t->sandbox, "bench-read", FILE_SIZE, &got, &n, &e);
    double ms = now_ms() - t0;
    if (rc < 0)
        wrong(t, "%s", e.message);
    else if (n != sizeof want || memcmp(got, want, n) != 0)
        wrong(t, "%s", "another content than was written");
    free(got);
    return ms;
}

static double run_stat(struct target *t, const struct draw *d)
{
    struct petri_stat st = PETRI_STAT_INIT;
    struct petri_error e = PETRI_ERROR_INIT;
    (void)d;
    double t0 = now_ms();
    int rc = petri_fs_stat(t->sandbox, "probe", 0, &st, NULL, &e);
    double ms = now_ms() - t0;
    if (rc < 0)
        wrong(t, "%s", e.message);
    else if (!st.bytes)
        wrong(t, "%s", "an empty probe");
    return ms;
}

static const struct {
    const char *name;
    double (*run)(struct target *t, const struct draw *d);
} cases[] = {
    { "exec", run_exec }, { "host", run_host }, { "read", run_read }, { "stat", run_stat }
};
enum { CASES = sizeof cases / sizeof *cases };

static void one_round(struct target *t, int round)
{
    unsigned char order[CASES] = { 0 };
    struct draw d;

    for (unsigned i = 0; i < CASES; i++) {
        unsigned char r;
        if (draw_new(&d) < 0)
            die("no random bytes: %s", strerror(errno));
        r = (unsigned char)d.in_len % (i + 1);
        order[i] = order[r];
        order[r] = (unsigned char)i;
    }
    for (unsigned i = 0; i < CASES; i++) {
        if (draw_new(&d) < 0)
            die("no random bytes: %s", strerror(errno));
        t->text[0] = '\0';
        poll(NULL, 0, GAP_MS);
        double ms = cases[order[i]].run(t, &d);
        for (char *c = t->text; *c; c++)
            if (*c == '"' || *c == '\\' || (unsigned char)*c < 0x20)
                *c = ' ';
        printf("{\"case\":\"%s\",\"round\":%d,\"ms\":%.4f,\"rc\":%d,\"out\":\"\",\"err\":\"%s\"}\n",
               cases[order[i]].name, round, ms, t->text[0] != '\0', t->text);
    }
}

int main(int argc, char **argv)
{
    struct petri_error e = PETRI_ERROR_INIT;
    struct petri_client *c = NULL;
    struct target t = { 0 };
    char probe[4096];

    if (argc != 4)
        die("usage: client PROJECT ROUNDS WARM-UP");
    snprintf(probe, sizeof probe, "%s/probe", argv[1]);
    t.probe = probe;
    if (petri_client_new(NULL, &c, &e) < 0 || petri_open(c, NULL, argv[1], &t.sandbox, &e) < 0)
        die("%s", e.message);
    for (int r = -atoi(argv[3]); r < atoi(argv[2]); r++) {
        fflush(stdout); /* or the child of a fork could print it again */
        one_round(&t, r);
    }
    petri_close(t.sandbox);
    petri_client_free(c);
    return 0;
}
