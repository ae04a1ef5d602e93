/* base/err.h - errors as values: a stable code, an errno where there was one, a cause chain.
 *
 * Every function that can fail takes `struct err **e` last and returns a negative code; layers
 * below cmd/ never print and never exit. Passing e == NULL discards the details.
 */
#pragma once
#include "base/macros.h"

enum err_code {
    ERR_FAILED = 1,  /* something did not work; the message says what */
    ERR_USAGE,       /* wrong words on the command line */
    ERR_INVALID,     /* a value that can't be right, from a flag, a file or an image */
    ERR_NOT_FOUND,   /* a sandbox, image, file or command that is not there */
    ERR_EXISTS,      /* a name that is taken */
    ERR_BUSY,        /* somebody else holds the lock */
    ERR_DENIED,      /* a rule of petri's forbids it */
    ERR_UNSUPPORTED, /* this machine can't do it; the message says the remedy */
    ERR_LIMIT,       /* a limit can't be enforced or a resource is short */
    ERR_STOPPED,     /* the sandbox does not run; the message says how to start it */
    ERR_CORRUPT,     /* content that does not match its digest or schema */
    ERR_INTERNAL,    /* a bug of ours */
};

struct err {
    enum err_code code;
    int sys; /* errno, or 0 */
    char *msg;
    struct err *cause;
};

/* Each returns -code, so that `return err_new(...)` reads well. */
int err_new(struct err **e, enum err_code code, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* Takes errno; a message "MSG: strerror" results. The code is ERR_FAILED. */
int err_sys(struct err **e, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Puts context in front of an error that *e holds already; keeps code and errno. */
int err_wrap(struct err **e, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* The stable word for JSON output, e.g. "not_found". */
const char *err_code_name(enum err_code code);
/* "context: context: what went wrong: No such file", on one line; the caller frees it. */
char *err_text(const struct err *e);
struct err *err_free(struct err *e);
static inline void err_free_p(struct err **e)
{
    *e = err_free(*e);
}
