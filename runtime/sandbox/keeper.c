#include "runtime/sandbox/keeper.h"

#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "runtime/init/proto.h"

/* The text for a command that did not start; the status is 126 or 127 where a shell's would be. */
static void start_failed(struct keeper *k, const struct proto_failed *f)
{
    const struct plan *p = k->req->plan;
    const char *cmd = p->argv.v[0];

    k->failed = true;
    k->res->status = 125;
    if (f->stage == STAGE_EXEC && f->error == ENOENT) {
        k->res->status = 127;
        err_new(k->e, ERR_NOT_FOUND, "'%s': not found in the sandbox%s", cmd,
                strchr(cmd, '/') ? "" : " (its PATH is shown by: petri run -- printenv PATH)");
    } else if (f->stage == STAGE_EXEC) {
        k->res->status = 126;
        err_new(k->e, ERR_INVALID, "'%s': can't be executed: %s", cmd, strerror(f->error));
    } else if (f->stage == STAGE_CHDIR) {
        err_new(k->e, ERR_INVALID, "working directory '%s': %s in the sandbox", p->cwd,
                strerror(f->error));
    } else if (f->stage == STAGE_EXPECT) {
        err_new(k->e, ERR_INTERNAL,
                "the sandbox came up without a protection (bits %#x); nothing was run",
                (unsigned)f->error);
    } else {
        err_new(k->e, ERR_FAILED, "the sandbox's init failed in stage %u: %s", f->stage,
                strerror(f->error));
    }
}

static void on_exit_frame(struct keeper *k, const struct proto_exit *x)
{
    k->finished = true;
    k->res->timed_out = x->timed_out;
    k->res->cpu_ms = x->cpu_usec / 1000;
    k->res->peak_memory = x->maxrss_bytes;
    if (x->timed_out) {
        k->res->status = 124;
        k->res->exit_code = -1;
        k->res->signal = SIGKILL;
    } else if (WIFSIGNALED(x->status)) {
        k->res->signal = WTERMSIG(x->status);
        k->res->exit_code = -1;
        k->res->status = 128 + k->res->signal;
    } else {
        k->res->exit_code = k->res->status = WEXITSTATUS(x->status);
    }
}

static void send_signal(struct keeper *k, int sig)
{
    uint32_t s = (uint32_t)sig;
    if (!k->started || proto_send(k->box.control, PROTO_SIGNAL, &s, sizeof s, NULL, 0) < 0)
        k->pending_signal = sig;
}

/* One frame from petri-init. It runs beside hostile code: anything unexpected ends the sandbox. */
void keeper_on_control(struct keeper *k)
{
    struct proto_header h;
    AUTOFREE char *p = NULL;
    int fds[1], n = 0;
    pid_t pid = 0;

    if (proto_recv(k->box.control, &h, &p, fds, 1, &n, &pid) < 0) {
        close_p(&k->box.control);
        return;
    }
    if (h.type == PROTO_HELLO && k->box.init == 0 && n == 0) {
        k->box.init = pid;
    } else if (h.type == PROTO_STARTED && !k->started && n == (k->req->plan->tty ? 1 : 0)) {
        k->started = true;
        if (k->req->on_start)
            k->req->on_start(k->req);
        if (n && streams_terminal(&k->streams, fds[0]) < 0) {
            err_new(k->e, ERR_FAILED, "the sandbox handed back something that is no terminal");
            k->failed = true;
            box_end(&k->box);
        }
        if (k->pending_signal)
            send_signal(k, k->pending_signal);
    } else if (h.type == PROTO_FAILED && h.len == sizeof(struct proto_failed) && !k->started) {
        start_failed(k, (const struct proto_failed *)p);
        close_p(&k->box.control);
    } else if (h.type == PROTO_EXIT && h.len == sizeof(struct proto_exit) && !k->finished) {
        on_exit_frame(k, (const struct proto_exit *)p);
    } else {
        while (n)
            close(fds[--n]);
        k->failed = true;
        err_new(k->e, ERR_FAILED, "the sandbox's init talks nonsense; it was ended");
        box_end(&k->box);
    }
}

void keeper_on_report(struct keeper *k)
{
    char buf[1025];
    struct report r;
    ssize_t n = RETRY(recv(k->box.launcher.report, buf, sizeof buf - 1, 0));

    if (n < (ssize_t)sizeof r) {
        close_p(&k->box.launcher.report);
        return;
    }
    memcpy(&r, buf, sizeof r);
    buf[n] = '\0';
    if (r.type == REPORT_MAPS) {
        if (box_serve_maps(&k->box, k->e) < 0) {
            k->failed = true;
            box_end(&k->box);
        }
    } else if (r.type == REPORT_ERROR && !k->failed && !k->finished) {
        k->failed = true;
        err_new(k->e, (enum err_code)r.code, "the sandbox did not start: %s", buf + sizeof r);
        box_end(&k->box); /* the launcher may wait for what failed */
    } else if (r.type == REPORT_END) {
        k->res->changes = r.changes;
        k->res->has_changes = k->req->count_changes && k->req->plan->project &&
                              k->req->plan->mode == WORKSPACE_OVERLAY;
        if (r.disk_full)
            k->res->events |= EVENT_DISK;
    }
}

void keeper_on_signal(struct keeper *k)
{
    struct signalfd_siginfo si;
    while (read(k->signals, &si, sizeof si) == sizeof si) {
        int sig = (int)si.ssi_signo;
        if (sig == SIGWINCH) {
            streams_resize(&k->streams);
        } else {
            send_signal(k, sig);
            if (k->box.init == 0 && !k->failed) {
                /* nobody is there yet who could pass it on */
                k->failed = true;
                k->res->status = 128 + sig;
                err_new(k->e, ERR_FAILED, "ended by signal %d before the command ran", sig);
                box_end(&k->box);
            }
        }
    }
}

void keeper_on_timer(struct keeper *k)
{
    uint64_t n;
    (void)!read(k->timer, &n, sizeof n);
    if (!k->finished) {
        k->finished = true;
        k->res->timed_out = true;
        k->res->status = 124;
        k->res->exit_code = -1;
        k->res->signal = SIGKILL;
    }
    box_end(&k->box);
}

/* A plain directory has no limit of its own: look now and then, and end the sandbox beyond it. */
void keeper_on_watch(struct keeper *k)
{
    uint64_t n;
    (void)!read(k->watch, &n, sizeof n);
    gate_tick(&k->box.gate);
    keeper_on_gate(k);
    if (!k->finished && k->box.scratch.watched && scratch_over(&k->box.scratch)) {
        k->finished = true;
        k->res->events |= EVENT_DISK;
        k->res->signal = SIGKILL;
        k->res->status = 128 + SIGKILL;
        box_end(&k->box);
    }
}

/* Where the gateway is not replaced, the command does not go on without it. */
void keeper_on_gate(struct keeper *k)
{
    gate_serve(&k->box.gate);
    if (!k->box.gate.failed || k->failed || k->finished)
        return;
    k->failed = true;
    err_new(k->e, ERR_FAILED, "the sandbox's gateway died%s%s; the sandbox was stopped",
            k->box.gate.why ? ": " : "", k->box.gate.why ? k->box.gate.why : "");
    box_end(&k->box);
}

void keeper_on_verdict(void *arg, const struct json *line)
{
    struct keeper *k = arg;
    (void)denied_note(&k->res->denied, line);
}
