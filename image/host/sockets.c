#include <dirent.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/fs.h"
#include "image/host/system.h"

#define MAX_TABLE (16u << 20)

static bool is_socket(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISSOCK(st.st_mode);
}

static void mark(const struct plan_mounts *m, const char *path, struct strv *ret)
{
    for (size_t i = 0; i < m->n; i++)
        if (m->v[i].kind == MOUNT_BIND && path_below(path, m->v[i].src) &&
            !strv_has(ret, m->v[i].dst))
            strv_add(ret, m->v[i].dst);
}

/* A server that went to its own directory first: the name is tried in each tree and in the
 * directories right below, where services of /opt live. */
static void mark_relative(const struct plan_mounts *m, const char *name, struct strv *ret)
{
    for (size_t i = 0; i < m->n; i++) {
        const char *src = m->v[i].src;
        if (m->v[i].kind != MOUNT_BIND || strv_has(ret, m->v[i].dst))
            continue;
        AUTOFREE char *direct = path_join(src, name);
        bool found = is_socket(direct);
        DIR *d = found ? NULL : opendir(src);
        struct dirent *de;
        for (int n = 0; d && !found && n < 256 && (de = readdir(d)); n++) {
            if (de->d_type != DT_DIR || de->d_name[0] == '.')
                continue;
            AUTOFREE char *below = str_printf("%s/%s/%s", src, de->d_name, name);
            found = is_socket(below);
        }
        if (d)
            closedir(d);
        if (found)
            strv_add(ret, m->v[i].dst);
    }
}

struct search {
    const struct plan_mounts *m;
    struct strv dirs; /* directories seen already */
    struct strv *ret;
};

static void one_socket(struct search *s, char *path)
{
    if (path[0] == '@')
        return;
    if (path[0] != '/') {
        mark_relative(s->m, path, s->ret);
        return;
    }
    /* nearly all of them; these directories are nobody's to turn into links */
    if (str_starts(path, "/run/") || str_starts(path, "/var/run/"))
        return;
    mark(s->m, path, s->ret);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    if (!path[0] || strv_has(&s->dirs, path))
        return;
    strv_add(&s->dirs, path);
    AUTOFREE char *real = fs_realpath(path);
    if (real && strcmp(real, path) != 0)
        mark(s->m, real, s->ret);
}

/* "Num: RefCount Protocol Flags Type St Inode Path"; NULL for a socket without a name, and for the
 * server's end of a connection, which has the name of the socket it came through. */
static char *path_of(char *line)
{
    char *p = line;
    bool stream = false, connected = false;
    for (int f = 0; f < 7 && *p; f++) {
        p += strspn(p, " ");
        stream |= f == 4 && (strncmp(p, "0001 ", 5) == 0 || strncmp(p, "0005 ", 5) == 0);
        connected |= f == 5 && strncmp(p, "03 ", 3) == 0;
        p += strcspn(p, " ");
    }
    return *p == ' ' && p[1] && strncmp(line, "Num", 3) != 0 && !(stream && connected) ? p + 1
                                                                                       : NULL;
}

int host_socket_trees_in(const char *table, const struct plan_mounts *mounts,
                         struct strv *ret_overlay, struct err **e)
{
    struct search s = { .m = mounts, .ret = ret_overlay };
    AUTOFREE char *text = NULL;
    char *save = NULL;

    if (fs_read(AT_FDCWD, table, MAX_TABLE, &text, NULL, NULL) < 0) {
        for (size_t i = 0; i < mounts->n; i++)
            if (mounts->v[i].kind == MOUNT_BIND)
                strv_add(ret_overlay, mounts->v[i].dst);
        return 0;
    }
    for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        char *path = path_of(l);
        if (path)
            one_socket(&s, path);
    }
    strv_free_p(&s.dirs);
    return 0;
}

/* One socket as the kernel tells of it; one without a name, or with an abstract one, is none of ours. A datagram socket
 * counts as connected as soon as anybody connected to it. */
