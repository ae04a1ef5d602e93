/* runtime/sandbox/live_jobs.c - commands that nobody waits for: the keeper is their client, their output goes to
 * jobs/N.out in the sandbox's directory, cut at the usual limit. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "runtime/client/conn.h"
#include "runtime/init/proto.h"
#include "runtime/sandbox/events.h"
#include "runtime/sandbox/live.h"

static int open_output(struct live *l, struct job *j, struct err **e)
{
    AUTOFREE char *dir = state_dir(l->paths, l->state.id), *jobs = path_join(dir, "jobs");
    AUTOFREE char *path = str_printf("%s/%u.out", jobs, j->number);
    int rc = fs_mkdirs(jobs, 0700, e);

    if (rc < 0)
        return rc;
    /* those of earlier starts keep their numbers */
    while (fs_exists(path)) {
        free(path);
        path = str_printf("%s/%u.out", jobs, j->number = ++l->last_job);
    }
    j->file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    return j->file < 0 ? err_sys(e, "make '%s'", path) : 0;
}

static void add_strings(const struct json *list, struct str *s, uint32_t *n)
{
    for (size_t i = 0; list && i < list->n; i++)
        if (list->items[i]->type == JSON_STRING) {
            str_addn(s, list->items[i]->string, strlen(list->items[i]->string) + 1);
            ++*n;
        }
}

/* Hands the command to petri-init, as any client would. */
static int hand_over(struct live *l, struct job *j, const struct json *r, struct err **e)
{
    AUTOFREE char *dir = path_join(l->paths->run, l->state.id);
    AUTOSTR struct str s = STR_INIT, words = STR_INIT;
    struct proto_exec x = { .expect = box_expect(l->plan),
                            .uid = PROTO_SAME_ID,
                            .gid = PROTO_SAME_ID };
    const char *cwd = json_str(r, "cwd");
    int out[2], in[2], rc = 0;

    json_u64(r, "timeout_ms", &x.timeout_ms);
    cwd = cwd ? cwd : "";
    str_addn(&words, cwd, strlen(cwd) + 1);
    add_strings(json_arr(r, "argv"), &words, &x.n_argv);
    add_strings(json_arr(r, "env"), &words, &x.n_env);
    if (!x.n_argv)
        return err_new(e, ERR_INVALID, "a job needs a command");
    if (pipe2(out, O_CLOEXEC) < 0)
        return err_sys(e, "pipes for the job");
    if (pipe2(in, O_CLOEXEC) < 0) {
        close(out[0]);
        close(out[1]);
        return err_sys(e, "pipes for the job");
    }
    str_addn(&s, &x, sizeof x);
    str_addn(&s, words.p, words.len);
    const int stdio[3] = { in[0], out[1], out[1] };
    if (conn_open(dir, "sock", &j->conn) < 0 ||
        conn_send(&j->conn, PROTO_EXEC, s.p, s.len, stdio, 3) < 0)
        rc = err_sys(e, "talk to the sandbox's init");
    close(in[0]);
    close(in[1]);
    close(out[1]);
    if (rc < 0) {
        close(out[0]);
        conn_close(&j->conn);
        return rc;
    }
    (void)fcntl(out[0], F_SETFL, O_NONBLOCK);
    j->pipe = out[0];
    return 0;
}

int job_start(struct live *l, const struct json *r, unsigned *ret_number, struct err **e)
{
    struct job *j = mem_zalloc(sizeof *j);
    const struct json *argv = json_arr(r, "argv");
    size_t alive = 0;
    int rc;

    j->pipe = j->file = j->conn.fd = j->conn.passed = -1;
    j->cap = l->plan->max_output;
    for (size_t i = 0; i < l->n_jobs; i++)
        alive += !l->jobs[i]->done;
    if (alive >= LIVE_MAX_JOBS) {
        free(j);
        return err_new(e, ERR_LIMIT,
                       "%d jobs run already; petri jobs lists them, petri kill ends one",
                       LIVE_MAX_JOBS);
    }
    j->number = ++l->last_job;
    rc = open_output(l, j, e);
    if (rc == 0)
        rc = hand_over(l, j, r, e);
    if (rc < 0) {
        close_p(&j->file);
        free(j);
        return rc;
    }
    json_strings(argv, &j->argv);
    j->created = state_now();
    l->jobs = realloc(l->jobs, (l->n_jobs + 1) * sizeof(struct job *));
    if (!l->jobs)
        abort();
    l->jobs[l->n_jobs++] = j;
    *ret_number = j->number;
    return 0;
}

struct job *job_find(struct live *l, uint64_t number)
{
    for (size_t i = 0; i < l->n_jobs; i++)
        if (l->jobs[i]->number == number)
            return l->jobs[i];
    return NULL;
}

