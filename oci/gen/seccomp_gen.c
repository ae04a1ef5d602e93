/* oci/gen/seccomp_gen.c - runs at build time: compiles the seccomp profile to BPF for this machine's
 * architecture and prints it as a C string (base64), so that no start has to compile it.
 *
 * Default: ENOSYS, so that programs fall back as on an older kernel. What a program could
 * reasonably probe for and must not have gets EPERM. Other ABIs of the machine are killed.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* clang-format off */
static const char *const allowed[] = {
    /* files */
    "access", "chdir", "chmod", "chown", "close", "close_range", "copy_file_range", "creat", "dup",
    "dup2", "dup3", "faccessat", "faccessat2", "fadvise64", "fallocate", "fchdir", "fchmod",
    "fchmodat", "fchown", "fchownat", "fcntl", "fdatasync", "fgetxattr", "flistxattr", "flock",
    "fremovexattr", "fsetxattr", "fstat", "fstatfs", "fsync", "ftruncate", "futimesat", "getcwd",
    "getdents", "getdents64", "getxattr", "ioctl", "lchown", "lgetxattr", "link", "linkat",
    "listxattr", "llistxattr", "lremovexattr", "lseek", "lsetxattr", "lstat", "mkdir", "mkdirat",
    "mknod", "mknodat", "name_to_handle_at", "newfstatat", "open", "openat", "openat2", "pipe",
    "pipe2", "pread64", "preadv", "preadv2", "pwrite64", "pwritev", "pwritev2", "read", "readahead",
    "readlink", "readlinkat", "readv", "removexattr", "rename", "renameat", "renameat2", "rmdir",
    "sendfile", "setxattr", "splice", "stat", "statfs", "statx", "symlink", "symlinkat", "sync",
    "sync_file_range", "syncfs", "tee", "truncate", "umask", "unlink", "unlinkat", "utime",
    "utimensat", "utimes", "vmsplice", "write", "writev",
    /* memory */
    "brk", "get_mempolicy", "madvise", "mbind", "membarrier", "memfd_create", "memfd_secret",
    "mincore", "mlock", "mlock2", "mlockall", "mmap", "mprotect", "mremap", "msync", "munlock",
    "munlockall", "munmap", "pkey_alloc", "pkey_free", "pkey_mprotect", "process_madvise",
    "process_mrelease", "remap_file_pages", "set_mempolicy",
    /* processes, threads, signals */
    "arch_prctl", "capget", "capset", "execve", "execveat", "exit", "exit_group", "fork",
    "futex", "futex_waitv", "get_robust_list", "get_thread_area", "getcpu", "getegid", "geteuid",
    "getgid", "getgroups", "getpgid", "getpgrp", "getpid", "getppid", "getpriority", "getresgid",
    "getresuid", "getrlimit", "getrusage", "getsid", "gettid", "getuid", "ioprio_get", "ioprio_set",
    "kcmp", "kill", "landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self",
    "modify_ldt", "pause", "pidfd_open", "pidfd_send_signal", "prctl", "ptrace",
    "restart_syscall", "rseq", "rt_sigaction", "rt_sigpending", "rt_sigprocmask",
    "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait", "rt_tgsigqueueinfo",
    "sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity", "sched_getattr",
    "sched_getparam", "sched_getscheduler", "sched_rr_get_interval", "sched_setaffinity",
    "sched_setattr", "sched_setparam", "sched_setscheduler", "sched_yield", "seccomp",
    "set_robust_list", "set_thread_area", "set_tid_address", "setfsgid", "setfsuid", "setgid",
    "setgroups", "setpgid", "setpriority", "setregid", "setresgid", "setresuid", "setreuid",
    "setsid", "setuid", "sigaltstack", "signalfd", "signalfd4", "tgkill", "tkill",
    "vfork", "wait4", "waitid", "waitpid",
    /* time */
    "alarm", "clock_getres", "clock_gettime", "clock_nanosleep", "getitimer", "gettimeofday",
    "nanosleep", "setitimer", "time", "timer_create", "timer_delete", "timer_getoverrun",
    "timer_gettime", "timer_settime", "timerfd_create", "timerfd_gettime", "timerfd_settime",
    "times",
    /* waiting */
    "epoll_create", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "epoll_wait",
    "eventfd", "eventfd2", "inotify_add_watch", "inotify_init", "inotify_init1", "inotify_rm_watch",
    "io_cancel", "io_destroy", "io_getevents", "io_pgetevents", "io_setup", "io_submit", "poll",
    "ppoll", "pselect6", "select",
    /* sockets; socket() itself is below */
    "accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "listen",
    "recvfrom", "recvmmsg", "recvmsg", "sendmmsg", "sendmsg", "sendto", "setsockopt", "shutdown",
    "socketpair",
    /* System V and POSIX ipc */
    "mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedsend", "mq_unlink",
    "msgctl", "msgget", "msgrcv", "msgsnd", "semctl", "semget", "semop", "semtimedop", "shmat",
    "shmctl", "shmdt", "shmget",
    /* the rest */
    "chroot", "getrandom", "sysinfo", "uname",
};

