#include "runtime/gateway/wall.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/fs.h"
#include "base/str.h"

enum { NOBODY = 65534 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif
#else
enum { SANITIZED = 0 };
#endif

void wall_open_files(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
        r.rlim_cur = r.rlim_max;
        setrlimit(RLIMIT_NOFILE, &r);
    }
}

/* --- who we are ------------------------------------------------------------------------------ */

static int drop_user(struct err **e)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct none[2] = { { 0 } };

    /* A root of a user namespace that has nobody is nobody outside already. */
    if (geteuid() == 0) {
        if (setgroups(0, NULL) < 0 && errno != EPERM)
            return err_sys(e, "leave all groups");
        if ((setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0) &&
            errno != EINVAL)
            return err_sys(e, "become nobody");
    }
    if (syscall(SYS_capset, &head, none) < 0)
        return err_sys(e, "drop all capabilities");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return err_sys(e, "give up privileges");
    return 0;
}

/* --- which files ----------------------------------------------------------------------------- */

/* Of a file that may be replaced at any time the directory is named. */
static void may_read(int rules, const char *path)
{
    struct landlock_path_beneath_attr a = { .allowed_access = LANDLOCK_ACCESS_FS_READ_FILE };
    AUTOCLOSE int fd = open(path, O_PATH | O_CLOEXEC);
    a.parent_fd = fd;
    if (fd >= 0)
        syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &a, 0);
}

static int drop_files(struct err **e)
{
    struct landlock_ruleset_attr attr = { 0 };
    int abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi < 1)
        return 0; /* an older kernel: what is left is the filter below, and nobody's rights */
    attr.handled_access_fs = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;
    AUTOCLOSE int rules = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
    if (rules < 0)
        return err_sys(e, "make a Landlock rule set");
    may_read(rules, "/dev/urandom"); /* the resolver's ids */
    may_read(rules, "/etc");
    /* where /etc/resolv.conf often leads */
    may_read(rules, "/run/systemd/resolve");
    may_read(rules, "/run/resolvconf");
    may_read(rules, "/run/NetworkManager");
    AUTOFREE char *real = fs_realpath("/etc/resolv.conf");
    char *slash = real ? strrchr(real, '/') : NULL;
    if (slash && slash > real) {
        *slash = 0;
        may_read(rules, real);
    }
    if (syscall(SYS_landlock_restrict_self, rules, 0) < 0)
        return err_sys(e, "enforce the Landlock rule set");
    return 0;
}

/* --- which system calls ---------------------------------------------------------------------- */

#if defined(__x86_64__)
#define OUR_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCH AUDIT_ARCH_AARCH64
#else
#error "no system call filter for this architecture"
#endif

static const int
    plain[] = {
        SYS_read,         SYS_write,          SYS_readv,         SYS_writev,
        SYS_close,        SYS_lseek,          SYS_fstat,         SYS_newfstatat,
        SYS_statx,        SYS_munmap,         SYS_mremap,        SYS_brk,
        SYS_madvise,      SYS_pipe2,          SYS_splice,        SYS_epoll_ctl,
        SYS_epoll_pwait,  SYS_accept4,        SYS_connect,       SYS_bind,
        SYS_shutdown,     SYS_getsockname,    SYS_getpeername,   SYS_setsockopt,
        SYS_getsockopt,   SYS_sendto,         SYS_recvfrom,      SYS_sendmsg,
        SYS_recvmsg,      SYS_sendmmsg,       SYS_clock_gettime, SYS_gettimeofday,
        SYS_clock_getres, SYS_getrandom,      SYS_uname,         SYS_futex,
        SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn,  SYS_restart_syscall,
        SYS_getpid,       SYS_gettid,         SYS_getuid,        SYS_geteuid,
        SYS_getgid,       SYS_getegid,        SYS_exit,          SYS_exit_group,
        SYS_sysinfo, /* qsort(3) asks how much memory there is */
#if defined(__x86_64__)
        SYS_epoll_wait,   SYS_time,           SYS_stat,          SYS_poll,
#else
        SYS_ppoll,
#endif
    };

