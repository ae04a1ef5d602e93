/* <petri.h> - libpetri: talk to petri's sandboxes from a program.
 *
 * 0.x: calls may still change between minor versions; the SONAME changes with them.
 *
 * - Every call returns 0 or more on success and -1 on failure; then *e, which may be NULL, holds a
 *   code from a fixed set of words and a sentence.
 * - Structs begin with their size: start from NAME_INIT, so that a program that was built against an older
 *   header keeps working.
 * - Handles are opaque. One handle serves one thread at a time; handles share nothing, and there are no
 *   globals.
 * - The library starts no threads, changes no signals and never forks without executing. Nothing it does
 *   raises SIGPIPE. Where memory runs out it aborts.
 * - What it returns in `char **` or in a result is the caller's: free() or the named function.
 * - Descriptors it opens are close-on-exec.
 */
#ifndef PETRI_H
#define PETRI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PETRI_API __attribute__((visibility("default")))
#else
#define PETRI_API
#endif

/* --- errors ----------------------------------------------------------------------------------- */

/* code: "failed", "usage", "invalid", "not_found", "stopped", "exists", "busy", "denied",
 * "unsupported", "limit", "corrupt" or "internal". */
struct petri_error {
    size_t size;
    char code[16];
    int sys; /* errno, or 0 */
    char message[1024];
};
#define PETRI_ERROR_INIT                                                                           \
    {                                                                                              \
        .size = sizeof(struct petri_error)                                                         \
    }

/* --- where things are --------------------------------------------------------------------------- */

struct petri_client;
struct petri_sandbox;

struct petri_client_options {
    size_t size;
    const char *home; /* as PETRI_HOME; NULL: that, or the user's own place */
    const char
        *program; /* the program `petri`; NULL: $PETRI_PROGRAM, where it was installed, PATH */
};
#define PETRI_CLIENT_OPTIONS_INIT                                                                  \
    {                                                                                              \
        .size = sizeof(struct petri_client_options)                                                \
    }

PETRI_API const char *petri_version(void);

/* o may be NULL. */
PETRI_API int petri_client_new(const struct petri_client_options *o, struct petri_client **ret,
                               struct petri_error *e);
PETRI_API void petri_client_free(struct petri_client *c); /* after all of its sandboxes */

/* `name` is a name, an ID or the beginning of one. NULL: the project's own sandbox, looked for in
 * `dir` (NULL: $PETRI_SANDBOX, then the current directory) and above. It need not be running. */
PETRI_API int petri_open(struct petri_client *c, const char *name, const char *dir,
                         struct petri_sandbox **ret, struct petri_error *e);
PETRI_API void petri_close(struct petri_sandbox *s);
PETRI_API const char *petri_id(const struct petri_sandbox *s);
/* Its name, looked up where it was opened without; its ID where it has none. */
PETRI_API const char *petri_name(struct petri_sandbox *s);

/* --- commands ----------------------------------------------------------------------------------- */

struct petri_exec_options {
    size_t size;
    const char *const *argv; /* ends with NULL; looked up in the sandbox's PATH */
    const char *const *env;  /* NAME=VALUE, ends with NULL: on top of the sandbox's own */
    const char *cwd;         /* relative to the project. NULL: where petri_open() looked from */
    const char *user;        /* NAME, UID or UID:GID; NULL: the sandbox's own */
    uint64_t timeout_ms;     /* 0: none */
    int tty;                 /* give it a terminal, of this size: */
    unsigned short rows, cols;
    /* petri_exec() only: */
    const void *input;
    size_t input_len;
    uint64_t max_output; /* kept of each stream; 0: 10 MiB */
};
#define PETRI_EXEC_OPTIONS_INIT                                                                    \
    {                                                                                              \
        .size = sizeof(struct petri_exec_options)                                                  \
    }

