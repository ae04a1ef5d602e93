/* runtime/sandbox/probe_userns.c - what failed around namespaces, why, and what changes it. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "runtime/sandbox/probe.h"

/* What stands in the way is read from what is around, not from the first failure: one restart of the
 * container should do. */
char *probe_container_fix(const struct probe_host *h, const struct probe_tries *t)
{
    bool filtered = h->seccomp_mode == 2 &&
                    (t->userns > 0 || t->namespaces > 0 || t->tmpfs > 0 || t->calls > 0);
    bool confined = h->apparmor && (t->userns || t->maps || t->tmpfs);
    bool covered = h->proc_masked && t->proc;
    const char *kind = h->container;
    AUTOSTR struct str s = STR_INIT;

    if (!kind || (!filtered && !confined && !covered))
        return NULL;
    if (str_eq(kind, "kubernetes"))
        return str_dup(
            "securityContext: {seccompProfile: {type: Unconfined}, procMount: Unmasked}");
    if (str_eq(kind, "lxc"))
        return str_dup("lxc config set NAME security.nesting true");
    if (filtered)
        str_add(&s, " --security-opt seccomp=unconfined");
    if (confined)
        str_add(&s, " --security-opt apparmor=unconfined");
    if (covered)
        str_add(&s, str_eq(kind, "podman") ? " --security-opt unmask=ALL"
                                           : " --security-opt systempaths=unconfined");
    return str_printf("%s run%s ...", str_eq(kind, "podman") ? "podman" : "docker", s.p);
}

/* Gives this very program the right, and nothing else on the machine. The package's profile names its
 * own path; a petri elsewhere needs a second one. */
static char *apparmor_fix(void)
{
    static const char dir[] = "/etc/apparmor.d/";
    AUTOFREE char *exe = fs_readlink(AT_FDCWD, "/proc/self/exe"), *profile = NULL;
    const char *name = "petri";

    if (!exe || strpbrk(exe, "'\"%\\"))
        return str_dup("sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0");
    if (fs_read(AT_FDCWD, "/etc/apparmor.d/petri", 64 << 10, &profile, NULL, NULL) >= 0) {
        if (strstr(profile, exe))
            return str_printf("sudo apparmor_parser -r %s%s", dir, name);
        name = "petri-local";
    }
    return str_printf("printf 'abi <abi/4.0>,\\nprofile %s \"%s\" flags=(unconfined) {\\n  "
                      "userns,\\n}\\n' | sudo tee %s%s && sudo apparmor_parser -r %s%s",
                      name, exe, dir, name, dir, name);
}

