#include "runtime/change/source.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "runtime/change/hash.h"

/* --- messages ---------------------------------------------------------------------------------------- */

enum { WINDOW = 32 };

struct head {
    uint32_t len;
    char what;
};

int source_send(int sock, char what, const void *p, size_t n, int fd)
{
    struct head h = { .len = (uint32_t)n, .what = what };
    struct iovec v[2] = { { &h, sizeof h }, { (void *)(uintptr_t)p, n } };
    union {
        char buf[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } c = { 0 };
    struct msghdr m = { .msg_iov = v, .msg_iovlen = n ? 2 : 1 };

    if (fd >= 0) {
        m.msg_control = c.buf;
        m.msg_controllen = sizeof c.buf;
        struct cmsghdr *cm = CMSG_FIRSTHDR(&m);
        cm->cmsg_level = SOL_SOCKET;
        cm->cmsg_type = SCM_RIGHTS;
        cm->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(cm), &fd, sizeof fd);
    }
    ssize_t sent = RETRY(sendmsg(sock, &m, MSG_NOSIGNAL));
    if (sent < (ssize_t)sizeof h)
        return -1;
    size_t done = (size_t)sent - sizeof h;
    return done < n ? fs_write_all(sock, (const char *)p + done, n - done) : 0;
}

static int read_all(int sock, void *p, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = RETRY(read(sock, (char *)p + done, n - done));
        if (k <= 0)
            return -1;
        done += (size_t)k;
    }
    return 0;
}

int source_receive(int sock, char *ret_what, struct str *ret, int *ret_fd, struct err **e)
{
    struct head h;
    struct iovec v = { &h, sizeof h };
    union {
        char buf[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } c = { 0 };
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = c.buf, .msg_controllen = sizeof c.buf
    };
    AUTOCLOSE int fd = -1;

    ssize_t n = RETRY(recvmsg(sock, &m, MSG_CMSG_CLOEXEC | MSG_WAITALL));
    struct cmsghdr *cm = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
    if (cm && cm->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(cm), sizeof fd);
    if (n != (ssize_t)sizeof h)
        return err_new(e, ERR_FAILED, "the process that reads the sandbox ended");
    str_reset(ret);
    if (h.len) {
        ret->p = mem_zalloc((size_t)h.len + 1);
        ret->cap = (size_t)h.len + 1;
        ret->len = h.len;
        if (read_all(sock, ret->p, h.len) < 0)
            return err_new(e, ERR_FAILED, "the process that reads the sandbox ended");
    }
    *ret_what = h.what;
    if (ret_fd)
        *ret_fd = TAKE_FD(fd);
    return 0;
}

/* An answer; 'E' is a failure: its code, then text. */
static int hear(struct source *s, struct str *ret, int *ret_fd, char *ret_what, struct err **e)
{
    AUTOCLOSE int fd = -1;
    int rc;

    if ((rc = source_receive(s->sock, ret_what, ret, &fd, e)) < 0)
        return rc;
    if (*ret_what == 'E')
        return err_new(e, ret->len ? (enum err_code)ret->p[0] : ERR_FAILED, "%s",
                       ret->len > 1 ? ret->p + 1 : "can't read the sandbox");
    if (ret_fd)
        *ret_fd = TAKE_FD(fd);
    return 0;
}

static int ask(struct source *s, char what, const void *p, size_t n, struct str *ret, int *ret_fd,
               char *ret_what, struct err **e)
{
    for (; s->got < s->sent; s->got++) { /* answers that nobody wants any more */
        AUTOSTR struct str text = STR_INIT;
        AUTOCLOSE int fd = -1;
        char old;
        (void)hear(s, &text, &fd, &old, NULL);
    }
    s->n_ahead = s->got; /* the order is broken: from here on one by one */
    /* a child that has failed says why and goes, whether it was asked or not */
    bool sent = source_send(s->sock, what, p, n, -1) == 0;
    int rc = hear(s, ret, ret_fd, ret_what, e);
    return rc == 0 && !sent ? err_new(e, ERR_FAILED, "the process that reads the sandbox ended")
                            : rc;
}

