/* runtime/sandbox/live_promote.c - promotion.auto: the end of a sandbox brings its harmless changes into the project.
 * petri-change does it, through the journal, while the keeper holds the sandbox's lock. The sandbox keeps its
 * changes whatever becomes of it.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "runtime/sandbox/events.h"
#include "runtime/sandbox/live.h"

/* A stop must come to its end: who is asked to stop after PATIENCE takes back what it began. */
enum { PATIENCE_MS = 600000, GRACE_MS = 10000, ANSWER_MAX = 64 << 20, NAMED_MAX = 50 };

bool live_promotes(const struct live *l)
{
    static const char option[] = "promote-on-stop=";
    /* a fork is a try: only a person can say that it comes back by itself */
    bool asked = strv_has(&l->state.options, option) &&
                 !(l->state.parent && strv_has(&l->state.configured, option));
    return l->promote && asked && l->plan->mode != WORKSPACE_BIND;
}

static _Noreturn void become_change(const struct live *l, const char *helper, int out, pid_t keeper)
{
    sigset_t none;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != keeper)
        _exit(1);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    dup2(null, 0);
    dup2(out, 1);
    dup2(null, 2); /* the answer has it all */
    execl(helper, "petri-change", "promote", l->paths->data, "auto", "yes", "json", "umask=022",
          "--", l->state.id, (char *)NULL);
    _exit(127);
}

static void hear(int fd, pid_t pid, struct str *ret)
{
    uint64_t end = clock_ms(CLOCK_BOOTTIME) + PATIENCE_MS;
    int sig = SIGTERM;
    char buf[65536];
    ssize_t n = 1;

    while (n > 0 && ret->len < ANSWER_MAX) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        uint64_t now = clock_ms(CLOCK_BOOTTIME);
        if (now >= end) {
            kill(pid, sig);
            sig = SIGKILL;
            end = now + GRACE_MS;
        }
        if (poll(&p, 1, (int)(end - now)) > 0 && (n = RETRY(read(fd, buf, sizeof buf))) > 0)
            str_addn(ret, buf, (size_t)n);
    }
}

static int run_change(const struct live *l, struct json **ret, struct err **e)
{
    AUTOFREE char *helper = paths_helper("petri-change", e);
    AUTOSTR struct str text = STR_INIT;
    AUTOCLOSE int out = -1;
    pid_t keeper = getpid(), pid;
    int p[2], status = 0;

    if (!helper)
        return -ERR_FAILED;
    if (pipe2(p, O_CLOEXEC) < 0)
        return err_sys(e, "pipe");
    pid = fork();
    if (pid == 0)
        become_change(l, helper, p[1], keeper);
    close(p[1]);
    out = p[0];
    if (pid < 0)
        return err_sys(e, "start '%s'", helper);
    hear(out, pid, &text);
    if (RETRY(waitpid(pid, &status, 0)) < 0 || !WIFEXITED(status) || !text.len)
        return err_new(e, ERR_FAILED, "petri-change ended without an answer");
    return json_parse(text.p, text.len, ret, e);
}

/* Adds the paths of a list of petri-change's, at most so many in all. */
static void stays(struct jsonw *w, const struct json *list, uint64_t *n)
{
    for (size_t i = 0; list && i < list->n; i++)
        if (json_str(list->items[i], "reason") && (*n)++ < NAMED_MAX) {
            jw_obj(w, NULL);
            jw_str(w, "path", json_str(list->items[i], "path"));
            jw_str(w, "reason", json_str(list->items[i], "reason"));
            jw_end_obj(w);
        }
}

static void describe(struct jsonw *w, const struct json *j, const char *error)
{
    static const char *const lists[] = { "held", "conflicts", "skipped" };
    const struct json *files = json_arr(j, "files"), *why = json_get(j, "error");
    uint64_t n = 0, journal = 0;

    /* that there was nothing is an error for whoever asks for a promotion only */
    if (!error && why && !str_eq(json_str(j, "state"), "nothing"))
        error = json_str(why, "message");
    jw_str(w, "state", error ? "failed" : json_str(j, "state"));
    if (error)
        jw_str(w, "error", error);
    if (json_u64(j, "journal", &journal))
        jw_u64(w, "journal", journal);
    jw_u64(w, "files", files && !error ? files->n : 0);
    jw_arr(w, "stays");
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        stays(w, json_arr(j, lists[i]), &n);
    jw_end_arr(w);
    jw_u64(w, "stay", n);
}

void live_promote(struct live *l)
{
    AUTOJSON struct json *j = NULL;
    AUTOJSONW struct jsonw event = { 0 }, answer = { 0 };
    CLEANUP(err_free_p) struct err *e = NULL;
    AUTOFREE char *why = NULL;

    if (run_change(l, &j, &e) < 0)
        why = err_text(e);
    jw_members(&event);
    describe(&event, j, why);
    events_add(l->paths, "promote", &l->state, &event);
    jw_obj(&answer, NULL);
    jw_str(&answer, "state", "stopped");
    jw_obj(&answer, "promotion");
    describe(&answer, j, why);
    jw_end_obj(&answer);
    jw_end_obj(&answer);
    l->farewell = str_take(&answer.out);
}
