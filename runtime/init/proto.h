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
    PROTO_VERSION = 2,
    PROTO_OLDEST = 2,
    PROTO_MAX = 4 << 20, /* an exec request: argv and environment */
    PROTO_MAX_FDS = 3,
};

/* `keeper` is whoever holds the other end of descriptor 3; a client came through the listening socket
 * that PROTO_SERVE handed over. */
enum proto_type {
    PROTO_HELLO = 1, /* init -> keeper; init -> client whose version is not understood: struct
                        proto_hello, then petri's version as a string */
    PROTO_EXEC, /* keeper or client -> init: struct proto_exec, then strings; stdio as descriptors */
    PROTO_STARTED, /* init -> whoever asked: the command runs (with -t the pty's master as
                        descriptor), or, after PROTO_SERVE, clients are served */
    PROTO_FAILED,  /* init -> whoever asked: struct proto_failed */
    PROTO_SIGNAL,  /* whoever asked -> init: uint32_t, to the command's process group */
    PROTO_EXIT, /* init -> whoever asked: struct proto_exit; without PROTO_STARTED where code inside
                        killed who was about to say that */
    PROTO_SERVE,   /* keeper -> init: struct proto_serve, then cwd and env; the listening socket.
                        Once more: another socket in its place, the rest is as it was */
    PROTO_QUIESCE, /* keeper -> init: accept nobody; answered by PROTO_IDLE */
    PROTO_IDLE,    /* init -> keeper: uint32_t, how many other processes there are; not 0: init
                        accepts again */
    PROTO_RESUME,  /* keeper -> init: accept again */
    PROTO_FS,      /* client -> init: struct proto_fs, then one or two paths */
    PROTO_FS_OK,   /* init -> client: struct proto_stat; a regular file as descriptor where asked */
    PROTO_FS_ENTRY, /* init -> client, before PROTO_FS_OK: struct proto_stat, then a name */
};

/* The header and struct proto_hello are the same in every version. */
struct proto_header {
    uint32_t magic;
    uint16_t version, type;
    uint32_t len;
};

struct proto_hello {
    uint16_t version, oldest; /* petri's version as a string follows */
};

/* What petri-init must find true of itself before it starts anything. */
enum {
    EXPECT_SECCOMP = 1,
    EXPECT_NO_NEW_PRIVS = 2,
    EXPECT_NO_CAPS = 4,
    EXPECT_PID1 = 8,
    EXPECT_OWN_ID = 16, /* petri-init is another user than the commands, and may become them */
};

/* Followed by cwd, argv[], env[]: each string with its NUL. A client's cwd may be relative (to that of
 * PROTO_SERVE), and its env is what is set on top of that of PROTO_SERVE. */
struct proto_exec {
    uint32_t expect;
    uint32_t tty;
    uint16_t rows, cols;
    uint32_t n_argv, n_env;
    uint32_t uid, gid; /* PROTO_SAME_ID: the sandbox's own user */
    uint64_t timeout_ms;
};
enum { PROTO_SAME_ID = 0xffffffff };

/* Followed by cwd and env[]: what every exec starts from. */
struct proto_serve {
    uint32_t expect;
    uint32_t n_env;
    uint32_t uid, gid; /* of commands, and of files */
};

/* Paths may be relative to the cwd of PROTO_SERVE. Links are followed as for any program inside, so they
 * can't lead out of the sandbox. */
enum proto_fs_op {
    FS_READ = 1, /* the file, open for reading, as descriptor */
    FS_WRITE,    /* a new file beside the target, open for writing, as descriptor; nothing is there
                    until FS_COMMIT on the same connection puts it into place */
    FS_COMMIT,
    FS_STAT,  /* FS_NOFOLLOW: of a link itself */
    FS_LS,    /* PROTO_FS_ENTRY for each, then PROTO_FS_OK */
    FS_MKDIR, /* FS_PARENTS: with those above, existing is fine */
    FS_RM,    /* FS_RECURSIVE: a directory with all below */
    FS_MV,    /* two paths */
};
enum { FS_NOFOLLOW = 1, FS_PARENTS = 2, FS_RECURSIVE = 4, FS_EXCLUSIVE = 8 };

struct proto_fs {
    uint32_t op, flags;
    uint32_t mode; /* FS_WRITE, FS_MKDIR: permissions of what is new; 0: the usual ones, and an
                      existing file keeps its own */
    uint32_t n_paths;
};

struct proto_stat {
    uint32_t mode, nlink, uid, gid;
    uint64_t size, ino;
    int64_t mtime_sec;
    uint32_t mtime_nsec;
    uint32_t has_target; /* FS_LS and FS_STAT of a link: its text follows (after the name) */
};

/* An exec request as petri-init has it: strings point into the frame. */
struct proto_request {
    struct proto_exec head;
    char *cwd;
    char **argv, **env; /* one allocation, argv's */
    int stdio[3];
};

enum proto_stage {
    STAGE_REQUEST,
    STAGE_EXPECT,
    STAGE_CHDIR,
    STAGE_EXEC,
    STAGE_PTY,
    STAGE_USER, /* -u is not possible here */
    STAGE_FORK, /* no more processes */
    STAGE_FS
};

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

/* PROTO_SERVE and PROTO_FS the same way. */
struct proto_serving {
    struct proto_serve head;
    char *cwd;
    char **env; /* an allocation of its own */
};
struct proto_fs_request {
    struct proto_fs head;
    char *path[2]; /* NULL where there is none */
};

/* Each fills all but descriptors; -1 where the frame (which a NUL follows, as from proto_recv) does not
 * hold what it says. argv or env may be set then too. */
int proto_parse_exec(char *frame, size_t len, struct proto_request *r);
int proto_parse_serve(char *frame, size_t len, struct proto_serving *s);
int proto_parse_fs(char *frame, size_t len, struct proto_fs_request *r);

/* Whether the other end speaks this version: 0, or -1 with EPROTONOSUPPORT (both are set then: say who
 * started the sandbox, and that a restart helps) or EPROTO. For a PROTO_HELLO that proto_recv returned;
 * *ret_petri points into `payload`. */
int proto_check_hello(const char *payload, size_t len, struct proto_hello *ret_hello,
                      const char **ret_petri);

/* All return 0, or -1 with errno (EPROTO: not our language, EPROTONOSUPPORT: another version of it, EOF
 * shows as ECONNRESET). Header and payload leave in one piece, so that a small frame arrives whole. */
int proto_send(int sock, enum proto_type type, const void *p, size_t n, const int *fds, int n_fds);
/* Never waits: EAGAIN where the other end does not read. The connection is of no more use then. */
int proto_send_now(int sock, enum proto_type type, const void *p, size_t n, const int *fds,
                   int n_fds);
/* Reads one frame. *ret_p is malloc'd (a NUL follows the payload); at most `max_fds` descriptors are
 * taken, the rest is refused; ret_pid (may be NULL) is the sender's pid where SO_PASSCRED is on.
 * A PROTO_HELLO is returned whatever its version: it is how versions are compared. */
int proto_recv(int sock, struct proto_header *ret_h, char **ret_p, int *ret_fds, int max_fds,
               int *ret_n_fds, pid_t *ret_pid);
