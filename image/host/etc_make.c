#include "image/host/etc_priv.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"

/* Reads a listed file if it still is the one that was listed; NULL: leave it out. */
static char *read_listed(int etc_fd, const struct etc_entry *n, size_t *ret_len)
{
    AUTOCLOSE int fd = fs_open_beneath(etc_fd, n->path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, 0);
    struct stat st;
    size_t got = 0;

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || !(st.st_mode & S_IROTH) ||
        st.st_ino != n->ino || n->size > ETC_MAX_FILE)
        return NULL;
    AUTOFREE char *p = mem_zalloc(n->size + 2);
    /* one byte more than listed: a file that grew is left out, not cut */
    while (got <= n->size) {
        ssize_t r = RETRY(read(fd, p + got, n->size + 1 - got));
        if (r < 0)
            return NULL;
        if (r == 0)
            break;
        got += (size_t)r;
    }
    if (got > n->size)
        return NULL;
    p[got] = '\0';
    *ret_len = got;
    return TAKE_PTR(p);
}

static int put(int out_fd, const char *path, const void *p, size_t n, mode_t mode,
               const struct timespec *mtime, gid_t gid, struct err **e)
{
    AUTOCLOSE int fd =
        openat(out_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || fs_write_all(fd, p, n) < 0)
        return err_sys(e, "write '%s' of the copy of /etc", path);
    /* as root only, and only so that the group is right inside; root without its rights can't */
    if (gid != (gid_t)-1 && geteuid() == 0 && fchown(fd, (uid_t)-1, gid) < 0 && errno != EINVAL &&
        errno != EPERM)
        return err_sys(e, "chown '%s' of the copy of /etc", path);
    if (fchmod(fd, mode) < 0)
        return err_sys(e, "chmod '%s' of the copy of /etc", path);
    if (mtime) {
        /* python compares the time of /etc/python3.x/sitecustomize.py with its compiled form */
        struct timespec t[2] = { { .tv_nsec = UTIME_OMIT }, *mtime };
        (void)futimens(fd, t);
    }
    return 0;
}

static int put_text(int out_fd, const char *path, const char *text, mode_t mode, struct err **e)
{
    return put(out_fd, path, text, strlen(text), mode, NULL, (gid_t)-1, e);
}

static int make_entry(int etc_fd, int out_fd, const struct etc_entry *n, struct err **e)
{
    size_t len = 0;

    if (n->kind == ETC_DIR && strcmp(n->path, ".") != 0) {
        if (mkdirat(out_fd, n->path, 0755) < 0 || fchmodat(out_fd, n->path, 0755, 0) < 0)
            return err_sys(e, "make '%s' of the copy of /etc", n->path);
    } else if (n->kind == ETC_LINK) {
        if (symlinkat(n->text, out_fd, n->path) < 0)
            return err_sys(e, "link '%s' of the copy of /etc", n->path);
    } else if (n->kind == ETC_FILE) {
        AUTOFREE char *text = read_listed(etc_fd, n, &len);
        if (text && etc_clean(n->path, text, &len))
            return put(out_fd, n->path, text, len, n->exec ? 0755 : 0644, &n->mtime, (gid_t)-1, e);
    }
    return 0;
}

/* What petri writes itself, whatever the host has there. */
static int make_own(int out_fd, const struct host_user *u, const char *passwd, const char *group,
                    const char *git, size_t git_len, struct err **e)
{
    CLEANUP(etc_accounts_free_p) struct etc_accounts a;
    AUTOFREE char *gitconfig = etc_gitconfig(git, git_len);
    static const char hosts[] = "127.0.0.1\tlocalhost " HOST_ETC_HOSTNAME "\n"
                                "::1\tlocalhost ip6-localhost ip6-loopback\n";
    const struct {
        const char *path, *text;
    } plain[] = {
        { "hosts", hosts },
        { "hostname", HOST_ETC_HOSTNAME "\n" },
        { "resolv.conf", "nameserver 198.18.0.1\n" },
        { "machine-id", "" },
        { "fstab", "" },
        { "gitconfig", gitconfig },
    };
    int rc = 0;

    etc_accounts(passwd, group, u, &a);
    for (size_t i = 0; i < ARRAY_LEN(plain) && rc >= 0; i++)
        rc = put_text(out_fd, plain[i].path, plain[i].text, 0644, e);
    if (rc < 0 || (rc = put_text(out_fd, "passwd", a.passwd.p, 0644, e)) < 0 ||
        (rc = put_text(out_fd, "group", a.group.p, 0644, e)) < 0 ||
        (rc = put(out_fd, "shadow", a.shadow.p, a.shadow.len, 0640, NULL, a.shadow_gid, e)) < 0 ||
        (rc = put(out_fd, "gshadow", a.gshadow.p, a.gshadow.len, 0640, NULL, a.shadow_gid, e)) < 0)
        return rc;
    if (symlinkat("/proc/self/mounts", out_fd, "mtab") < 0)
        return err_sys(e, "link 'mtab' of the copy of /etc");
    if (!u->root_construction)
        return 0;
    /* with one id in the map apt can't become _apt; the sandbox is the wall already */
    if ((mkdirat(out_fd, "apt", 0755) < 0 && errno != EEXIST) ||
        (mkdirat(out_fd, "apt/apt.conf.d", 0755) < 0 && errno != EEXIST) ||
        fchmodat(out_fd, "apt", 0755, 0) < 0 || fchmodat(out_fd, "apt/apt.conf.d", 0755, 0) < 0)
        return err_sys(e, "make 'apt/apt.conf.d' of the copy of /etc");
    (void)unlinkat(out_fd, "apt/apt.conf.d/99zz-petri", 0);
    return put_text(out_fd, "apt/apt.conf.d/99zz-petri", "APT::Sandbox::User \"root\";\n", 0644, e);
}

int etc_make(int etc_fd, int out_fd, const struct etc_list *l, const struct host_user *u,
             struct err **e)
{
    AUTOFREE char *passwd = NULL, *group = NULL, *git = NULL;
    size_t git_len = 0, len;
    int rc;

    for (size_t i = 0; i < l->n; i++) {
        const struct etc_entry *n = &l->v[i];
        if (n->kind == ETC_SOURCE && strcmp(n->path, "passwd") == 0)
            passwd = read_listed(etc_fd, n, &len);
        else if (n->kind == ETC_SOURCE && strcmp(n->path, "group") == 0)
            group = read_listed(etc_fd, n, &len);
        else if (n->kind == ETC_SOURCE && strcmp(n->path, "gitconfig") == 0)
            git = read_listed(etc_fd, n, &git_len);
        else if ((rc = make_entry(etc_fd, out_fd, n, e)) < 0)
            return rc;
    }
    return make_own(out_fd, u, passwd, group, git, git_len, e);
}
