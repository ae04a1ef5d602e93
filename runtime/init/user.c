/* runtime/init/user.c - who commands are. Where the sandbox has many ids, petri-init has one of its own and may
 * become any other: code inside can then neither signal, stop nor limit it or a supervisor. With a
 * single id it is the user itself, and nothing here does anything.
 */
#include <errno.h>
#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/init/init.h"

enum { CAP_LAST = 63 };

/* What user 0 of a sandbox made for user 0 has. */
static const uint32_t root_caps = 1u << CAP_CHOWN | 1u << CAP_DAC_OVERRIDE | 1u << CAP_FOWNER |
                                  1u << CAP_FSETID | 1u << CAP_SETUID | 1u << CAP_SETGID;

static bool own_id(const struct proto_serve *s)
{
    return s->expect & EXPECT_OWN_ID;
}

void user_settle(const struct proto_serve *s)
{
    struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct d[2] = { 0 };

    if (!own_id(s))
        return;
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (syscall(SYS_capget, &h, d) == 0) {
        d[0].inheritable = d[1].inheritable = 0;
        syscall(SYS_capset, &h, d);
    }
}

void user_files(const struct proto_serve *s)
{
    if (!own_id(s))
        return;
    setfsgid(s->gid);
    setfsuid(s->uid);
}

int user_become(const struct proto_serve *s, uint32_t uid, uint32_t gid)
{
    struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct d[2] = { 0 };

    if (!own_id(s))
        return 0;
    if (uid == PROTO_SAME_ID)
        uid = s->uid;
    if (gid == PROTO_SAME_ID)
        gid = s->gid;
    /* nobody but petri-init has petri-init's own */
    if (uid == geteuid() || gid == getegid())
        return EPERM;
    d[0].permitted = d[0].effective = uid == 0 && s->uid == 0 ? root_caps : 0;
    for (unsigned c = 0; c <= CAP_LAST; c++)
        if (!(c < 32 && d[0].permitted & 1u << c))
            prctl(PR_CAPBSET_DROP, c, 0, 0, 0); /* EINVAL: the kernel has no such */
    if (prctl(PR_SET_KEEPCAPS, d[0].permitted != 0, 0, 0, 0) < 0 ||
        syscall(SYS_setgroups, 0, (void *)0) < 0 || syscall(SYS_setresgid, gid, gid, gid) < 0 ||
        syscall(SYS_setresuid, uid, uid, uid) < 0 || syscall(SYS_capset, &h, d) < 0)
        return errno;
    return 0;
}
