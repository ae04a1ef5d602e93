/* What a program may rely on when it uses libpetri; run by tests/cli/test_lib.py with a running sandbox.
 * Prints one line per check that failed. */
#include <dirent.h>
#include <errno.h>
#include <petri.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static struct petri_error e = PETRI_ERROR_INIT;
static int failures;

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            printf("%s:%d: %s (%s: %s)\n", __FILE__, __LINE__, #cond, e.code, e.message);          \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)
#define ARGV(...) ((const char *const[]){ __VA_ARGS__, NULL })

static int count_dir(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void run(struct petri_sandbox *s, const char *const *argv, struct petri_exec_options *o,
                struct petri_result *r)
{
    o->argv = argv;
    *r = (struct petri_result)PETRI_RESULT_INIT;
    CHECK(petri_exec(s, o, r, &e) == 0);
}

static void check_simple(struct petri_sandbox *s)
{
    struct petri_exec_options o = PETRI_EXEC_OPTIONS_INIT;
    struct petri_result r;
    size_t big = 3 << 20;
    char *input = malloc(big);

    memset(input, 'x', big);
    o.env = ARGV("A=b");
    run(s, ARGV("sh", "-c", "echo $A; echo err >&2; exit 3"), &o, &r);
    CHECK(r.status == 3 && r.exit_code == 3 && !strcmp(r.out, "b\n") && !strcmp(r.err, "err\n"));
    petri_result_free(&r);

    o.input = input;
    o.input_len = big;
    run(s, ARGV("wc", "-c"), &o, &r);
    CHECK(atol(r.out) == (long)big);
    petri_result_free(&r);
    /* nobody reads it: no SIGPIPE, no error */
    run(s, ARGV("true"), &o, &r);
    CHECK(r.status == 0);
    petri_result_free(&r);
    o.input = NULL;
    o.input_len = 0;

    o.max_output = 1000;
    run(s, ARGV("sh", "-c", "yes | head -c 100000"), &o, &r);
    CHECK(r.out_len == 1000 && r.out_truncated && !r.err_truncated);
    petri_result_free(&r);

    o.timeout_ms = 200;
    run(s, ARGV("sleep", "1000"), &o, &r);
    CHECK(r.timed_out && r.status == 124 && r.signal == SIGKILL && r.exit_code == -1);
    petri_result_free(&r);
    o.timeout_ms = 0;

    run(s, ARGV("sh", "-c", "sleep 1000 & echo said"), &o, &r);
    CHECK(r.held_open && !strcmp(r.out, "said\n") && r.status == 0);
    petri_result_free(&r);

    o.argv = ARGV("no-such-program");
    r = (struct petri_result)PETRI_RESULT_INIT;
    CHECK(petri_exec(s, &o, &r, &e) == -1 && r.status == 127 && !strcmp(e.code, "not_found"));
    petri_result_free(&r);
    o.argv = ARGV("true");
    o.env = ARGV("nonsense");
    CHECK(petri_exec(s, &o, &r, NULL) == -1);
    free(input);
}

/* Waits for the next event, at most a minute. */
static int next(struct petri_exec *x, struct petri_event *ev)
{
    int rc;
    while ((rc = petri_exec_next(x, ev, &e)) == 0) {
        struct pollfd p = { .fd = petri_exec_fd(x, PETRI_CONTROL), .events = POLLIN };
        if (poll(&p, 1, 60000) <= 0)
            return -1;
    }
    return rc;
}

static int read_some(int fd, char *buf, size_t n)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    return poll(&p, 1, 60000) > 0 ? (int)read(fd, buf, n) : -1;
}

static void check_steps(struct petri_sandbox *s)
{
    struct petri_exec_options o = PETRI_EXEC_OPTIONS_INIT;
    struct petri_event ev = PETRI_EVENT_INIT;
    struct petri_exec *x = NULL;
    char buf[256] = "";
    int in;

    o.argv = ARGV("sh", "-c",
                  "trap 'exit 9' TERM; while read l; do echo \"<$l>\"; done; sleep 1000 & wait");
    CHECK(petri_exec_start(s, &o, &x, &e) == 0);
    CHECK(next(x, &ev) == 1 && ev.type == PETRI_STARTED);
    in = petri_exec_take_fd(x, PETRI_STDIN);
    CHECK(in >= 0 && petri_exec_fd(x, PETRI_STDIN) == -1 && petri_exec_fd(x, PETRI_TTY) == -1);
    CHECK(write(in, "line\n", 5) == 5);
    CHECK(read_some(petri_exec_fd(x, PETRI_STDOUT), buf, sizeof buf) == 7 &&
          !memcmp(buf, "<line>\n", 7));
    close(in);
    CHECK(petri_exec_next(x, &ev, &e) == 0);
    CHECK(petri_exec_signal(x, SIGTERM, &e) == 0);
    CHECK(next(x, &ev) == 1 && ev.type == PETRI_EXIT && ev.status == 9 && ev.exit_code == 9);
    CHECK(petri_exec_next(x, &ev, &e) == 0 && petri_exec_signal(x, SIGTERM, &e) == -1);
    petri_exec_free(x);

    o.argv = ARGV("/etc/hostname");
    CHECK(petri_exec_start(s, &o, &x, &e) == 0);
    CHECK(next(x, &ev) == 1 && ev.type == PETRI_FAILED && ev.status == 126 &&
          !strcmp(e.code, "invalid"));
    petri_exec_free(x);

    o.argv = ARGV("sh", "-c", "stty size; read l");
    o.tty = 1;
    o.rows = 33;
    o.cols = 44;
    CHECK(petri_exec_start(s, &o, &x, &e) == 0);
    CHECK(next(x, &ev) == 1 && ev.type == PETRI_STARTED && petri_exec_fd(x, PETRI_STDOUT) == -1);
    memset(buf, 0, sizeof buf);
    CHECK(read_some(petri_exec_fd(x, PETRI_TTY), buf, sizeof buf - 1) > 0 && strstr(buf, "33 44"));
    CHECK(write(petri_exec_fd(x, PETRI_TTY), "\n", 1) == 1);
    CHECK(next(x, &ev) == 1 && ev.type == PETRI_EXIT && ev.status == 0);
    petri_exec_free(x);
}

static void check_files(struct petri_sandbox *s)
{
    struct petri_stat st = PETRI_STAT_INIT;
    struct petri_file *f = NULL;
    struct petri_dir *d = NULL;
    char *text = NULL, *target = NULL;
    size_t n = 0;

    CHECK(petri_fs_mkdir(s, "lib", 0, 0, &e) == 0);
    CHECK(petri_fs_write(s, "lib/a", "a\0b", 3, 0600, 0, &e) == 0);
    CHECK(petri_fs_read(s, "lib/a", 0, &text, &n, &e) == 0 && n == 3 && !memcmp(text, "a\0b", 4));
    free(text);
    CHECK(petri_fs_read(s, "lib/a", 2, &text, &n, &e) == -1 && !strcmp(e.code, "limit"));
    CHECK(petri_fs_read(s, "lib/a", 3, &text, &n, &e) == 0 && n == 3);
    free(text);
    CHECK(petri_fs_stat(s, "lib/a", 0, &st, &target, &e) == 0 && st.bytes == 3 &&
          (st.mode & 0777) == 0600 && !target);
    CHECK(petri_fs_create(s, "lib/b", 0, PETRI_FS_EXCLUSIVE, &f, &e) == 0);
    CHECK(write(petri_file_fd(f), "b", 1) == 1 &&
          petri_fs_stat(s, "lib/b", 0, &st, NULL, &e) == -1);
    CHECK(petri_file_commit(f, &e) == 0 && petri_fs_stat(s, "lib/b", 0, &st, NULL, &e) == 0);
    petri_file_free(f);
    CHECK(petri_fs_create(s, "lib/c", 0, 0, &f, &e) == 0);
    petri_file_free(f);
    CHECK(petri_fs_mv(s, "lib/b", "lib/z", &e) == 0);
    CHECK(petri_fs_ls(s, "lib", &d, &e) == 0);
    CHECK(!strcmp(petri_dir_next(d, &st, NULL), "a") && st.bytes == 3);
    for (const char *name; (name = petri_dir_next(d, &st, NULL));)
        CHECK(!strcmp(name, "z") || !strncmp(name, ".petri", 6));
    petri_dir_free(d);
    CHECK(petri_fs_rm(s, "lib", 0, &e) == -1);
    CHECK(petri_fs_rm(s, "lib", PETRI_FS_RECURSIVE, &e) == 0);
    CHECK(petri_fs_stat(s, "lib", 0, &st, NULL, &e) == -1 && !strcmp(e.code, "not_found") &&
          e.sys == ENOENT);
}

/* The connection for files is kept; petri-init is another one after a restart. */
static void check_restart(struct petri_sandbox *s)
{
    char *text = NULL;
    size_t n;

    CHECK(petri_fs_read(s, "README", 0, &text, &n, &e) == 0);
    free(text);
    CHECK(petri_stop(s, NULL, NULL, &e) == 0);
    CHECK(petri_fs_read(s, "README", 0, &text, &n, &e) == -1 && !strcmp(e.code, "stopped"));
    CHECK(petri_start(s, NULL, &text, &e) == 0 && strstr(text, petri_id(s)));
    free(text);
    CHECK(petri_fs_read(s, "README", 0, &text, &n, &e) == 0);
    free(text);
    CHECK(petri_restart(s, NULL, NULL, &e) == 0);
    CHECK(petri_fs_read(s, "README", 0, &text, &n, &e) == 0);
    free(text);
}

static void check_calls(struct petri_client *c, struct petri_sandbox *s)
{
    struct petri_error small = { .size = offsetof(struct petri_error, sys) };
    char *text = NULL;

    CHECK(petri_call(c, ARGV("ls"), &text, &e) == 0 && strstr(text, petri_id(s)));
    free(text);
    text = NULL;
    CHECK(petri_call(c, ARGV("stop", "nobody"), &text, &e) == -1 && !strcmp(e.code, "not_found"));
    free(text);
    CHECK(petri_control(s, "{\"op\":\"status\"}", 60000, &text, &e) == 0 && text[0] == '{');
    free(text);
    CHECK(petri_control(s, "{\"op\":\"nonsense\"}", 60000, &text, &e) == -1);
    CHECK(petri_control(s, "a\nb", 0, &text, &e) == -1 && !strcmp(e.code, "invalid"));
    /* a caller built against an older header gets what it knows and not a byte more */
    small.message[0] = '#';
    CHECK(petri_open(c, "../x", NULL, &s, &small) == -1 && !strcmp(small.code, "invalid") &&
          small.message[0] == '#');
}

int main(int argc, char **argv)
{
    struct petri_client *c = NULL;
    struct petri_sandbox *s = NULL;
    struct sigaction before[65], after;
    sigset_t mask_before, mask_after;
    int fds = count_dir("/proc/self/fd");

    sigprocmask(SIG_SETMASK, NULL, &mask_before);
    for (int i = 1; i < 65; i++)
        sigaction(i, NULL, &before[i]);
    CHECK(petri_client_new(NULL, &c, &e) == 0);
    if (petri_open(c, argc > 1 ? argv[1] : NULL, NULL, &s, &e) < 0) {
        printf("%s: %s\n", e.code, e.message);
        return 1;
    }
    if (argc > 2) { /* one command, and no more */
        struct petri_exec_options o = PETRI_EXEC_OPTIONS_INIT;
        struct petri_result r = PETRI_RESULT_INIT;
        o.argv = ARGV(argv[2]);
        CHECK(petri_exec(s, &o, &r, &e) == 0);
        return r.status;
    }
    check_simple(s);
    check_steps(s);
    check_files(s);
    check_calls(c, s);
    check_restart(s);
    CHECK(count_dir("/proc/self/task") == 3); /* one thread, ".", ".." */
    petri_close(s);
    petri_client_free(c);
    CHECK(count_dir("/proc/self/fd") == fds);
    sigprocmask(SIG_SETMASK, NULL, &mask_after);
    CHECK(!memcmp(&mask_before, &mask_after, sizeof mask_after));
    for (int i = 1; i < 65; i++)
        CHECK(sigaction(i, NULL, &after) < 0 || after.sa_handler == before[i].sa_handler);
    return failures != 0;
}
