#include "runtime/driver/inside.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/fs.h"

static int become_root(const struct ids *ids, int up, int go, struct err **e)
{
    char c = 'M';
    if (unshare(CLONE_NEWUSER) < 0)
        return err_sys(e, "make a user namespace (see petri doctor)");
    if (RETRY(write(up, &c, 1)) != 1 || RETRY(read(go, &c, 1)) != 1)
        return err_new(e, ERR_FAILED, "no map of user ids (see petri doctor)");
    /* with a single id the kernel has setgroups forbidden; there are no groups to lose then */
    if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0 ||
        (ids->mode == IDS_SUB && syscall(SYS_setgroups, 0, NULL) < 0))
        return err_sys(e, "become root of the own namespace");
    return 0;
}

static _Noreturn void child_main(const struct ids *ids, int (*f)(void *, struct err **), void *arg,
                                 int up, int go, pid_t parent)
{
    struct err *why = NULL;
    int rc = ids->mode != IDS_ROOT ? become_root(ids, up, go, &why) : 0;

    /* only now: a change of ids forgets it */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    if (rc == 0)
        rc = f(arg, &why);
    if (rc < 0) {
        AUTOFREE char *text = err_text(why);
        (void)!write(up, text, strlen(text));
    }
    _exit(rc < 0 ? -rc : 0);
}

/* The child says 'M' when it needs its map, and at its end nothing or what went wrong. */
static int serve(const struct ids *ids, pid_t pid, int up, int go, struct str *ret_text,
                 struct err **e)
{
    char buf[256], c = 0;
    ssize_t n;
    int rc;

    if (ids->mode != IDS_ROOT && RETRY(read(up, &c, 1)) == 1) {
        if (c != 'M')
            str_addc(ret_text, c);
        else if ((rc = ids_write_outer(ids, pid, e)) < 0)
            return rc;
        else if (RETRY(write(go, "", 1)) != 1)
            return err_sys(e, "talk to the child in the namespace");
    }
    while ((n = RETRY(read(up, buf, sizeof buf))) > 0)
        str_addn(ret_text, buf, (size_t)n);
    return 0;
}

int inside_run(const struct ids *ids, int (*f)(void *arg, struct err **e), void *arg,
               struct err **e)
{
    AUTOSTR struct str text = STR_INIT;
    int up[2], go[2], status = 0, rc;
    pid_t parent = getpid(), pid;

    if (pipe2(up, O_CLOEXEC) < 0)
        return err_sys(e, "pipe");
    if (pipe2(go, O_CLOEXEC) < 0) {
        close(up[0]);
        close(up[1]);
        return err_sys(e, "pipe");
    }
    pid = fork();
    if (pid == 0) {
        close(up[0]);
        close(go[1]);
        child_main(ids, f, arg, up[1], go[0], parent);
    }
    close(up[1]);
    close(go[0]);
    rc = pid < 0 ? err_sys(e, "fork") : serve(ids, pid, up[0], go[1], &text, e);
    close(up[0]);
    close(go[1]);
    if (pid > 0 && RETRY(waitpid(pid, &status, 0)) < 0)
        status = -1;
    if (rc < 0 || status == 0)
        return rc;
    if (text.len && WIFEXITED(status) && WEXITSTATUS(status) <= ERR_INTERNAL)
        return err_new(e, (enum err_code)WEXITSTATUS(status), "%s", text.p);
    return err_new(e, ERR_FAILED, "a child of petri was ended by a signal");
}

static int remove_it(void *arg, struct err **e)
{
    return fs_remove_tree(AT_FDCWD, arg, e);
}

int inside_remove(const char *path, struct err **e)
{
    struct plan any = { .uid = 1, .gid = 1, .owner_uid = getuid(), .owner_gid = getgid() };
    CLEANUP(err_free_p) struct err *why = NULL;
    struct ids ids;

    if (geteuid() == 0)
        return fs_remove_tree(AT_FDCWD, path, e);
    if (fs_remove_tree(AT_FDCWD, path, &why) == 0)
        return 0;
    /* without a range there can't be files of others: the first reason stands */
    if (ids_plan(&any, true, &ids, NULL) == 0 && ids.mode == IDS_SUB)
        return inside_run(&ids, remove_it, (void *)(uintptr_t)path, e);
    if (e)
        *e = TAKE_PTR(why);
    return -ERR_FAILED;
}
