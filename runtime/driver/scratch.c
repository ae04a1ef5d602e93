#include "runtime/driver/scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "base/mnt.h"
#include "runtime/driver/inside.h"

static const char mkfs[] = "/sbin/mke2fs";

/* What stays free of the store's disk. */
#define RESERVE (512ULL << 20)
enum { MAX_LEVELS = 2000 }; /* each takes a descriptor and some 32K of memory */

enum { SKELETON = 16 << 20 }; /* room for directories and masks where the files go elsewhere */

const char *scratch_word(const struct scratch *s)
{
    return s->watched ? "watched" : s->kind == SCRATCH_TMPFS ? "tmpfs" : "loop";
}

/* Overlays of an ordinary user keep their marks in user.* attributes; tmpfs has those since 6.6. */
static bool tmpfs_can_hold_uppers(void)
{
    struct utsname u;
    unsigned major = 0, minor = 0;
    if (geteuid() == 0)
        return true;
    return uname(&u) == 0 && sscanf(u.release, "%u.%u", &major, &minor) == 2 &&
           (major > 6 || (major == 6 && minor >= 6));
}

/* A limit that was asked for must fit on the disk; a default must leave the reserve. */
static int enough_disk(const char *store, uint64_t size, bool asked, struct err **e)
{
    struct statvfs v;
    char want[24], have[24];
    uint64_t avail;

    if (statvfs(store, &v) < 0)
        return err_sys(e, "look at the store '%s'", store);
    avail = (uint64_t)v.f_bavail * v.f_frsize;
    if (avail >= RESERVE && (!asked || size <= avail - RESERVE))
        return 0;
    format_size(asked ? size : RESERVE, want);
    format_size(avail, have);
    return err_new(e, ERR_LIMIT,
                   "--disk %s: only %s are free in '%s' (%s stay in reserve); ask for less", want,
                   have, store, "512M");
}

int scratch_choose(const struct plan *p, const char *store, const char *at, struct scratch *ret,
                   struct err **e)
{
    uint64_t most = p->memory.value / 2;
    bool big = p->disk.asked && p->disk.value > most;
    struct scratch s = { .kind = SCRATCH_TMPFS, .size = p->disk.value, .inodes = p->inodes.value };
    int rc;

    if (p->top)
        big = false;
    else if (!tmpfs_can_hold_uppers() || (big && geteuid() != 0))
        s.kind = SCRATCH_DIR;
    else if (big)
        s.kind = SCRATCH_LOOP;
    else if (s.size > most)
        s.size = most;
    if (p->top && (rc = enough_disk(store, s.size, p->disk.asked, e)) < 0)
        return rc;
    /* an empty file takes no page, but it does take room */
    if (s.inodes > s.size / 1024)
        s.inodes = s.size / 1024;
    if (s.kind == SCRATCH_LOOP && access(mkfs, X_OK) < 0)
        return err_new(e, ERR_UNSUPPORTED,
                       "--disk: more than half of --memory needs %s (Debian: apt-get install "
                       "e2fsprogs); install it or raise --memory",
                       mkfs);
    if (s.kind == SCRATCH_LOOP && s.size < 16 << 20)
        s.size = 16 << 20;
    if (s.kind != SCRATCH_TMPFS && (rc = enough_disk(store, s.size, p->disk.asked, e)) < 0)
        return rc;
    if (weakened() & WEAK_LIMITS)
        s.size = s.inodes = s.kind == SCRATCH_TMPFS && !p->top ? 0 : UINT64_MAX;
    s.at = str_dup(at);
    s.dir =
        s.kind == SCRATCH_DIR ? str_printf("%s/sandboxes/%s/files", store, p->id) : str_dup(store);
    s.watched = p->top ? p->top : s.kind == SCRATCH_DIR ? s.dir : NULL;
    *ret = s;
    return 0;
}

void scratch_free_p(struct scratch *s)
{
    free(s->at);
    free(s->dir);
    *s = (struct scratch){ 0 };
}

static int format(int fd, uint64_t size, struct err **e)
{
    char path[32];
    char *const argv[] = { "mke2fs",
                           "-q",
                           "-F",
                           "-t",
                           "ext4",
                           "-O",
                           "^has_journal",
                           "-m",
                           "0",
                           "-E",
                           "lazy_itable_init=1,nodiscard,root_owner=0:0",
                           path,
                           NULL };
    char *const env[] = { NULL };
    posix_spawn_file_actions_t fa;
    pid_t pid;
    int rc, status = -1;

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (ftruncate(fd, (off_t)size) < 0)
        return err_sys(e, "size of the loop file");
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_adddup2(&fa, fd, fd); /* stays open across exec */
    posix_spawn_file_actions_addopen(&fa, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&fa, 2, "/dev/null", O_WRONLY, 0);
    rc = posix_spawn(&pid, mkfs, &fa, NULL, argv, env);
    posix_spawn_file_actions_destroy(&fa);
    if (rc != 0 || RETRY(waitpid(pid, &status, 0)) < 0 || status != 0)
        return err_new(e, ERR_FAILED, "%s failed on the sandbox's disk file", mkfs);
    return 0;
}

/* A loop device over `fd` that frees itself with its last user. */
static int loop_over(int fd, int *ret_dev, char name[32], struct err **e)
{
    AUTOCLOSE int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    struct loop_config c = { .fd = (uint32_t)fd, .info = { .lo_flags = LO_FLAGS_AUTOCLEAR } };

    if (control < 0)
        return err_sys(e, "open /dev/loop-control (raise --memory instead of --disk)");
    for (int i = 0; i < 64; i++) {
        int n = ioctl(control, LOOP_CTL_GET_FREE);
        if (n < 0)
            return err_sys(e, "find a free loop device");
        snprintf(name, 32, "/dev/loop%d", n);
        AUTOCLOSE int dev = open(name, O_RDWR | O_CLOEXEC);
        if (dev >= 0 && ioctl(dev, LOOP_CONFIGURE, &c) == 0) {
            *ret_dev = TAKE_FD(dev);
            return 0;
        }
        if (errno != EBUSY)
            break;
    }
    return err_sys(e, "set up a loop device");
}