struct petri_result {
    size_t size;
    int status;    /* as a shell's: the exit status, 128+n, 124 timed out, 125-127 not started */
    int exit_code; /* -1: it did not exit by itself */
    int signal;    /* that killed it, or 0 */
    int timed_out;
    int held_open; /* a process that goes on in the background still has its output open */
    int out_truncated, err_truncated;
    uint64_t wall_us, cpu_us, max_rss;
    char *out, *err; /* end with a NUL that is not counted */
    size_t out_len, err_len;
};
#define PETRI_RESULT_INIT                                                                          \
    {                                                                                              \
        .size = sizeof(struct petri_result)                                                        \
    }

/* Runs a command to its end. 0: it ran, *ret says how it ended; -1: it did not start (status 125, 126 or
 * 127) or nobody knows how it ended. */
PETRI_API int petri_exec(struct petri_sandbox *s, const struct petri_exec_options *o,
                         struct petri_result *ret, struct petri_error *e);
PETRI_API void petri_result_free(struct petri_result *r);

/* The same in steps, for event loops: start, poll the descriptors, ask for events. */
struct petri_exec;

enum petri_exec_fd {
    PETRI_STDIN,
    PETRI_STDOUT,
    PETRI_STDERR,  /* pipes, non-blocking; none with a terminal */
    PETRI_TTY,     /* the terminal's master, after PETRI_STARTED */
    PETRI_CONTROL, /* readable: call petri_exec_next() until it returns 0 */
};

enum petri_event_type { PETRI_STARTED = 1, PETRI_FAILED, PETRI_EXIT };

struct petri_event {
    size_t size;
    int type;
    int status, exit_code, signal, timed_out; /* PETRI_EXIT, as in struct petri_result */
    uint64_t cpu_us, max_rss;
};
#define PETRI_EVENT_INIT                                                                           \
    {                                                                                              \
        .size = sizeof(struct petri_event)                                                         \
    }

PETRI_API int petri_exec_start(struct petri_sandbox *s, const struct petri_exec_options *o,
                               struct petri_exec **ret, struct petri_error *e);
/* -1: there is none, or it was taken. */
PETRI_API int petri_exec_fd(const struct petri_exec *x, enum petri_exec_fd which);
/* The same, and from now on it is the caller's to close. Closing stdin is the command's end of file. */
PETRI_API int petri_exec_take_fd(struct petri_exec *x, enum petri_exec_fd which);
/* 1: *ret is an event; 0: nothing new, poll PETRI_CONTROL; -1: the connection is gone. PETRI_FAILED comes
 * with its reason in *e. Never blocks. */
PETRI_API int petri_exec_next(struct petri_exec *x, struct petri_event *ret, struct petri_error *e);
/* To the command's process group. */
PETRI_API int petri_exec_signal(struct petri_exec *x, int sig, struct petri_error *e);
/* Closes what was not taken. A command that has not ended is killed with all it started. */
PETRI_API void petri_exec_free(struct petri_exec *x);

/* --- files, without a process ---------------------------------------------------------------------- */

/* Paths are absolute, or relative to where commands start by default. Links are followed as for a program
 * inside, so none leads out of the sandbox. */
struct petri_stat {
    size_t size;
    uint32_t mode, nlink, uid, gid; /* mode as from stat(2), ids as inside */
    uint64_t bytes, ino;
    int64_t mtime_sec;
    uint32_t mtime_nsec;
};
#define PETRI_STAT_INIT                                                                            \
    {                                                                                              \
        .size = sizeof(struct petri_stat)                                                          \
    }

enum petri_fs_flags {
    PETRI_FS_NOFOLLOW = 1,  /* stat: a link itself */
    PETRI_FS_PARENTS = 2,   /* mkdir: with those above; existing is fine */
    PETRI_FS_RECURSIVE = 4, /* rm: a directory with all below */
    PETRI_FS_EXCLUSIVE = 8, /* write: it must not exist yet */
};

/* The whole file; "limit" where it is longer than max (0: 1 GiB). *ret ends with a NUL not counted. */
PETRI_API int petri_fs_read(struct petri_sandbox *s, const char *path, size_t max, char **ret,
                            size_t *ret_len, struct petri_error *e);
/* A descriptor to read it from; st may be NULL. */
PETRI_API int petri_fs_open(struct petri_sandbox *s, const char *path, int *ret_fd,
                            struct petri_stat *st, struct petri_error *e);
