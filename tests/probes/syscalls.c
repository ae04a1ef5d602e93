/* syscalls: asks for every system call a sandbox must not have; prints the ones that answer with
 * anything but "not permitted" or "not implemented". */
#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct {
    const char *name;
    long nr;
} calls[] = {
    { "io_uring_setup", SYS_io_uring_setup },
    { "io_uring_enter", SYS_io_uring_enter },
    { "io_uring_register", SYS_io_uring_register },
    { "bpf", SYS_bpf },
    { "userfaultfd", SYS_userfaultfd },
    { "add_key", SYS_add_key },
    { "request_key", SYS_request_key },
    { "keyctl", SYS_keyctl },
    { "perf_event_open", SYS_perf_event_open },
    { "kexec_load", SYS_kexec_load },
    { "init_module", SYS_init_module },
    { "finit_module", SYS_finit_module },
    { "delete_module", SYS_delete_module },
    { "open_by_handle_at", SYS_open_by_handle_at },
    { "fsopen", SYS_fsopen },
    { "fsconfig", SYS_fsconfig },
    { "fsmount", SYS_fsmount },
    { "fspick", SYS_fspick },
    { "mount_setattr", SYS_mount_setattr },
    { "open_tree", SYS_open_tree },
    { "move_mount", SYS_move_mount },
    { "setns", SYS_setns },
    { "pivot_root", SYS_pivot_root },
    { "reboot", SYS_reboot },
    { "syslog", SYS_syslog },
    { "mount", SYS_mount },
    { "umount2", SYS_umount2 },
    { "unshare", SYS_unshare },
    { "process_vm_readv", SYS_process_vm_readv },
    { "process_vm_writev", SYS_process_vm_writev },
    { "swapon", SYS_swapon },
    { "swapoff", SYS_swapoff },
    { "acct", SYS_acct },
    { "quotactl", SYS_quotactl },
    { "settimeofday", SYS_settimeofday },
    { "clone3", SYS_clone3 },
    { "kexec_file_load", SYS_kexec_file_load },
    { "lookup_dcookie", SYS_lookup_dcookie },
    { "move_pages", SYS_move_pages },
};

static void verdict(const char *name, long rc)
{
    if (rc != -1 || (errno != EPERM && errno != ENOSYS))
        printf("OPEN %s %s\n", name, rc == -1 ? strerror(errno) : "works");
}

/* Runs f in a child: 0 = it survived. */
static int child(void (*f)(void))
{
    int st = 1;
    pid_t pid = fork();
    if (pid == 0) {
        f();
        _exit(0);
    }
    return pid > 0 && waitpid(pid, &st, 0) == pid ? st : 1;
}

#ifdef __x86_64__
static void abi_i386(void)
{
    long rc = 20; /* getpid of i386 */
    __asm__ volatile("int $0x80" : "+a"(rc) : : "memory", "r8", "r9", "r10", "r11");
    if (rc < 0)
        _exit(1); /* refused is as good as killed */
}

static void abi_x32(void)
{
    if (syscall(0x40000000 | SYS_getpid) < 0)
        _exit(1);
}
#endif

int main(void)
{
    static const struct {
        const char *name;
        unsigned long flag;
    } news[] = { { "NEWUSER", CLONE_NEWUSER },    { "NEWNS", CLONE_NEWNS },
                 { "NEWNET", CLONE_NEWNET },      { "NEWPID", CLONE_NEWPID },
                 { "NEWIPC", CLONE_NEWIPC },      { "NEWUTS", CLONE_NEWUTS },
                 { "NEWCGROUP", CLONE_NEWCGROUP } };

    puts("STARTED");
    fflush(stdout);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        verdict(calls[i].name, syscall(calls[i].nr, -1, 0, 0, 0, 0));
    for (size_t i = 0; i < sizeof news / sizeof *news; i++) {
        char name[32];
        long rc = syscall(SYS_clone, news[i].flag | SIGCHLD, 0, 0, 0, 0);
        if (rc == 0)
            _exit(0);
        int saved = errno;
        if (rc > 0)
            waitpid((pid_t)rc, NULL, 0);
        errno = saved;
        snprintf(name, sizeof name, "clone(%s)", news[i].name);
        verdict(name, rc);
    }
    verdict("socket(AF_ALG)", socket(38, SOCK_SEQPACKET, 0));
    verdict("socket(AF_VSOCK)", socket(40, SOCK_STREAM, 0));
    struct rlimit lim = { 0, 0 };
    if (prlimit(1, RLIMIT_CORE, NULL, &lim) == 0)
        verdict("prlimit64(1, new)", prlimit(1, RLIMIT_CORE, &lim, NULL));
    /* with the values PID 1 has already: the probe changes nothing wherever it is run */
    verdict("setpriority(1)", setpriority(PRIO_PROCESS, 1, getpriority(PRIO_PROCESS, 1)));
    struct sched_param sp = { 0 };
    verdict("sched_setscheduler(1)", sched_setscheduler(1, sched_getscheduler(1), &sp));
#ifdef __x86_64__
    if (child(abi_i386) == 0)
        puts("OPEN the i386 ABI");
    if (child(abi_x32) == 0)
        puts("OPEN the x32 ABI");
#endif
    puts("DONE");
    return 0;
}