static void one_message(struct search *s, struct nlmsghdr *h)
{
    int n = (int)h->nlmsg_len - (int)NLMSG_LENGTH(sizeof(struct unix_diag_msg));
    struct unix_diag_msg *m = NLMSG_DATA(h);

    if (n < 0 || (m->udiag_type != SOCK_DGRAM && m->udiag_state == TCP_ESTABLISHED))
        return;
    for (struct rtattr *a = (struct rtattr *)(m + 1); RTA_OK(a, n); a = RTA_NEXT(a, n)) {
        AUTOFREE char *path = NULL;
        const char *name = RTA_DATA(a);
        if (a->rta_type != UNIX_DIAG_NAME || RTA_PAYLOAD(a) == 0 || !name[0])
            continue;
        path = str_printf("%.*s", (int)RTA_PAYLOAD(a), name);
        one_socket(s, path);
    }
}

/* The kernel answers in pieces; 1: the last of them. */
static int one_answer(struct search *s, int fd)
{
    char buf[32768] __attribute__((aligned(NLMSG_ALIGNTO)));
    ssize_t got = RETRY(recv(fd, buf, sizeof buf, 0));
    unsigned n = got < 0 ? 0 : (unsigned)got;

    if (n == 0)
        return -1;
    for (struct nlmsghdr *h = (struct nlmsghdr *)buf; NLMSG_OK(h, n); h = NLMSG_NEXT(h, n)) {
        if (h->nlmsg_type == NLMSG_DONE)
            return 1;
        if (h->nlmsg_type != SOCK_DIAG_BY_FAMILY)
            return -1;
        one_message(s, h);
    }
    return 0;
}

/* A machine may have thousands: to ask is faster than to have the table written and to read it. */
static bool ask_kernel(const struct plan_mounts *mounts, struct strv *ret_overlay)
{
    struct {
        struct nlmsghdr head;
        struct unix_diag_req req;
    } ask = {
        .head = { .nlmsg_len = sizeof ask,
                  .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                  .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
        .req = { .sdiag_family = AF_UNIX, .udiag_states = ~0U, .udiag_show = UDIAG_SHOW_NAME },
    };
    AUTOCLOSE int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    struct search s = { .m = mounts, .ret = ret_overlay };
    int rc = fd < 0 || send(fd, &ask, sizeof ask, 0) != sizeof ask ? -1 : 0;

    while (rc == 0)
        rc = one_answer(&s, fd);
    strv_free_p(&s.dirs);
    return rc == 1;
}

int host_socket_trees(const struct plan_mounts *mounts, struct strv *ret_overlay, struct err **e)
{
    if (ask_kernel(mounts, ret_overlay))
        return 0;
    return host_socket_trees_in("/proc/net/unix", mounts, ret_overlay, e);
}

/* Asked with a type that most are not of: nobody has to accept a connection. */
static bool is_live(int dir, const char *name)
{
    AUTOCLOSE int s = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int n = snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/%s", dir, name);

    return n >= (int)sizeof a.sun_path || connect(s, (struct sockaddr *)&a, sizeof a) == 0 ||
           (errno != ECONNREFUSED && errno != ENOENT && errno != EACCES);
}

enum { LOOK_AT_MOST = 100000, DEPTH = 100 };

static bool live_below(int fd, unsigned depth, unsigned *left)
{
    DIR *d = depth > DEPTH ? NULL : fs_list(fd);
    struct dirent *de;
    bool found = false;

    while (d && !found && *left > 0 && (de = fs_next(d))) {
        bool dir = de->d_type == DT_DIR, unsure = de->d_type == DT_UNKNOWN;
        AUTOCLOSE int sub = -1;
        (*left)--;
        if (dir || unsure)
            sub = openat(dirfd(d), de->d_name,
                         O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (sub >= 0)
            found = live_below(sub, depth + 1, left);
        else if (de->d_type == DT_SOCK || unsure)
            found = is_live(dirfd(d), de->d_name);
    }
    if (d)
        closedir(d);
    return found;
}

bool host_socket_below(const char *path)
{
    AUTOCLOSE int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    unsigned left = LOOK_AT_MOST;

    return fd >= 0 && live_below(fd, 0, &left);
}
