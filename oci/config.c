#include "oci/config.h"

#include <string.h>
#include <sys/resource.h>

#include "base/fs.h"
#include "base/json.h"

/* What every process may read, or tells of other processes and the hardware. Files that only the
 * machine's root may read need no mask where no id of a sandbox is that root. */
static const char *const masked[] = {
    "/proc/acpi",
    "/proc/asound",
    "/proc/cmdline",
    "/proc/interrupts",
    "/proc/key-users",
    "/proc/keys",
    "/proc/kcore",
    /* of all processes of the machine: a channel from one sandbox to another */
    "/proc/locks",
    /* everybody may write here; each trigger takes the kernel milliseconds to close, which no signal ends */
    "/proc/pressure",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/sys/firmware",
    "/sys/fs",
    "/sys/kernel",
    "/sys/module",
    "/sys/devices/virtual/powercap",
    /* names of the host's files under its loop devices; serial numbers */
    "/sys/devices/virtual/block",
    "/sys/devices/virtual/dmi",
};

static const char *const masked_from_root[] = {
    "/proc/bus",
    "/proc/config.gz",
    "/proc/driver",
    "/proc/dynamic_debug",
    "/proc/fs",
    "/proc/iomem",
    "/proc/ioports",
    "/proc/kallsyms",
    "/proc/kmsg",
    "/proc/kpagecgroup",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/latency_stats",
    "/proc/modules",
    "/proc/mtrr",
    "/proc/pagetypeinfo",
    "/proc/schedstat",
    "/proc/slabinfo",
    "/proc/swaps",
    "/proc/sysrq-trigger",
    "/proc/sysvipc",
    "/proc/vmallocinfo",
    "/proc/vmstat",
    "/proc/zoneinfo",
    "/sys/class/zram-control", /* to read it makes a device */
    "/sys/power",
};

static const char *const readonly[] = { "/proc/sys", "/proc/irq", "/proc/bus", "/proc/fs",
                                        "/proc/sysrq-trigger" };

#ifdef PETRI_TEST_WEAKEN
unsigned weakened(void)
{
    static const char *const words[] = { "seccomp", "nnp",      "caps",   "masks",  "net",
                                         "env",     "hide",     "limits", "etc",    "timeout",
                                         "userns",  "cgroupfs", "nosuid", "output", "tmp" };
    const char *s = getenv("PETRI_WEAKEN");
    unsigned bits = 0;
    for (size_t i = 0; s && i < ARRAY_LEN(words); i++) {
        const char *at = strstr(s, words[i]);
        if (at)
            bits |= 1u << i;
    }
    return bits;
}
#else
unsigned weakened(void)
{
    return 0;
}
#endif

static void add_mount(struct jsonw *w, const char *dst, const char *type, const char *source,
                      const char *options)
{
    AUTOFREE char *list = str_dup(options);
    jw_obj(w, NULL);
    jw_str(w, "destination", dst);
    jw_str(w, "type", type);
    jw_str(w, "source", source);
    jw_arr(w, "options");
    for (char *save = NULL, *o = strtok_r(list, ",", &save); o; o = strtok_r(NULL, ",", &save))
        jw_str(w, NULL, o);
    jw_end_arr(w);
    jw_end_obj(w);
}

/* Those that are files, or not there, are left to the runtime. Over each directory it would put a file system of its
 * own, which costs more than the same empty directory does in all these places. */
static void add_masks(struct jsonw *w, const struct bundle *b, const char *const *paths, size_t n,
                      struct strv *ret_files)
{
    for (size_t i = 0; i < n; i++)
        if (fs_is_dir(paths[i]))
            add_mount(w, paths[i], "bind", b->empty, "bind,ro,nosuid,noexec,nodev");
        else
            strv_add(ret_files, paths[i]);
}