/* All or nothing: the file has the old content or the new, never between. mode 0: an existing file keeps
 * its own, a new one gets 0644. */
PETRI_API int petri_fs_write(struct petri_sandbox *s, const char *path, const void *p, size_t n,
                             unsigned mode, unsigned flags, struct petri_error *e);
/* The same in steps: write to the descriptor, then commit; free without commit changes nothing. */
struct petri_file;
PETRI_API int petri_fs_create(struct petri_sandbox *s, const char *path, unsigned mode,
                              unsigned flags, struct petri_file **ret, struct petri_error *e);
PETRI_API int petri_file_fd(const struct petri_file *f);
PETRI_API int petri_file_commit(struct petri_file *f, struct petri_error *e);
PETRI_API void petri_file_free(struct petri_file *f);

/* target (may be NULL) gets the text of a link, to be freed, or NULL. */
PETRI_API int petri_fs_stat(struct petri_sandbox *s, const char *path, unsigned flags,
                            struct petri_stat *ret, char **target, struct petri_error *e);
PETRI_API int petri_fs_mkdir(struct petri_sandbox *s, const char *path, unsigned mode,
                             unsigned flags, struct petri_error *e);
PETRI_API int petri_fs_rm(struct petri_sandbox *s, const char *path, unsigned flags,
                          struct petri_error *e);
PETRI_API int petri_fs_mv(struct petri_sandbox *s, const char *from, const char *to,
                          struct petri_error *e);

struct petri_dir;
PETRI_API int petri_fs_ls(struct petri_sandbox *s, const char *path, struct petri_dir **ret,
                          struct petri_error *e);
/* The next name, in order, or NULL. st and target (a link's text or NULL) may be NULL; what is returned
 * lives as long as d. */
PETRI_API const char *petri_dir_next(struct petri_dir *d, struct petri_stat *st,
                                     const char **target);
PETRI_API void petri_dir_free(struct petri_dir *d);

/* --- everything else ------------------------------------------------------------------------------- */

/* Runs `petri ARGV... --json` and returns what it printed. A status other than 0 is an error, with the
 * program's own code and sentence; *ret (if not NULL) is what it printed all the same. */
PETRI_API int petri_call(struct petri_client *c, const char *const *argv, char **ret,
                         struct petri_error *e);

/* The same for one sandbox, with further words (NULL-terminated; NULL: none). */
PETRI_API int petri_start(struct petri_sandbox *s, const char *const *more, char **ret,
                          struct petri_error *e);
PETRI_API int petri_stop(struct petri_sandbox *s, const char *const *more, char **ret,
                         struct petri_error *e);
PETRI_API int petri_restart(struct petri_sandbox *s, const char *const *more, char **ret,
                            struct petri_error *e);
PETRI_API int petri_refresh(struct petri_sandbox *s, const char *const *more, char **ret,
                            struct petri_error *e);
PETRI_API int petri_status(struct petri_sandbox *s, const char *const *more, char **ret,
                           struct petri_error *e);
PETRI_API int petri_rm(struct petri_sandbox *s, const char *const *more, char **ret,
                       struct petri_error *e);
PETRI_API int petri_fork(struct petri_sandbox *s, const char *const *more, char **ret,
                         struct petri_error *e);
PETRI_API int petri_snapshot(struct petri_sandbox *s, const char *const *more, char **ret,
                             struct petri_error *e);
PETRI_API int petri_rollback(struct petri_sandbox *s, const char *snapshot, char **ret,
                             struct petri_error *e);
PETRI_API int petri_diff(struct petri_sandbox *s, const char *const *more, char **ret,
                         struct petri_error *e);
PETRI_API int petri_promote(struct petri_sandbox *s, const char *const *more, char **ret,
                            struct petri_error *e);

/* One question to the sandbox's keeper: a JSON object in one line, answered by one. timeout_ms 0: as long
 * as it takes. An answer {"error":{...}} is an error. */
PETRI_API int petri_control(struct petri_sandbox *s, const char *request, uint64_t timeout_ms,
                            char **ret, struct petri_error *e);

#ifdef __cplusplus
}
#endif
#endif
