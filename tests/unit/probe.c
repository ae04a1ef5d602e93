/* Refusals from the table of probes: silent where all works, one line with the remedy where not. */
#include "tests/unit/check.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "runtime/sandbox/probe.h"

/* From here on this process can't make user namespaces. */
static void no_userns(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_NEWUSER, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = { ARRAY_LEN(code), code };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, 2, &prog) < 0) {
        perror("seccomp");
        exit(1);
    }
}

static void works(void)
{
    struct err *e = NULL;
    AUTOFREE char *remedy = probe_userns_remedy();

    CHECK(!remedy, "%s", remedy);
    CHECK(!probe_refuse("userns", &e) && !e, "nothing is wrong");
    err_new(&e, ERR_FAILED, "first");
    CHECK(!probe_refuse("proc", &e) && e && !strcmp(e->msg, "first"), "the error is left alone");
    CHECK(!probe_refuse("no such probe", &e) && !strcmp(e->msg, "first"), "unknown");
    err_free(e);
}

static void refused(void)
{
    struct err *e = NULL;
    AUTOFREE char *text = NULL, *remedy = NULL;

    no_userns();
    err_new(&e, ERR_FAILED, "first");
    CHECK(probe_refuse("userns", &e) == -ERR_UNSUPPORTED, "refused");
    text = err_text(e);
    CHECK(e->code == ERR_UNSUPPORTED && strstr(text, "user namespaces are blocked") == text, "%s",
          text);
    CHECK(strstr(text, "Nothing was run.") && !strstr(text, "first") && !strchr(text, '\n'), "%s",
          text);
    remedy = probe_userns_remedy();
    CHECK_STR(remedy, text);
    CHECK(!probe_refuse("seccomp", &e), "only what was asked for");
    err_free(e);
}

int main(void)
{
    works();
    fflush(NULL);
    pid_t pid = fork();
    if (!pid) {
        refused();
        exit(check_done());
    }
    int status = 1;
    waitpid(pid, &status, 0);
    CHECK(!status, "with a filter: status %d", status);
    return check_done();
}