static int mount_loop(const struct scratch *s, struct err **e)
{
    AUTOCLOSE int fd = open(s->dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), dev = -1;
    char name[32];
    int rc;

    if (fd < 0)
        return err_sys(e, "make a disk file in '%s'", s->dir);
    if ((rc = format(fd, s->size, e)) < 0 || (rc = loop_over(fd, &dev, name, e)) < 0)
        return rc;
    if (mount(name, s->at, "ext4", MS_NOSUID | MS_NODEV, "") < 0)
        return err_sys(e, "mount the sandbox's disk");
    return 0;
}

int scratch_mount(const struct scratch *s, const struct ids *ids, struct err **e)
{
    AUTOFREE char *opts = NULL;
    AUTOCLOSE int fd = -1, at = -1;
    int rc;

    if (s->kind == SCRATCH_TMPFS) {
        opts = str_printf("mode=0755,size=%llu,nr_inodes=%llu,uid=%u,gid=%u",
                          (unsigned long long)(s->watched ? SKELETON : s->size),
                          (unsigned long long)(s->watched ? SKELETON / 1024 : s->inodes),
                          ids->root_uid, ids->root_gid);
        if (mount("petri", s->at, "tmpfs", MS_NOSUID | MS_NODEV, opts) < 0)
            return err_sys(e, "mount a scratch tmpfs on '%s'", s->at);
        return 0;
    }
    if (s->kind == SCRATCH_LOOP) {
        if ((rc = mount_loop(s, e)) < 0)
            return rc;
    } else if ((rc = mnt_clone(AT_FDCWD, s->dir, 0, -1, &fd, e)) < 0) {
        return rc;
    } else {
        at = open(s->at, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if ((rc = mnt_attach(fd, at, s->at, e)) < 0)
            return rc;
    }
    if (chown(s->at, ids->root_uid, ids->root_gid) < 0 || chmod(s->at, 0755) < 0)
        return err_sys(e, "owner of '%s'", s->at);
    return 0;
}

struct tally {
    const char *dir;
    uint64_t bytes, files;
    bool blind; /* something could not be read */
    bool lost;  /* it goes down further than anybody can count */
};

/* Takes the descriptor: there is one for each level, and code inside decides how many levels there are. */
static void count_below(int fd, struct tally *t, int depth)
{
    DIR *d = fdopendir(fd);
    struct dirent *de;

    if (!d)
        close(fd);
    while (d && (de = fs_next(d))) {
        struct stat st;
        if (fstatat(dirfd(d), de->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            t->blind |= errno == EACCES;
            continue;
        }
        t->bytes += (uint64_t)st.st_blocks * 512;
        t->files++;
        if (S_ISDIR(st.st_mode)) {
            int sub = depth < MAX_LEVELS ? openat(dirfd(d), de->d_name,
                                                  O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                                         : -EMFILE;
            if (sub >= 0)
                count_below(sub, t, depth + 1);
            else if (sub == -EMFILE || errno == EMFILE || errno == ENFILE || errno == ENOMEM)
                t->lost = true;
            else
                t->blind |= errno == EACCES;
        }
    }
    if (d)
        closedir(d);
}

static int count_all(void *arg, struct err **e)
{
    struct tally *t = arg;
    int fd = open(t->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct rlimit old = { 0 }, all;

    if (fd < 0)
        return err_sys(e, "open '%s'", t->dir);
    if (getrlimit(RLIMIT_NOFILE, &old) == 0) {
        all = (struct rlimit){ old.rlim_max, old.rlim_max };
        (void)setrlimit(RLIMIT_NOFILE, &all);
    }
    count_below(fd, t, 0);
    if (old.rlim_max)
        (void)setrlimit(RLIMIT_NOFILE, &old);
    return 0;
}

uint64_t scratch_used(const char *dir, uint64_t *ret_files)
{
    struct plan any = { .uid = 1, .gid = 1, .owner_uid = getuid(), .owner_gid = getgid() };
    struct tally t = { .dir = dir }, *shared;
    struct ids ids;

    (void)count_all(&t, NULL);
    *ret_files = t.files;
    if (!t.blind || geteuid() == 0 ||
        (ids_plan(&any, true, &ids, NULL) < 0 && ids_plan(&any, false, &ids, NULL) < 0))
        return t.lost ? UINT64_MAX : t.bytes;
    /* a directory that was closed on purpose: root of the sandbox's namespace sees into it */
    shared = mmap(NULL, sizeof t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return t.lost ? UINT64_MAX : t.bytes;
    shared->dir = dir;
    if (inside_run(&ids, count_all, shared, NULL) == 0) {
        t = *shared;
        *ret_files = t.files;
    }
    munmap(shared, sizeof t);
    return t.lost ? UINT64_MAX : t.bytes;
}

bool scratch_over(const struct scratch *s)
{
    uint64_t files, used = scratch_used(s->watched, &files);
    struct statvfs v;

    /* files that were removed and are held open are in no directory; the disk is not filled with them */
    return used > s->size || files > s->inodes ||
           (statvfs(s->watched, &v) == 0 && (uint64_t)v.f_bavail * v.f_frsize < RESERVE / 2);
}