/* Newer than the library's tables, and harmless: fchmodat2, cachestat. */
static const int allowed_numbers[] = { 451, 452 };

static const char *const refused[] = {
    "acct", "add_key", "adjtimex", "bpf", "clock_adjtime", "clock_settime", "delete_module",
    "fanotify_init", "fanotify_mark", "finit_module", "fsconfig", "fsmount", "fsopen", "fspick",
    "init_module", "io_uring_enter", "io_uring_register", "io_uring_setup", "ioperm", "iopl",
    "kexec_file_load", "kexec_load", "keyctl", "lookup_dcookie", "migrate_pages", "mount",
    "mount_setattr", "move_mount", "move_pages", "nfsservctl", "open_by_handle_at", "open_tree",
    "perf_event_open", "pidfd_getfd", "pivot_root", "process_vm_readv", "process_vm_writev",
    "quotactl", "quotactl_fd", "reboot", "request_key", "setdomainname", "sethostname", "setns",
    "settimeofday", "swapoff", "swapon", "syslog", "umount", "umount2", "unshare", "userfaultfd",
    "uselib", "ustat", "vhangup",
};
/* clang-format on */

static void must(int rc, const char *what)
{
    if (rc < 0) {
        fprintf(stderr, "seccomp_gen: %s: error %d\n", what, rc);
        exit(1);
    }
}

/* A new limit on another process could starve PID 1, which has the same uid. RLIMIT_CORE stays what it is (1:
 * the kernel starts no dump program of the host's for a crash; with 0 it would): whoever lowers it
 * hears that all went well. */
static void limits(scmp_filter_ctx c)
{
    const uint32_t eperm = SCMP_ACT_ERRNO(EPERM), allow = SCMP_ACT_ALLOW;

    for (uint64_t r = 0; r < RLIM_NLIMITS; r++) {
        const uint32_t act = r == RLIMIT_CORE ? SCMP_ACT_ERRNO(0) : allow;
        must(seccomp_rule_add(c, act, SCMP_SYS(setrlimit), 1, SCMP_A0(SCMP_CMP_EQ, r)),
             "setrlimit");
        must(seccomp_rule_add(c, act, SCMP_SYS(prlimit64), 3, SCMP_A0(SCMP_CMP_EQ, 0),
                              SCMP_A1(SCMP_CMP_EQ, r), SCMP_A2(SCMP_CMP_NE, 0)),
             "prlimit64");
    }
    must(seccomp_rule_add(c, allow, SCMP_SYS(prlimit64), 1, SCMP_A2(SCMP_CMP_EQ, 0)), "prlimit64");
    must(seccomp_rule_add(c, eperm, SCMP_SYS(prlimit64), 2, SCMP_A0(SCMP_CMP_NE, 0),
                          SCMP_A2(SCMP_CMP_NE, 0)),
         "prlimit64");
}