/* Why user namespaces fail, from what is around; `fix` may stay NULL. */
static char *userns_reason(const struct probe_host *h, const struct probe_tries *t, char **fix)
{
    int err = t->userns > 0 ? t->userns : t->maps > 0 ? t->maps : t->tmpfs;
    bool refused = err == EPERM || err == EACCES;

    if (!fs_exists("/proc/self/uid_map") && !fs_exists("/proc/self/stat")) {
        *fix = str_dup("mount -t proc proc /proc");
        return str_dup("can't be used: /proc is not mounted");
    }
    if (t->userns == EINVAL || t->userns == ENOSYS) {
        *fix = str_dup("boot a kernel with CONFIG_USER_NS");
        return str_dup("are not in this kernel");
    }
    if ((t->userns == ENOSPC || t->userns == EUSERS) &&
        probe_sysctl("/proc/sys/user/max_user_namespaces") == 0) {
        *fix = str_dup("sudo sysctl -w user.max_user_namespaces=15000");
        return str_dup("are switched off (user.max_user_namespaces=0)");
    }
    if (t->userns == ENOSPC || t->userns == EUSERS) {
        *fix =
            str_dup("end other sandboxes, or raise user.max_user_namespaces on the machine around "
                    "this one");
        return str_dup("are used up, or an outer namespace allows no more");
    }
    if (h->uid && refused && probe_sysctl("/proc/sys/kernel/unprivileged_userns_clone") == 0) {
        *fix = str_dup("sudo sysctl -w kernel.unprivileged_userns_clone=1");
        return str_dup("are for root only (kernel.unprivileged_userns_clone=0)");
    }
    if (h->uid && refused &&
        probe_sysctl("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1) {
        *fix = apparmor_fix();
        return str_dup("are blocked by AppArmor (Ubuntu's default)");
    }
    if (t->userns > 0 && refused && h->chrooted) {
        *fix =
            str_dup("start petri outside the chroot, or enter it with pivot_root or a container");
        return str_dup("can't be made in a chroot");
    }
    *fix = probe_container_fix(h, t);
    if (refused && h->seccomp_mode == 2 && t->userns > 0)
        return str_printf("are blocked by a seccomp filter%s%s", h->container ? " of " : "",
                          h->container ? h->container : "");
    if (refused && h->apparmor)
        return str_printf("are blocked by the AppArmor profile %s", h->apparmor);
    if (t->died)
        return str_printf("killed the probe with signal %d", t->died);
    return str_printf("do not work: %s", err > 0 ? strerror(err) : "nothing could be tried");
}

static bool userns_works(const struct probe_tries *t)
{
    return !t->userns && !t->maps && t->namespaces != PROBE_NOT_TRIED && t->tmpfs <= 0;
}

static void namespace_line(struct probe_report *r, const struct probe_host *h,
                           const struct probe_tries *t)
{
    static const char id[] = "namespaces", title[] = "other namespaces";

    if (!t->namespaces)
        probe_add(r, id, title, true, PROBE_OK, str_dup("mnt pid ipc uts net cgroup"), NULL, NULL);
    else if (t->namespaces == PROBE_NOT_TRIED)
        probe_add_untried(r, id, title, true, NULL);
    else
        probe_add(r, id, title, true, PROBE_MISSING,
                  str_printf("%s: %s", t->ns_name, strerror(t->namespaces)),
                  str_dup("no sandbox can start"),
                  t->namespaces == ENOSPC
                      ? str_printf("sudo sysctl -w user.max_%s_namespaces=15000", t->ns_name)
                      : probe_container_fix(h, t));
}

static void calls_line(struct probe_report *r, const struct probe_host *h,
                       const struct probe_tries *t)
{
    static const char id[] = "calls", title[] = "system calls";

    if (!t->calls)
        probe_add(r, id, title, true, PROBE_OK, str_dup("nothing needed is refused"), NULL, NULL);
    else if (t->calls == PROBE_NOT_TRIED)
        probe_add_untried(r, id, title, true, NULL);
    else
        probe_add(r, id, title, true, PROBE_MISSING,
                  str_printf("%s is refused%s", t->call_name,
                             h->seccomp_mode == 2 ? " by a seccomp filter around petri" : ""),
                  str_dup("no sandbox can start"), probe_container_fix(h, t));
}

static void proc_line(struct probe_report *r, const struct probe_host *h,
                      const struct probe_tries *t)
{
    static const char id[] = "proc", title[] = "a /proc of its own";

    if (!t->proc)
        probe_add(r, id, title, true, PROBE_OK, str_dup("works"), NULL, NULL);
    else if (t->proc == PROBE_NOT_TRIED)
        probe_add_untried(r, id, title, true, NULL);
    else
        probe_add(r, id, title, true, PROBE_MISSING,
                  h->proc_masked ? str_dup("refused: parts of /proc are covered here")
                                 : str_printf("refused: %s", strerror(t->proc)),
                  str_dup("no sandbox can start"),
                  h->container
                      ? probe_container_fix(h, t)
                      : str_dup("unmount what covers parts of /proc, or start petri outside "
                                "of what did it"));
}

void probe_namespaces(struct probe_report *r, const struct probe_host *h,
                      const struct probe_tries *t)
{
    char *fix = NULL;

    if (userns_works(t)) {
        probe_add(r, "userns", "user namespaces", true, PROBE_OK, str_dup("work"), NULL, NULL);
    } else {
        char *value = userns_reason(h, t, &fix);
        probe_add(r, "userns", "user namespaces", true, PROBE_MISSING, value,
                  str_dup("no sandbox can start"), fix);
    }
    namespace_line(r, h, t);
    calls_line(r, h, t);
    proc_line(r, h, t);
    if (!t->seccomp)
        probe_add(r, "seccomp", "seccomp filters", true, PROBE_OK, str_dup("work"), NULL, NULL);
    else
        probe_add(r, "seccomp", "seccomp filters", true, PROBE_MISSING,
                  str_dup(t->seccomp > 0 ? strerror(t->seccomp) : "not tried"),
                  str_dup("no sandbox can start"),
                  str_dup("boot a kernel with CONFIG_SECCOMP_FILTER"));
}
