#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

static int err_make(struct err **e, enum err_code code, int sys, struct err *cause, const char *fmt,
                    va_list ap)
{
    struct err *n;

    if (!e) {
        err_free(cause);
        return -(int)code;
    }
    n = mem_zalloc(sizeof *n);
    n->code = code;
    n->sys = sys;
    n->cause = cause;
    if (vasprintf(&n->msg, fmt, ap) < 0)
        abort();
    if (*e && *e != cause)
        err_free(*e);
    *e = n;
    return -(int)code;
}

int err_new(struct err **e, enum err_code code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int rc = err_make(e, code, 0, NULL, fmt, ap);
    va_end(ap);
    return rc;
}

int err_sys(struct err **e, const char *fmt, ...)
{
    int sys = errno;
    va_list ap;
    va_start(ap, fmt);
    int rc = err_make(e, ERR_FAILED, sys, NULL, fmt, ap);
    va_end(ap);
    errno = sys;
    return rc;
}

int err_wrap(struct err **e, const char *fmt, ...)
{
    va_list ap;
    if (!e || !*e)
        return -ERR_FAILED;
    va_start(ap, fmt);
    int rc = err_make(e, (*e)->code, (*e)->sys, *e, fmt, ap);
    va_end(ap);
    return rc;
}

const char *err_code_name(enum err_code code)
{
    static const char *const names[] = {
        [ERR_FAILED] = "failed",   [ERR_USAGE] = "usage",
        [ERR_INVALID] = "invalid", [ERR_NOT_FOUND] = "not_found",
        [ERR_EXISTS] = "exists",   [ERR_BUSY] = "busy",
        [ERR_DENIED] = "denied",   [ERR_UNSUPPORTED] = "unsupported",
        [ERR_LIMIT] = "limit",     [ERR_STOPPED] = "stopped",
        [ERR_CORRUPT] = "corrupt", [ERR_INTERNAL] = "internal",
    };
    return (size_t)code < ARRAY_LEN(names) && names[code] ? names[code] : "failed";
}

char *err_text(const struct err *e)
{
    struct str s = STR_INIT;
    for (; e; e = e->cause) {
        str_add(&s, e->msg);
        if (e->cause)
            str_add(&s, ": ");
        else if (e->sys)
            str_addf(&s, ": %s", strerror(e->sys));
    }
    return str_take(&s);
}

struct err *err_free(struct err *e)
{
    while (e) {
        struct err *cause = e->cause;
        free(e->msg);
        free(e);
        e = cause;
    }
    return NULL;
}