/* A call of which one argument (its lower half) is looked at: one of `v`, or without the bits `bad`. */
static const struct {
    int nr, arg;
    uint32_t bad;
    uint32_t v[5];
    uint32_t otherwise;
} checked[] = {
    { SYS_openat, 2, .bad = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND,
      .otherwise = SECCOMP_RET_KILL_PROCESS },
    { SYS_mmap, 2, .bad = PROT_EXEC, .otherwise = SECCOMP_RET_KILL_PROCESS },
    { SYS_mprotect, 2, .bad = PROT_EXEC, .otherwise = SECCOMP_RET_KILL_PROCESS },
    { SYS_ioctl, 1, .v = { SIOCOUTQ, FIONREAD, FIONBIO, SIOCGIFINDEX },
      .otherwise = SECCOMP_RET_ERRNO | ENOTTY },
    /* no signals to others by way of a descriptor's owner */
    { SYS_fcntl, 1, .v = { F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_SETPIPE_SZ },
      .otherwise = SECCOMP_RET_ERRNO | EINVAL },
    { SYS_socket, 0, .v = { AF_INET, AF_INET6, AF_NETLINK },
      .otherwise = SECCOMP_RET_ERRNO | EAFNOSUPPORT },
};

struct program {
    struct sock_filter v[256];
    unsigned short n;
};

static void add(struct program *p, struct sock_filter f)
{
    if (p->n < ARRAY_LEN(p->v))
        p->v[p->n++] = f;
}

#define ST(code, k) ((struct sock_filter)BPF_STMT(code, k))
#define JP(code, k, yes, no) ((struct sock_filter)BPF_JUMP(code, k, yes, no))

static void add_checked(struct program *p, size_t i)
{
    unsigned char n = 0;
    while (n < ARRAY_LEN(checked[i].v) && checked[i].v[n])
        n++;
    unsigned char body = checked[i].bad ? 4 : (unsigned char)(n + 3);
    add(p, JP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)checked[i].nr, 0, body));
    add(p, ST(BPF_LD | BPF_W | BPF_ABS,
              (uint32_t)(offsetof(struct seccomp_data, args) + 8 * (size_t)checked[i].arg)));
    if (checked[i].bad)
        add(p, JP(BPF_JMP | BPF_JSET | BPF_K, checked[i].bad, 0, 1));
    for (unsigned char k = 0; k < n; k++)
        add(p, JP(BPF_JMP | BPF_JEQ | BPF_K, checked[i].v[k], (unsigned char)(n - k), 0));
    add(p, ST(BPF_RET | BPF_K, checked[i].otherwise));
    add(p, ST(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
}

/* abort() signals the process itself; as an ordinary user's it could reach all that this user runs. */
static void add_own_signals(struct program *p)
{
    add(p, JP(BPF_JMP | BPF_JEQ | BPF_K, SYS_tgkill, 0, 4));
    add(p, ST(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)));
    add(p, JP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)getpid(), 0, 1));
    add(p, ST(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    add(p, ST(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
}

static int drop_calls(struct err **e)
{
    static struct program p;
    add(&p, ST(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)));
    add(&p, JP(BPF_JMP | BPF_JEQ | BPF_K, OUR_ARCH, 1, 0));
    add(&p, ST(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
    add(&p, ST(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    for (size_t i = 0; i < ARRAY_LEN(checked); i++)
        add_checked(&p, i);
    add_own_signals(&p);
    for (size_t i = 0; i < ARRAY_LEN(plain); i++) {
        add(&p, JP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)plain[i], 0, 1));
        add(&p, ST(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    }
    add(&p, ST(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
    struct sock_fprog prog = { .len = p.n, .filter = p.v };
    if (p.n == ARRAY_LEN(p.v))
        return err_new(e, ERR_INTERNAL, "the system call filter is too long");
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0) < 0)
        return err_sys(e, "set the system call filter");
    return 0;
}

int wall_harden(struct err **e)
{
    int rc;
    if ((rc = drop_user(e)) < 0)
        return rc;
    if (SANITIZED) /* its runtime needs much more than we do */
        return 0;
    if ((rc = drop_files(e)) < 0)
        return rc;
    return drop_calls(e);
}
