#include "runtime/client/client.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <time.h>

#include "base/paths.h"

static int fill(struct petri_error *e, const char *code, int sys, const char *fmt, va_list ap)
{
    struct petri_error own = { .size = sizeof own, .sys = sys };

    if (!e)
        return -1;
    snprintf(own.code, sizeof own.code, "%s", code);
    int n = vsnprintf(own.message, sizeof own.message, fmt, ap);
    if (sys && n >= 0 && n < (int)sizeof own.message) {
        errno = sys;
        snprintf(own.message + n, sizeof own.message - (size_t)n, ": %m");
    }
    client_give(&own, sizeof own, e);
    return -1;
}

int client_fail(struct petri_error *e, const char *code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fill(e, code, 0, fmt, ap);
    va_end(ap);
    return -1;
}

int client_sys(struct petri_error *e, const char *fmt, ...)
{
    int sys = errno;
    va_list ap;
    va_start(ap, fmt);
    fill(e, "failed", sys, fmt, ap);
    va_end(ap);
    errno = sys;
    return -1;
}

void client_take(void *own, size_t n, const void *theirs)
{
    size_t size = *(const size_t *)theirs;
    memset(own, 0, n);
    memcpy(own, theirs, size < n ? size : n);
    *(size_t *)own = n;
}

void client_give(const void *own, size_t n, void *theirs)
{
    size_t size = *(const size_t *)theirs;
    if (size < n)
        n = size;
    if (n > sizeof size)
        memcpy((char *)theirs + sizeof size, (const char *)own + sizeof size, n - sizeof size);
}

uint64_t client_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

const char *petri_version(void)
{
    return PETRI_VERSION;
}

int petri_client_new(const struct petri_client_options *o, struct petri_client **ret,
                     struct petri_error *e)
{
    struct petri_client_options own = PETRI_CLIENT_OPTIONS_INIT;
    struct petri_client c = { 0 };

    if (o)
        client_take(&own, sizeof own, o);
    if (own.home && own.home[0] != '/')
        return client_fail(e, "invalid", "home '%s': it must be an absolute path", own.home);
    if (own.home) {
        c.data = str_dup(own.home);
        c.run = path_join(own.home, "run");
    } else {
        struct paths p;
        CLEANUP(err_free_p) struct err *why = NULL;
        if (paths_find(&p, &why) < 0)
            return client_fail(e, err_code_name(why->code), "%s", why->msg);
        c.data = p.data;
        c.run = p.run;
    }
    c.program = str_dup(own.program);
    *ret = mem_dup(&c, sizeof c);
    return 0;
}

void petri_client_free(struct petri_client *c)
{
    if (!c)
        return;
    free(c->data);
    free(c->run);
    free(c->program);
    free(c);
}

int petri_open(struct petri_client *c, const char *name, const char *dir,
               struct petri_sandbox **ret, struct petri_error *e)
{
    struct petri_sandbox *s = malloc(sizeof *s); /* its buffer is not worth clearing */
    if (!s)
        abort();
    s->client = c;
    s->name = s->sub = NULL;
    s->has_files = false;
    s->files.fd = s->files.passed = -1;
    if (client_find(c, name, dir, s, e) < 0) {
        petri_close(s);
        return -1;
    }
    *ret = s;
    return 0;
}

void petri_close(struct petri_sandbox *s)
{
    if (!s)
        return;
    conn_close(&s->files);
    free(s->name);
    free(s->sub);
    free(s);
}

const char *petri_id(const struct petri_sandbox *s)
{
    return s->id;
}

const char *petri_name(struct petri_sandbox *s)
{
    char *name = str_starts(s->id, s->name) ? client_name_of(s->client, s->id) : NULL;
    if (name) {
        free(s->name);
        s->name = name;
    }
    return s->name;
}

enum { START_TRIES = 1000, START_STEP_MS = 10 };

/* Somebody has its lock: a keeper that is about to serve, or one that ends. */
static bool is_in_between(const struct petri_sandbox *s)
{
    AUTOFREE char *path = str_printf("%s/sandboxes/%s/lock", s->client->data, s->id);
    AUTOCLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

int client_connect(struct petri_sandbox *s, const char *door, struct conn *ret,
                   struct petri_error *e)
{
    AUTOFREE char *dir = path_join(s->client->run, s->id);

    for (int i = 0; i < START_TRIES; i++) {
        if (conn_open(dir, door, ret) == 0)
            return 0;
        int why = errno;
        if ((why != ENOENT && why != ECONNREFUSED) || !is_in_between(s)) {
            errno = why;
            break;
        }
        nanosleep(&(struct timespec){ .tv_nsec = START_STEP_MS * 1000000L }, NULL);
        errno = why;
    }
    if (errno != ENOENT && errno != ECONNREFUSED && errno != ENOTDIR)
        return client_sys(e, "sandbox '%s' does not answer", s->name);
    AUTOFREE char *home = str_printf("%s/sandboxes/%s", s->client->data, s->id);
    (void)petri_name(s);
    if (access(home, F_OK) < 0)
        return client_fail(e, "not_found", "sandbox '%s' is gone; petri ls lists those there are",
                           s->name);
    return client_fail(e, "stopped", "sandbox '%s' is stopped; petri start %s", s->name, s->name);
}

int client_lost(const struct petri_sandbox *s, const struct conn *c, struct petri_error *e)
{
    int sys = errno;

    if (c->other[0]) {
        AUTOSTR struct str version = STR_INIT;
        str_add_escaped(&version, c->other, strlen(c->other));
        return client_fail(e, "unsupported",
                           "sandbox '%s' was started by petri %s, which this petri can't talk to; "
                           "petri restart %s",
                           s->name, version.p, s->name);
    }
    errno = sys;
    if (errno == ETIMEDOUT)
        return client_fail(e, "failed", "sandbox '%s' does not answer", s->name);
    if (errno == EPROTO)
        return client_fail(e, "failed", "sandbox '%s' talks nonsense; the connection was closed",
                           s->name);
    return client_fail(e, "stopped", "sandbox '%s' ended or was replaced meanwhile", s->name);
}
