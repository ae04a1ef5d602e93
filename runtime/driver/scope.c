#include "runtime/driver/scope.h"

#include <endian.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include "base/fs.h"
#include "base/str.h"

_Static_assert(__BYTE_ORDER == __LITTLE_ENDIAN, "messages are written in the machine's byte order");

#define WAIT_MS 5000
#define MAX_READ (256 * 1024)
#define STRANGE "the systemd user manager sent a strange message"
enum { CALL = 1, RETURN = 2, ERROR = 3 };
enum {
    F_PATH = 1,
    F_INTERFACE,
    F_MEMBER,
    F_ERROR_NAME,
    F_REPLY,
    F_DESTINATION,
    F_SENDER,
    F_SIGNATURE
};

struct scope {
    int fd;
    char *unit;
    struct str in;   /* not yet understood */
    bool authorised; /* the line of the handshake was seen */
    bool answered;
    uint32_t serial; /* of the call that counts */
};

/* ---- writing ----------------------------------------------------------------------------------- */

static void pad(struct str *s, size_t to)
{
    while (s->len % to)
        str_addc(s, '\0');
}

static void put_u32(struct str *s, uint32_t v)
{
    pad(s, 4);
    str_addn(s, &v, sizeof v);
}

static void put_string(struct str *s, const char *v)
{
    put_u32(s, (uint32_t)strlen(v));
    str_addn(s, v, strlen(v) + 1);
}

static void put_signature(struct str *s, const char *v)
{
    str_addc(s, (char)strlen(v));
    str_addn(s, v, strlen(v) + 1);
}

/* An array begins with its length in bytes, not counting the padding before its first element. */
static size_t array_begin(struct str *s, size_t align, size_t *ret_at)
{
    put_u32(s, 0);
    *ret_at = s->len - 4;
    pad(s, align);
    return s->len;
}

static void array_end(struct str *s, size_t begin, size_t at)
{
    uint32_t n = (uint32_t)(s->len - begin);
    memcpy(s->p + at, &n, sizeof n);
}

static void property(struct str *s, const char *name, const char *type)
{
    pad(s, 8);
    put_string(s, name);
    put_signature(s, type);
}

static void body_start_unit(struct str *b, const char *unit)
{
    size_t at, begin, at2, begin2;

    put_string(b, unit);
    put_string(b, "fail");
    begin = array_begin(b, 8, &at);
    property(b, "Description", "s");
    put_string(b, "petri sandbox");
    property(b, "Delegate", "b");
    put_u32(b, 1);
    property(b, "CollectMode", "s");
    put_string(b, "inactive-or-failed");
    property(b, "PIDs", "au");
    begin2 = array_begin(b, 4, &at2);
    put_u32(b, (uint32_t)getpid());
    array_end(b, begin2, at2);
    array_end(b, begin, at);
    begin = array_begin(b, 8, &at); /* auxiliary units: none */
    array_end(b, begin, at);
}

static void field(struct str *s, int code, const char *type, const char *value)
{
    pad(s, 8);
    str_addc(s, (char)code);
    put_signature(s, type);
    if (*type == 'g')
        put_signature(s, value);
    else
        put_string(s, value);
}

static void add_call(struct str *out, uint32_t serial, const char *dest, const char *path,
                     const char *interface, const char *member, const struct str *body)
{
    AUTOSTR struct str m = STR_INIT; /* of its own: alignment counts from the message's start */
    size_t at, begin;

    str_addn(&m, (char[]){ 'l', CALL, 0, 1 }, 4);
    put_u32(&m, body ? (uint32_t)body->len : 0);
    put_u32(&m, serial);
    begin = array_begin(&m, 8, &at);
    field(&m, F_PATH, "o", path);
    field(&m, F_DESTINATION, "s", dest);
    field(&m, F_INTERFACE, "s", interface);
    field(&m, F_MEMBER, "s", member);
    if (body)
        field(&m, F_SIGNATURE, "g", "ssa(sv)a(sa(sv))");
    array_end(&m, begin, at);
    pad(&m, 8);
    if (body)
        str_addn(&m, body->p, body->len);
    str_addn(out, m.p, m.len);
}

/* Everything in one go: the server works through handshake and calls in order. */
static int send_request(struct scope *s, bool bus)
{
    AUTOSTR struct str out = STR_INIT, body = STR_INIT;
    char uid[16];

    snprintf(uid, sizeof uid, "%u", (unsigned)geteuid());
    str_addc(&out, '\0');
    str_add(&out, "AUTH EXTERNAL ");
    for (const char *p = uid; *p; p++)
        str_addf(&out, "%02x", (unsigned)*p);
    str_add(&out, "\r\nBEGIN\r\n");
    if (bus)
        add_call(&out, ++s->serial, "org.freedesktop.DBus", "/org/freedesktop/DBus",
                 "org.freedesktop.DBus", "Hello", NULL);
    body_start_unit(&body, s->unit);
    add_call(&out, ++s->serial, "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
             "org.freedesktop.systemd1.Manager", "StartTransientUnit", &body);
    return fs_write_all(s->fd, out.p, out.len);
}

/* ---- reading ----------------------------------------------------------------------------------- */

