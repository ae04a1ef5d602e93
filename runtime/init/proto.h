/* runtime/init/proto.h - the words that a keeper or client and petri-init exchange.
 *
 * A stream socket carries frames: a header, then `len` bytes; descriptors ride on a frame's first
 * byte. Both ends treat the other as hostile: sizes are capped, strings must be terminated, and
 * descriptors that were not expected end the connection.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    PROTO_MAGIC = 0x70747269, /* "ptri" */
    PROTO_VERSION = 1,
    PROTO_OLDEST = 1,
    PROTO_MAX = 4 << 20, /* an exec request: argv and environment */
    PROTO_MAX_FDS = 3,
};

enum proto_type {
    PROTO_HELLO = 1, /* init -> keeper: struct proto_hello */
    PROTO_EXEC,      /* keeper -> init: struct proto_exec, then strings; stdio as descriptors */
    PROTO_STARTED,   /* init -> keeper: the command runs; the pty's master as descriptor with -t */
    PROTO_FAILED,    /* init -> keeper: struct proto_failed */
    PROTO_SIGNAL,    /* keeper -> init: uint32_t, to the command's process group */
    PROTO_EXIT,      /* init -> keeper: struct proto_exit */
};

struct proto_header {
    uint32_t magic;
    uint16_t version, type;
    uint32_t len;
};

struct proto_hello {
    uint16_t version, oldest;
};

/* What petri-init must find true of itself before it starts anything. */
enum {
    EXPECT_SECCOMP = 1,
    EXPECT_NO_NEW_PRIVS = 2,
    EXPECT_NO_CAPS = 4,
    EXPECT_PID1 = 8,
};

/* Followed by cwd, argv[], env[]: each string with its NUL. */
struct proto_exec {
    uint32_t expect;
    uint32_t tty;
    uint16_t rows, cols;
    uint32_t n_argv, n_env;
    uint64_t timeout_ms;
};

/* An exec request as petri-init has it: strings point into the frame. */
struct proto_request {
    struct proto_exec head;
    char *cwd;
    char **argv, **env; /* one allocation, argv's */
    int stdio[3];
};

enum proto_stage { STAGE_REQUEST, STAGE_EXPECT, STAGE_CHDIR, STAGE_EXEC, STAGE_PTY };

struct proto_failed {
    uint32_t stage; /* enum proto_stage */
    int32_t error;  /* errno; for STAGE_EXPECT the bits that were not true */
};

struct proto_exit {
    int32_t status; /* as from waitpid */
    uint32_t timed_out;
    uint64_t cpu_usec;
    uint64_t maxrss_bytes;
};

/* Fills all but stdio; -1 where the frame does not hold what it says (argv may be set then too). */
int proto_parse_exec(char *frame, size_t len, struct proto_request *r);

/* Both return 0, or -1 with errno (EPROTO: not our language, EOF shows as ECONNRESET). */
int proto_send(int sock, enum proto_type type, const void *p, size_t n, const int *fds, int n_fds);
/* Reads one frame. *ret_p is malloc'd (a NUL follows the payload); at most `max_fds` descriptors are
 * taken, the rest is refused; ret_pid (may be NULL) is the sender's pid where SO_PASSCRED is on. */
int proto_recv(int sock, struct proto_header *ret_h, char **ret_p, int *ret_fds, int max_fds,
               int *ret_n_fds, pid_t *ret_pid);
