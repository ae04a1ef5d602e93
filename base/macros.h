/* base/macros.h - the few macros everything uses. */
#pragma once
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define CLEANUP(fn) __attribute__((cleanup(fn)))
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))
#define TAKE_FD(fd)                                                                                \
    ({                                                                                             \
        int t_ = (fd);                                                                             \
        (fd) = -EBADF;                                                                             \
        t_;                                                                                        \
    })
#define TAKE_PTR(p)                                                                                \
    ({                                                                                             \
        __typeof__(p) t_ = (p);                                                                    \
        (p) = NULL;                                                                                \
        t_;                                                                                        \
    })

/* Retries a call that a signal interrupted. */
#define RETRY(expr)                                                                                \
    ({                                                                                             \
        __typeof__(expr) r_;                                                                       \
        do                                                                                         \
            r_ = (expr);                                                                           \
        while (r_ < 0 && errno == EINTR);                                                          \
        r_;                                                                                        \
    })

/* Closes *fd where it is open; keeps errno, so that it can stand in any error path. */
static inline void close_p(int *fd)
{
    if (*fd >= 0) {
        int saved = errno;
        close(*fd);
        errno = saved;
    }
    *fd = -EBADF;
}

static inline void free_p(void *p)
{
    free(*(void **)p);
    *(void **)p = NULL;
}
#define AUTOFREE CLEANUP(free_p)
#define AUTOCLOSE CLEANUP(close_p)