/* The mounts that must be made inside the new namespaces; all others are in the root already. */
static void add_mounts(struct jsonw *w, const struct bundle *b, unsigned weak,
                       struct strv *ret_masked_files)
{
    jw_arr(w, "mounts");
    add_mount(w, "/proc", "proc", "proc", "nosuid,noexec,nodev");
    add_mount(w, "/dev", "tmpfs", "tmpfs",
              "nosuid,noexec,strictatime,mode=755,size=64k,nr_inodes=256");
    add_mount(w, "/dev/pts", "devpts", "devpts",
              "nosuid,noexec,newinstance,ptmxmode=0666,mode=0620,max=256");
    add_mount(w, "/dev/shm", "tmpfs", "tmpfs",
              "nosuid,noexec,nodev,mode=1777,size=64m,nr_inodes=4096");
    add_mount(w, "/dev/mqueue", "mqueue", "mqueue", "nosuid,noexec,nodev");
    add_mount(w, "/sys", "sysfs", "sysfs", "nosuid,noexec,nodev,ro");
    if (weak & WEAK_CGROUPFS)
        add_mount(w, "/sys/fs/cgroup", "cgroup", "cgroup", "nosuid,noexec,nodev");
    if (!(weak & (WEAK_MASKS | WEAK_CGROUPFS)))
        add_masks(w, b, masked, ARRAY_LEN(masked), ret_masked_files);
    if (b->root_id)
        add_masks(w, b, masked_from_root, ARRAY_LEN(masked_from_root), ret_masked_files);
    jw_end_arr(w);
}

static void add_rlimit(struct jsonw *w, const char *name, int which, uint64_t value)
{
    struct rlimit cur;
    if (getrlimit(which, &cur) == 0 && cur.rlim_max != RLIM_INFINITY && cur.rlim_max < value)
        value = cur.rlim_max; /* never ask for more than we may hand down */
    jw_obj(w, NULL);
    jw_str(w, "type", name);
    jw_u64(w, "hard", value);
    jw_u64(w, "soft", value);
    jw_end_obj(w);
}

static void add_process(struct jsonw *w, const struct plan *p, const struct bundle *b,
                        unsigned weak)
{
    /* the last two: an id of its own keeps nothing through exec without them; petri-init empties both */
    static const char *const sets[] = { "bounding", "effective", "permitted", "inheritable",
                                        "ambient" };
    static const char *const root_caps[] = { "CAP_CHOWN",  "CAP_DAC_OVERRIDE", "CAP_FOWNER",
                                             "CAP_FSETID", "CAP_SETUID",       "CAP_SETGID" };
    /* to become the user, to end what is the user's, and to leave nothing of this to it */
    static const char *const own_caps[] = { "CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_SETPCAP" };

    jw_obj(w, "process");
    jw_bool(w, "terminal", false);
    jw_obj(w, "user");
    jw_u64(w, "uid", b->init_id ? b->init_id : p->uid);
    jw_u64(w, "gid", b->init_id ? b->init_id : p->gid);
    jw_end_obj(w);
    jw_arr(w, "args");
    jw_str(w, NULL, b->init);
    jw_end_arr(w);
    jw_arr(w, "env");
    jw_str(w, NULL,
           "HOME=/"); /* else the runtime reads the image's /etc/passwd, whatever that is */
    jw_end_arr(w);
    jw_str(w, "cwd", "/"); /* petri-init changes directory itself */
    jw_obj(w, "capabilities");
    for (size_t i = 0; i < (b->init_id ? 5 : 3); i++) {
        jw_arr(w, sets[i]);
        for (size_t k = 0; p->uid == 0 && k < ARRAY_LEN(root_caps); k++)
            jw_str(w, NULL, root_caps[k]);
        for (size_t k = p->uid == 0 ? 2 : 0; b->init_id && k < ARRAY_LEN(own_caps); k++)
            jw_str(w, NULL, own_caps[k]);
        if (weak & WEAK_CAPS) {
            jw_str(w, NULL, "CAP_SYS_ADMIN");
            jw_str(w, NULL, "CAP_MKNOD");
        }
        jw_end_arr(w);
    }
    jw_end_obj(w);
    jw_arr(w, "rlimits");
    add_rlimit(w, "RLIMIT_NOFILE", RLIMIT_NOFILE, p->nofile.value);
    /* no core file; and, unlike 0, no start of the program that the host's core_pattern may name */
    add_rlimit(w, "RLIMIT_CORE", RLIMIT_CORE, 1);
    /* what is used of these is missing to whoever started petri, on all of the machine */
    add_rlimit(w, "RLIMIT_SIGPENDING", RLIMIT_SIGPENDING, 4096);
    add_rlimit(w, "RLIMIT_MSGQUEUE", RLIMIT_MSGQUEUE, 400 << 10);
    if (b->nproc)
        add_rlimit(w, "RLIMIT_NPROC", RLIMIT_NPROC, b->nproc);
    jw_end_arr(w);
    jw_bool(w, "noNewPrivileges", !(weak & WEAK_NNP));
    jw_end_obj(w);
}

