#include "runtime/change/pager.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/str.h"
#include "runtime/change/library.h"

/* A machine without less is no reason to show nothing. */
static bool have_less(void)
{
    const char *path = getenv("PATH");

    for (const char *p = path ? path : ""; *p;) {
        size_t n = strcspn(p, ":");
        AUTOFREE char *file = str_printf("%.*s/less", (int)n, p);
        if (n && access(file, X_OK) == 0)
            return true;
        p += n + (p[n] == ':');
    }
    return false;
}

static char *choose(void)
{
    const char *v = getenv("PETRI_PAGER");
    char *configured;

    if (!v)
        v = getenv("GIT_PAGER");
    if (!v)
        v = getenv("PAGER");
    if (!v && (configured = library_user_config("core.pager")))
        return configured;
    return str_dup(v ? v : have_less() ? "less" : "");
}

static _Noreturn void become(const char *command, int in)
{
    if (dup2(in, STDIN_FILENO) < 0)
        _exit(127);
    /* as git does it: quit where it fits one screen, keep colours, leave the screen as it is */
    setenv("LESS", "FRX", 0);
    setenv("LV", "-c", 0);
    signal(SIGINT, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

void pager_start(struct pager *ret)
{
    AUTOFREE char *command = NULL;
    int fds[2];
    pid_t pid;

    *ret = (struct pager){ 0 };
    if (!isatty(STDOUT_FILENO))
        return;
    command = choose();
    if (!*command || strcmp(command, "cat") == 0 || pipe2(fds, O_CLOEXEC) < 0)
        return;
    fflush(NULL);
    pid = fork();
    if (pid == 0)
        become(command, fds[0]);
    close(fds[0]);
    if (pid > 0 && dup2(fds[1], STDOUT_FILENO) >= 0) {
        ret->pid = pid;
        /* Ctrl-C is the pager's: it goes back to its prompt */
        signal(SIGINT, SIG_IGN);
    }
    close(fds[1]);
}

void pager_end(struct pager *p)
{
    int status;

    if (!p->pid)
        return;
    fflush(stdout);
    close(STDOUT_FILENO);
    (void)RETRY(waitpid(p->pid, &status, 0));
    p->pid = 0;
    /* a stdout that is closed would be the next descriptor somebody opens */
    (void)open("/dev/null", O_WRONLY | O_CLOEXEC);
}