int job_signal(struct job *j, int sig, struct err **e)
{
    uint32_t s = (uint32_t)sig;
    if (j->done)
        return err_new(e, ERR_FAILED, "job %u is over (status %d)", j->number, j->status);
    if (sig == SIGKILL) {
        /* the connection's end is the end of all that the command started */
        conn_close(&j->conn);
        j->status = 128 + SIGKILL;
        return 0;
    }
    if (sig <= 0 || sig > 64)
        return err_new(e, ERR_INVALID, "no signal %d", sig);
    return conn_send(&j->conn, PROTO_SIGNAL, &s, sizeof s, NULL, 0) < 0
               ? err_sys(e, "signal job %u", j->number)
               : 0;
}

static void job_over(struct live *l, struct job *j)
{
    AUTOFREE char *dir = state_dir(l->paths, l->state.id);
    AUTOFREE char *path = str_printf("%s/jobs/%u.json", dir, j->number);
    AUTOJSONW struct jsonw w = { 0 };

    j->done = true;
    conn_close(&j->conn);
    close_p(&j->pipe);
    close_p(&j->file);
    job_json(&w, NULL, j);
    str_addc(&w.out, '\n');
    (void)fs_write_atomic(AT_FDCWD, path, w.out.p, w.out.len, 0600, NULL);
    live_job_over(l, j);
}

size_t jobs_poll(struct live *l, struct pollfd *fds)
{
    size_t n = 0;
    for (size_t i = 0; i < l->n_jobs; i++)
        if (!l->jobs[i]->done) {
            fds[n++] = (struct pollfd){ .fd = l->jobs[i]->conn.fd, .events = POLLIN };
            fds[n++] = (struct pollfd){ .fd = l->jobs[i]->pipe, .events = POLLIN };
        }
    return n;
}

static void drain(struct job *j)
{
    char buf[65536];
    ssize_t n;
    while ((n = read(j->pipe, buf, sizeof buf)) > 0) {
        size_t room = j->cap && j->written + (uint64_t)n > j->cap
                          ? (size_t)(j->cap > j->written ? j->cap - j->written : 0)
                          : (size_t)n;
        if (room)
            (void)fs_write_all(j->file, buf, room);
        j->written += (uint64_t)n;
    }
    if (n == 0)
        close_p(&j->pipe);
}

/* A word of petri-init's; true when it was the last one. */
static bool hear(struct job *j)
{
    struct frame f;
    struct proto_exit x;
    struct proto_failed bad;
    int n;

    while ((n = conn_next(&j->conn, &f)) > 0) {
        if (f.type == PROTO_STARTED) {
            j->started = true;
        } else if (f.type == PROTO_EXIT && f.len == sizeof x) {
            memcpy(&x, f.p, sizeof x);
            j->timed_out = x.timed_out;
            j->status = x.timed_out             ? 124
                        : WIFSIGNALED(x.status) ? 128 + WTERMSIG(x.status)
                                                : WEXITSTATUS(x.status);
            return true;
        } else if (f.type == PROTO_FAILED && f.len == sizeof bad) {
            memcpy(&bad, f.p, sizeof bad);
            j->status = bad.stage == STAGE_EXEC ? (bad.error == ENOENT ? 127 : 126) : 125;
            return true;
        }
    }
    if (n < 0 && !j->status)
        j->status = 128 + SIGKILL; /* the walls went down around it */
    return n < 0;
}

void jobs_serve(struct live *l, const struct pollfd *fds, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < l->n_jobs && k + 1 < n; i++) {
        struct job *j = l->jobs[i];
        if (j->done)
            continue;
        bool last = fds[k].revents && fds[k].fd == j->conn.fd && hear(j);
        if (j->conn.fd < 0)
            last = true; /* it was killed */
        if (fds[k + 1].revents || last)
            drain(j);
        k += 2;
        if (last)
            job_over(l, j);
    }
}

void job_json(struct jsonw *w, const char *key, const struct job *j)
{
    jw_obj(w, key);
    jw_strf(w, "job", "%u", j->number);
    jw_str(w, "state", j->done ? "done" : "running");
    jw_strv(w, "argv", &j->argv);
    jw_str(w, "created", j->created);
    if (j->done)
        jw_int(w, "exit_code", j->status);
    else
        jw_null(w, "exit_code");
    jw_bool(w, "timed_out", j->timed_out);
    jw_u64(w, "output_bytes", j->written);
    jw_bool(w, "truncated", j->cap && j->written > j->cap);
    jw_end_obj(w);
}

void jobs_free(struct live *l)
{
    for (size_t i = 0; i < l->n_jobs; i++) {
        if (!l->jobs[i]->done) {
            l->jobs[i]->status = 128 + SIGKILL;
            job_over(l, l->jobs[i]);
        }
        strv_free_p(&l->jobs[i]->argv);
        free(l->jobs[i]->created);
        free(l->jobs[i]);
    }
    free(l->jobs);
    l->jobs = NULL;
    l->n_jobs = 0;
}