static uint32_t get_u32(const char *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Finds which call a message answers; 0: none. */
static uint32_t reply_serial(const char *m, size_t end)
{
    for (size_t p = 16; p + 4 < end;) {
        int code = m[p];
        char type = m[p + 2];
        p += 4; /* code, signature "x" with its length and NUL */
        if (type == 'u') {
            p = (p + 3) & ~(size_t)3;
            if (p + 4 > end)
                return 0;
            if (code == F_REPLY)
                return get_u32(m + p);
            p += 4;
        } else if (type == 'g') {
            p += (size_t)(unsigned char)m[p] + 2;
        } else {
            p = (p + 3) & ~(size_t)3;
            if (p + 4 > end)
                return 0;
            p += (size_t)get_u32(m + p) + 5;
        }
        p = (p + 7) & ~(size_t)7;
    }
    return 0;
}

static void consume(struct str *s, size_t n)
{
    memmove(s->p, s->p + n, s->len - n + 1);
    s->len -= n;
}

/* Works through what has arrived; sets answered. An answer that says no is the error. */
static int understand(struct scope *s, struct err **e)
{
    if (s->in.len > 2 * MAX_READ)
        return err_new(e, ERR_FAILED, STRANGE);
    if (!s->authorised) {
        char *eol = s->in.len ? strstr(s->in.p, "\r\n") : NULL;
        if (!eol)
            return 0;
        if (!str_starts(s->in.p, "OK "))
            return err_new(e, ERR_FAILED, "the systemd user manager refused the connection");
        consume(&s->in, (size_t)(eol + 2 - s->in.p));
        s->authorised = true;
    }
    while (s->in.len >= 16) {
        const char *m = s->in.p;
        uint64_t fields = get_u32(m + 12), body = get_u32(m + 4);
        uint64_t head = (16 + fields + 7) & ~(uint64_t)7;
        if (m[0] != 'l' || head + body > MAX_READ)
            return err_new(e, ERR_FAILED, STRANGE);
        if (s->in.len < head + body)
            return 0;
        if ((m[1] == RETURN || m[1] == ERROR) && reply_serial(m, 16 + fields) == s->serial) {
            if (m[1] == ERROR) {
                size_t n = body > 4 && get_u32(m + head) <= body - 5 ? get_u32(m + head) : 0;
                return err_new(e, ERR_FAILED, "the systemd user manager made no scope: %.*s",
                               (int)n, m + head + 4);
            }
            s->answered = true;
        }
        consume(&s->in, head + body);
    }
    return 0;
}

/* ---- interface --------------------------------------------------------------------------------- */

static int connect_to(const char *dir, const char *name)
{
    struct sockaddr_un sa = { .sun_family = AF_UNIX };
    struct ucred peer;
    socklen_t n = sizeof peer;
    AUTOCLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (snprintf(sa.sun_path, sizeof sa.sun_path, "%s/%s", dir, name) >= (int)sizeof sa.sun_path)
        return -1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof sa) < 0)
        return -1;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0 || peer.uid != geteuid())
        return -1;
    return TAKE_FD(fd);
}

int scope_request(const char *unit, struct scope **ret, struct err **e)
{
    CLEANUP(scope_free_p) struct scope *s = mem_zalloc(sizeof *s);
    AUTOFREE char *run = str_printf("/run/user/%u", (unsigned)geteuid());
    const char *dir = fs_is_dir(run) ? run : getenv("XDG_RUNTIME_DIR");
    bool bus = false;

    s->fd = -EBADF;
    s->unit = str_dup(unit);
    if (dir && (s->fd = connect_to(dir, "systemd/private")) < 0) {
        s->fd = connect_to(dir, "bus");
        bus = true;
    }
    if (s->fd < 0)
        return err_new(e, ERR_UNSUPPORTED, "no systemd user manager answers in '%s'", run);
    if (send_request(s, bus) < 0)
        return err_sys(e, "send to the systemd user manager");
    *ret = TAKE_PTR(s);
    return 0;
}

static bool arrived(const struct scope *s)
{
    AUTOFREE char *text = NULL;
    AUTOFREE char *want = str_printf("/%s\n", s->unit);
    return fs_read(AT_FDCWD, "/proc/self/cgroup", 1 << 16, &text, NULL, NULL) == 0 &&
           strstr(text, want);
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int scope_wait(struct scope *s, struct err **e)
{
    int64_t end = now_ms() + WAIT_MS, left;
    char buf[4096];

    /* The answer only says that the job is queued; whatever comes after it is a reason to look again. */
    while ((left = end - now_ms()) > 0) {
        struct pollfd p = { .fd = s->fd, .events = POLLIN };
        if (s->answered && arrived(s))
            return 0;
        if (poll(&p, 1, s->answered ? 1 : (int)left) <= 0 || s->fd < 0)
            continue;
        ssize_t n = RETRY(read(s->fd, buf, sizeof buf));
        if (n <= 0 && !s->answered)
            return err_new(e, ERR_FAILED, "the systemd user manager closed the connection");
        if (n <= 0) {
            close_p(&s->fd);
            continue;
        }
        str_addn(&s->in, buf, (size_t)n);
        if (!s->answered && understand(s, e) < 0)
            return -(int)ERR_FAILED;
        if (s->answered)
            str_reset(&s->in);
    }
    return err_new(e, ERR_FAILED, "the systemd user manager made no scope within %d s",
                   WAIT_MS / 1000);
}

struct scope *scope_free(struct scope *s)
{
    if (!s)
        return NULL;
    close_p(&s->fd);
    str_reset(&s->in);
    free(s->unit);
    free(s);
    return NULL;
}