static void add_idmap(struct jsonw *w, const char *key, const struct idmap *m)
{
    jw_arr(w, key);
    for (size_t i = 0; i < m->n; i++) {
        jw_obj(w, NULL);
        jw_u64(w, "containerID", m->v[i].inside);
        jw_u64(w, "hostID", m->v[i].outside);
        jw_u64(w, "size", m->v[i].count);
        jw_end_obj(w);
    }
    jw_end_arr(w);
}

static void add_namespace(struct jsonw *w, const char *type, const char *path)
{
    jw_obj(w, NULL);
    jw_str(w, "type", type);
    if (path)
        jw_str(w, "path", path);
    jw_end_obj(w);
}

static void add_linux(struct jsonw *w, const struct bundle *b, unsigned weak,
                      const struct strv *masked_files)
{
    jw_obj(w, "linux");
    if (b->userns) {
        add_idmap(w, "uidMappings", &b->uids);
        add_idmap(w, "gidMappings", &b->gids);
    }
    jw_arr(w, "namespaces");
    if (b->userns)
        add_namespace(w, "user", b->userns);
    if (!(weak & WEAK_NET))
        add_namespace(w, "network", b->netns);
    add_namespace(w, "mount", NULL);
    add_namespace(w, "pid", NULL);
    add_namespace(w, "ipc", NULL);
    add_namespace(w, "uts", NULL);
    add_namespace(w, "cgroup", NULL);
    jw_end_arr(w);
    jw_arr(w, "maskedPaths");
    for (size_t i = 0; i < masked_files->n; i++)
        jw_str(w, NULL, masked_files->v[i]);
    jw_end_arr(w);
    jw_arr(w, "readonlyPaths");
    for (size_t i = 0; i < ARRAY_LEN(readonly) && !(weak & WEAK_MASKS); i++)
        jw_str(w, NULL, readonly[i]);
    jw_end_arr(w);
    jw_end_obj(w);
}

char *config_json(const struct plan *p, const struct bundle *b)
{
    AUTOJSONW struct jsonw w = { 0 };
    AUTOSTRV struct strv masked_files = { 0 };
    unsigned weak = weakened();

    jw_obj(&w, NULL);
    jw_str(&w, "ociVersion", "1.0.2");
    jw_obj(&w, "root");
    jw_str(&w, "path", b->rootfs);
    jw_bool(&w, "readonly", !p->root_writable);
    jw_end_obj(&w);
    jw_str(&w, "hostname", "petri"); /* as in the copied /etc/hosts */
    add_mounts(&w, b, weak, &masked_files);
    add_process(&w, p, b, weak);
    add_linux(&w, b, weak, &masked_files);
    jw_obj(&w, "annotations");
    if (!(weak & WEAK_SECCOMP))
        jw_str(&w, "run.oci.seccomp_bpf_data", CONFIG_SECCOMP);
    if (!(weak & (WEAK_SECCOMP | WEAK_USERNS | WEAK_NET)))
        jw_str(&w, CONFIG_LIMITS, "lower");
    jw_end_obj(&w);
    jw_end_obj(&w);
    return str_take(&w.out);
}
