/* runtime/client/control.c - one question to a sandbox's keeper: a line of JSON each way. */
#include <poll.h>
#include <sys/socket.h>

#include "runtime/client/client.h"

enum { MAX_ANSWER = 16 << 20 };

/* The text after "key":" up to the closing quote; of escapes only the simple ones are undone. */
static void member(const char *text, const char *key, char *ret, size_t n)
{
    const char *at = strstr(text, key);
    size_t len = 0;

    for (at = at ? at + strlen(key) : ""; *at && *at != '"' && len + 1 < n; at++) {
        if (*at == '\\' && (at[1] == '"' || at[1] == '\\' || at[1] == '/'))
            at++;
        ret[len++] = *at;
    }
    ret[len] = '\0';
}

static int error_in(const char *answer, struct petri_error *e)
{
    char code[16], message[1024];

    if (!str_starts(answer, "{\"error\":"))
        return 0;
    member(answer, "\"code\":\"", code, sizeof code);
    member(answer, "\"message\":\"", message, sizeof message);
    return client_fail(e, code[0] ? code : "failed", "%s",
                       message[0] ? message : "the sandbox's keeper refused");
}

static int wait_for(int fd, short events, uint64_t deadline)
{
    struct pollfd p = { .fd = fd, .events = events };
    uint64_t now = deadline ? client_now_us() : 0;
    int ms = !deadline ? -1 : now < deadline ? (int)((deadline - now) / 1000 + 1) : 0;
    int rc = RETRY(poll(&p, 1, ms));

    if (rc == 0)
        errno = ETIMEDOUT;
    return rc > 0 ? 0 : -1;
}

static int say(int fd, const char *p, size_t n, uint64_t deadline)
{
    while (n) {
        ssize_t w = RETRY(send(fd, p, n, MSG_NOSIGNAL));
        if (w < 0 && errno == EAGAIN && wait_for(fd, POLLOUT, deadline) == 0)
            continue;
        if (w < 0)
            return -1;
        p += w;
        n -= (size_t)w;
    }
    return 0;
}

/* One line; the other side may close after it or not. */
static int hear(int fd, struct str *ret, uint64_t deadline)
{
    char buf[16384];

    while (!ret->len || ret->p[ret->len - 1] != '\n') {
        ssize_t r = RETRY(recv(fd, buf, sizeof buf, 0));
        if (r < 0 && errno == EAGAIN) {
            if (wait_for(fd, POLLIN, deadline) < 0)
                return -1;
            continue;
        }
        if (r == 0 && ret->len)
            return 0;
        if (r == 0)
            errno = ECONNRESET;
        if (r <= 0)
            return -1;
        if (ret->len + (size_t)r > MAX_ANSWER) {
            errno = EPROTO;
            return -1;
        }
        str_addn(ret, buf, (size_t)r);
    }
    return 0;
}

int petri_control(struct petri_sandbox *s, const char *request, uint64_t timeout_ms, char **ret,
                  struct petri_error *e)
{
    AUTOSTR struct str line = STR_INIT, answer = STR_INIT;
    AUTOFREE struct conn *c = malloc(sizeof *c);
    uint64_t deadline = timeout_ms ? client_now_us() + timeout_ms * 1000 : 0;
    int rc;

    if (!c)
        abort();
    if (strchr(request, '\n'))
        return client_fail(e, "invalid", "a request is one line");
    if (client_connect(s, "ctl", c, e) < 0)
        return -1;
    str_addf(&line, "%s\n", request);
    rc = say(c->fd, line.p, line.len, deadline);
    if (rc == 0)
        rc = hear(c->fd, &answer, deadline);
    if (rc < 0)
        client_lost(s, c, e);
    conn_close(c);
    if (rc < 0)
        return -1;
    while (answer.len && answer.p[answer.len - 1] == '\n')
        answer.p[--answer.len] = '\0';
    if (error_in(answer.p, e) < 0)
        return -1;
    if (ret)
        *ret = str_take(&answer);
    return 0;
}