void source_ahead(struct source *s, size_t *order, size_t n)
{
    free(s->ahead);
    s->ahead = order;
    s->n_ahead = n;
    s->sent = s->got = 0;
}

/* --- the list ---------------------------------------------------------------------------------------- */

struct cursor {
    const char *p, *end;
    bool bad;
};

static void take(struct cursor *c, void *to, size_t n)
{
    if ((size_t)(c->end - c->p) < n) {
        c->bad = true;
        memset(to, 0, n);
        return;
    }
    memcpy(to, c->p, n);
    c->p += n;
}

static uint64_t take_u64(struct cursor *c)
{
    uint64_t v;
    take(c, &v, sizeof v);
    return v;
}

static char *take_str(struct cursor *c)
{
    uint64_t n = take_u64(c);
    if (n == UINT64_MAX || (uint64_t)(c->end - c->p) < n)
        return NULL;
    char *s = mem_zalloc(n + 1);
    take(c, s, n);
    return s;
}

static void take_change(struct cursor *c, struct change *ch)
{
    /* plain members, and pointers that mean nothing here; the table of risks is the same in both */
    take(c, ch, sizeof *ch);
    ch->path = take_str(c);
    ch->old_path = ch->old_text = NULL;
    if (ch->new_text)
        ch->new_text = take_str(c);
    ch->risks = mem_zalloc((ch->n_risks + 1) * sizeof *ch->risks);
    for (size_t i = 0; i < ch->n_risks; i++) {
        take(c, &ch->risks[i].rule, sizeof ch->risks[i].rule);
        ch->risks[i].detail = take_str(c);
    }
    c->bad |= !ch->path;
}

static int take_list(struct source *s, const struct str *text, struct err **e)
{
    struct cursor c = { text->p, text->p + text->len, false };

    take(&c, s->c.id, sizeof s->c.id);
    s->c.n = take_u64(&c);
    s->c.v = mem_zalloc((s->c.n + 1) * sizeof *s->c.v);
    for (size_t i = 0; i < s->c.n; i++)
        take_change(&c, &s->c.v[i]);
    s->c.n_ignored = take_u64(&c);
    s->c.ignored = mem_zalloc((s->c.n_ignored + 1) * sizeof *s->c.ignored);
    for (size_t i = 0; i < s->c.n_ignored; i++) {
        s->c.ignored[i].path = take_str(&c);
        s->c.ignored[i].files = take_u64(&c);
    }
    for (uint64_t n = take_u64(&c); n && !c.bad; n--)
        strv_take(&s->c.repos, take_str(&c));
    s->n_made = take_u64(&c);
    s->made = mem_zalloc((s->n_made + 1) * sizeof *s->made);
    for (size_t i = 0; i < s->n_made; i++) {
        s->made[i].path = take_str(&c);
        s->made[i].mode = (mode_t)take_u64(&c);
    }
    for (uint64_t n = take_u64(&c); n && !c.bad; n--)
        strv_take(&s->gone, take_str(&c));
    return c.bad ? err_new(e, ERR_INTERNAL, "a list of changes that ends too early") : 0;
}

/* --- the child --------------------------------------------------------------------------------------- */

static _Noreturn void child(const struct record *r, const struct strv *paths, int sock,
                            pid_t parent)
{
    struct serve sv = { .r = r, .paths = paths, .sock = sock };
    struct err *e = NULL;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    if (record_run_inside(r, serve_run, &sv, &e) < 0) {
        AUTOFREE char *text = err_text(e);
        AUTOFREE char *msg = str_printf("%c%s", (char)e->code, text);
        (void)source_send(sock, 'E', msg, strlen(msg), -1);
    }
    _exit(0);
}