static void rules(scmp_filter_ctx c)
{
    const uint32_t eperm = SCMP_ACT_ERRNO(EPERM), allow = SCMP_ACT_ALLOW;
    const uint64_t ns[] = { CLONE_NEWNS,   CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
                            CLONE_NEWUSER, CLONE_NEWPID,    CLONE_NEWNET };
    const uint64_t persona[] = { 0, 8, 0x20000, 0x20008, 0x40000, 0xffffffff };
    uint64_t all = 0;

    for (size_t i = 0; i < ARRAY_LEN(allowed); i++) {
        int nr = seccomp_syscall_resolve_name(allowed[i]);
        if (nr >= 0)
            must(seccomp_rule_add(c, allow, nr, 0), allowed[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(allowed_numbers); i++)
        must(seccomp_rule_add(c, allow, allowed_numbers[i], 0), "number");
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        int nr = seccomp_syscall_resolve_name(refused[i]);
        if (nr >= 0)
            must(seccomp_rule_add(c, eperm, nr, 0), refused[i]);
    }
    /* new namespaces; clone3 hides its flags in memory and is ENOSYS: libc falls back to clone */
    for (size_t i = 0; i < ARRAY_LEN(ns); i++) {
        all |= ns[i];
        must(seccomp_rule_add(c, eperm, SCMP_SYS(clone), 1,
                              SCMP_A0(SCMP_CMP_MASKED_EQ, ns[i], ns[i])),
             "clone");
    }
    must(seccomp_rule_add(c, allow, SCMP_SYS(clone), 1, SCMP_A0(SCMP_CMP_MASKED_EQ, all, 0)),
         "clone");
    for (int f = 0; f < 46; f++) {
        int ok = f == AF_UNIX || f == AF_INET || f == AF_INET6 || f == AF_NETLINK;
        must(seccomp_rule_add(c, ok ? allow : eperm, SCMP_SYS(socket), 1,
                              SCMP_A0(SCMP_CMP_EQ, (uint64_t)f)),
             "socket");
    }
    for (size_t i = 0; i < ARRAY_LEN(persona); i++)
        must(seccomp_rule_add(c, allow, SCMP_SYS(personality), 1, SCMP_A0(SCMP_CMP_EQ, persona[i])),
             "personality");
    limits(c);
}

/* What libseccomp can't say: comparisons of the low 32 bits, as the kernel reads an int. Runs before
 * its program. All jumps are relative, so the two parts just stand one after the other. */
static size_t prologue(struct sock_filter *f)
{
    static const struct {
        uint32_t nr;
        int arg;
        uint32_t value;
    } deny[] = {
        { __NR_sched_setattr, 0, 1 },
        { __NR_sched_setparam, 0, 1 },
        { __NR_sched_setscheduler, 0, 1 },
        { __NR_sched_setaffinity, 0, 1 },
        { __NR_ioprio_set, 1, 1 },
        { __NR_setpriority, 1, 1 },
        /* all of a user's processes, PID 1 among them where it shares the uid */
        { __NR_ioprio_set, 0, 3 },
        { __NR_setpriority, 0, PRIO_USER },
        { __NR_ioctl, 1, TIOCSTI },
        { __NR_ioctl, 1, 0x541c /* TIOCLINUX */ },
    };
    const uint32_t arch = seccomp_arch_native();
    const size_t n = ARRAY_LEN(deny);
    size_t k = 0;

    /* arch is checked again by what follows; here only: don't compare numbers of another ABI */
    f[k++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    f[k++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, arch, 0, (uint8_t)(n * 5));
    for (size_t i = 0; i < n; i++) {
        f[k++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                              offsetof(struct seccomp_data, nr));
        f[k++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, deny[i].nr, 0, 3);
        f[k++] = (struct sock_filter)BPF_STMT(
            BPF_LD | BPF_W | BPF_ABS, (uint32_t)offsetof(struct seccomp_data, args[deny[i].arg]));
        f[k++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, deny[i].value, 0, 1);
        f[k++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    }
    return k;
}

static void print_bytes(const uint8_t *p, size_t n)
{
    printf("/* generated by seccomp_gen: %zu instructions */\n", n / 8);
    printf("static const unsigned char seccomp_bpf[%zu] = {", n);
    for (size_t i = 0; i < n; i++)
        printf("%s%u,", i % 24 ? "" : "\n    ", p[i]);
    printf("\n};\n");
}

int main(void)
{
    static struct sock_filter f[4096];
    scmp_filter_ctx c = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
    int fd = memfd_create("bpf", 0);
    size_t n;
    ssize_t got;

    if (!c || fd < 0)
        return 1;
    must(seccomp_attr_set(c, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS), "badarch");
    must(seccomp_attr_set(c, SCMP_FLTATR_CTL_OPTIMIZE, 2), "optimize");
    rules(c);
    must(seccomp_export_bpf(c, fd), "export");
    n = prologue(f);
    got = pread(fd, f + n, sizeof f - n * sizeof f[0], 0);
    if (got <= 0 || got % 8 || (size_t)got == sizeof f - n * sizeof f[0])
        return 1;
    print_bytes((const uint8_t *)f, n * sizeof f[0] + (size_t)got);
    return fflush(stdout) == 0 ? 0 : 1;
}
