/* runtime/client/call.c - what petri's own programs do: started as `petri ... --json`, or asked of a
 * sandbox's keeper. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "runtime/client/client.h"

#ifndef PETRI_BINDIR
#define PETRI_BINDIR "/usr/local/bin"
#endif
enum { MAX_ANSWER = 64 << 20, MAX_TALK = 65536 };

extern char **environ;

static char *program(const struct petri_client *c)
{
    const char *own = c->program ? c->program : getenv("PETRI_PROGRAM");
    if (own && *own)
        return str_dup(own);
    return str_dup(access(PETRI_BINDIR "/petri", X_OK) == 0 ? PETRI_BINDIR "/petri" : "petri");
}

/* The environment, with PETRI_HOME where this client was given a home of its own. */
static void make_env(const struct petri_client *c, struct strv *ret)
{
    AUTOFREE char *run = path_join(c->data, "run");
    for (char **v = environ; *v; v++)
        strv_add(ret, *v);
    if (strcmp(run, c->run) == 0)
        strv_setenv(ret, "PETRI_HOME", c->data);
}

/* posix_spawn never runs code of ours in the child. */
static int spawn(const struct petri_client *c, const struct strv *argv, int out, int talk,
                 pid_t *ret)
{
    AUTOFREE char *path = program(c);
    AUTOSTRV struct strv env = { 0 };
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t attr;
    sigset_t none, all;
    int rc;

    make_env(c, &env);
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&fa, out, 1);
    posix_spawn_file_actions_adddup2(&fa, talk, 2);
#ifdef __GLIBC__
    posix_spawn_file_actions_addclosefrom_np(&fa, 3);
#endif
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    rc = posix_spawnp(ret, path, &fa, &attr, argv->v, env.v);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&fa);
    return rc;
}

/* What is there, up to `max`; false at the end. */
static bool drain(int fd, struct str *s, size_t max)
{
    char buf[16384];
    ssize_t n;

    while ((n = RETRY(read(fd, buf, sizeof buf))) > 0)
        if (s->len + (size_t)n <= max)
            str_addn(s, buf, (size_t)n);
    return n < 0 && errno == EAGAIN;
}

/* Until the program has ended; something it left running may keep the pipes open. */
static void collect(int pidfd, int fds[2], struct str *const s[2])
{
    static const size_t max[2] = { MAX_ANSWER, MAX_TALK };
    bool running = true;

    while (running) {
        struct pollfd p[3] = { { .fd = fds[0], .events = POLLIN },
                               { .fd = fds[1], .events = POLLIN },
                               { .fd = pidfd, .events = POLLIN } };
        if (pidfd < 0 && fds[0] < 0 && fds[1] < 0)
            return;
        if (poll(p, 3, -1) < 0 && errno != EINTR)
            return;
        running = !(pidfd >= 0 && p[2].revents);
        for (int i = 0; i < 2; i++)
            if (fds[i] >= 0 && (p[i].revents || !running) && !drain(fds[i], s[i], max[i]))
                close_p(&fds[i]);
    }
}

/* {"error":{"code":"X",... gives X; the sentence is what the program told people. */
static int program_error(const struct str *out, const struct str *talk, int status,
                         struct petri_error *e)
{
    static const char head[] = "{\"error\":{\"code\":\"";
    char code[16] = "failed";
    AUTOFREE char *text = str_dup(talk->p ? talk->p : "");
    char *line = text;

    if (out->p && str_starts(out->p, head)) {
        const char *w = out->p + sizeof head - 1;
        size_t n = strcspn(w, "\"");
        if (n && n < sizeof code) {
            memcpy(code, w, n);
            code[n] = '\0';
        }
    }
    for (size_t n = strlen(text); n && text[n - 1] == '\n'; n--)
        text[n - 1] = '\0';
    if (strrchr(text, '\n')) /* notes come before the reason */
        line = strrchr(text, '\n') + 1;
    if (str_starts(line, "petri: "))
        line += strlen("petri: ");
    if (!*line)
        return client_fail(e, code, "petri ended with status %d", status);
    return client_fail(e, code, "%s", line);
}

static int run_program(const struct petri_client *c, const struct strv *argv, char **ret,
                       struct petri_error *e)
{
    AUTOSTR struct str said = STR_INIT, told = STR_INIT;
    struct str *const s[2] = { &said, &told };
    int out[2], talk[2], fds[2], status = 0, rc;
    pid_t pid;

    if (pipe2(out, O_CLOEXEC) < 0)
        return client_sys(e, "a pipe");
    if (pipe2(talk, O_CLOEXEC) < 0) {
        close(out[0]);
        close(out[1]);
        return client_sys(e, "a pipe");
    }
    rc = spawn(c, argv, out[1], talk[1], &pid);
    close(out[1]);
    close(talk[1]);
    fds[0] = out[0];
    fds[1] = talk[0];
    if (rc == 0) {
        AUTOCLOSE int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        fcntl(fds[0], F_SETFL, O_NONBLOCK);
        fcntl(fds[1], F_SETFL, O_NONBLOCK);
        collect(pidfd, fds, s);
        /* a program that ignores SIGCHLD has no status to give; what was printed must do */
        if (RETRY(waitpid(pid, &status, 0)) < 0)
            status = said.p && str_starts(said.p, "{\"error\":") ? 1 << 8 : 0;
    }
    close_p(&fds[0]);
    close_p(&fds[1]);
    if (rc) {
        AUTOFREE char *path = program(c);
        errno = rc;
        return client_sys(e, "start the program '%s' (PETRI_PROGRAM names another)", path);
    }
    status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (status)
        program_error(&said, &told, status, e);
    if (ret)
        *ret = str_take(&said);
    return status ? -1 : 0;
}

/* petri VERB --json MORE... [WORD...]: options end at the first word that is none. */
static int call(const struct petri_client *c, const char *verb, const char *const *more,
                const char *sandbox, const char *word, char **ret, struct petri_error *e)
{
    AUTOSTRV struct strv argv = { 0 };
    bool json = false;

    strv_add(&argv, "petri");
    strv_add(&argv, verb);
    for (const char *const *v = more; v && *v; v++)
        json |= strcmp(*v, "--json") == 0;
    if (!json)
        strv_add(&argv, "--json");
    for (const char *const *v = more; v && *v; v++)
        strv_add(&argv, *v);
    if (sandbox)
        strv_add(&argv, sandbox);
    if (word)
        strv_add(&argv, word);
    return run_program(c, &argv, ret, e);
}

int petri_call(struct petri_client *c, const char *const *argv, char **ret, struct petri_error *e)
{
    if (!argv || !argv[0])
        return client_fail(e, "usage", "no command given");
    return call(c, argv[0], argv + 1, NULL, NULL, ret, e);
}

#define VERB(verb)                                                                                 \
    int petri_##verb(struct petri_sandbox *s, const char *const *more, char **ret,                 \
                     struct petri_error *e)                                                        \
    {                                                                                              \
        return call(s->client, #verb, more, s->id, NULL, ret, e);                                  \
    }
VERB(start)
VERB(stop)
VERB(restart)
VERB(refresh)
VERB(status)
VERB(rm)
VERB(fork)
VERB(snapshot)
VERB(diff)
VERB(promote)

int petri_rollback(struct petri_sandbox *s, const char *snapshot, char **ret, struct petri_error *e)
{
    return call(s->client, "rollback", NULL, s->id, snapshot, ret, e);
}