int source_open(const struct record *r, const struct strv *paths, struct source *ret,
                struct err **e)
{
    CLEANUP(source_close_p) struct source s = { .sock = -1 };
    AUTOSTR struct str text = STR_INIT;
    pid_t parent = getpid();
    int pair[2], rc;
    char what;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(e, "socket pair");
    s.pid = fork();
    if (s.pid == 0) {
        close(pair[0]);
        child(r, paths, pair[1], parent);
    }
    close(pair[1]);
    s.sock = pair[0];
    if (s.pid < 0)
        return err_sys(e, "fork");
    if ((rc = ask(&s, 'C', NULL, 0, &text, NULL, &what, e)) < 0 ||
        (rc = take_list(&s, &text, e)) < 0)
        return rc;
    *ret = s;
    s = (struct source){ .sock = -1 };
    return 0;
}

void source_close_p(struct source *s)
{
    int status;
    close_p(&s->sock);
    if (s->pid > 0)
        (void)RETRY(waitpid(s->pid, &status, 0));
    for (size_t i = 0; i < s->n_made; i++)
        free(s->made[i].path);
    free(s->made);
    free(s->ahead);
    strv_free_p(&s->gone);
    changeset_free_p(&s->c);
    *s = (struct source){ .sock = -1 };
}

int source_same(const struct source *s, size_t i, const char *text, size_t n, struct err **e)
{
    char digest[HASH_HEX + 1];

    hash_text(text ? text : "", n, digest);
    if (strcmp(digest, s->c.v[i].new_digest) == 0)
        return 0;
    return err_new(e, ERR_BUSY, "the content of '%s' is not what was reviewed; try again",
                   s->c.v[i].path);
}

int source_content(struct source *s, size_t i, int *ret_fd, char **ret_link, struct err **e)
{
    AUTOSTR struct str text = STR_INIT;
    AUTOCLOSE int fd = -1;
    uint64_t index = i;
    char what;
    int rc = 0;

    if (s->got < s->n_ahead && s->ahead[s->got] == i) {
        for (; s->sent < s->n_ahead && s->sent < s->got + WINDOW && rc == 0; s->sent++) {
            index = s->ahead[s->sent];
            rc = source_send(s->sock, 'O', &index, sizeof index, -1);
        }
        if (rc < 0)
            return err_sys(e, "talk to the process that reads the sandbox");
        s->got++;
        rc = hear(s, &text, &fd, &what, e);
    } else {
        rc = ask(s, 'O', &index, sizeof index, &text, &fd, &what, e);
    }
    if (rc < 0)
        return rc;
    if (what == 'L' && (rc = source_same(s, i, text.p, text.len, e)) < 0)
        return rc;
    *ret_link = what == 'L' ? str_take(&text) : NULL;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int ask_fd(struct source *s, char what, const char *path, int *ret_fd, struct err **e)
{
    AUTOSTR struct str text = STR_INIT;
    char got;
    int rc = ask(s, what, path, strlen(path), &text, ret_fd, &got, e);
    if (rc == 0 && *ret_fd < 0)
        rc = err_new(e, ERR_INTERNAL, "no descriptor came");
    return rc;
}

int source_file(struct source *s, const char *path, int *ret_fd, struct err **e)
{
    return ask_fd(s, 'P', path, ret_fd, e);
}

int source_base(struct source *s, const char *path, int *ret_fd, struct err **e)
{
    return ask_fd(s, 'B', path, ret_fd, e);
}

int source_origin(struct source *s, const char *path, struct str *ret, struct err **e)
{
    char what;
    return ask(s, 'X', path, strlen(path), ret, NULL, &what, e);
}

int source_commits(struct source *s, int *ret_fd, struct str *ret_refs, struct err **e)
{
    char what;
    return ask(s, 'G', NULL, 0, ret_refs, ret_fd, &what, e);
}
