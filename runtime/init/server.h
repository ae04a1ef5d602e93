/* runtime/init/server.h - PID 1 while it serves: what serve.c and jobs.c share. */
#pragma once
#include "runtime/init/init.h"

enum {
    MAX_CONNS = 1024,
    ID_CTL = MAX_CONNS,
    ID_LISTEN,
    ID_TIMER,
    FS_MAX = 16 << 10, /* a PROTO_FS: two paths */
    TURN = 64,         /* requests of one client before another's */
    GRACE_MS = 500,
    SPARE_MS = 500,      /* how long a supervisor waits for another exec */
    LAST_WORD_MS = 2000, /* when a client of a dead supervisor hears of it at the latest */
};

struct conn {
    int fd;    /* -1: the client is gone, or no longer matters */
    int jobs;  /* the supervisor's JOBS, -1: none */
    pid_t pid; /* a supervisor's, or of what works for PROTO_FS */
    bool used, exec;
    bool asked;     /* its first request came */
    uint64_t since; /* of now_ns() */
    bool lost;      /* the supervisor was killed; its client hears when all it had is gone */
    uint64_t deadline, kill_at;
    struct fs_write *write;
};

struct server {
    const struct proto_serving *base;
    int epoll, listener, timer, children, oom;
    bool quiet;   /* PROTO_QUIESCE was answered with 0 */
    bool hunting; /* something of a dead supervisor's may live */
    bool full;    /* no room for another connection */
    char oom_own[8];
    uint64_t wake; /* what the timer is set to */
    volatile unsigned char *states;
    struct conn conns[MAX_CONNS];
    int n_conns; /* one past the last in use */
};

/* --- serve.c */
void watch(struct server *s, int op, int fd, uint32_t events, uint32_t id);
void hang_up(struct server *s,
             struct conn *c); /* the slot stays as long as somebody works for it */
bool hung_up(int fd);
void look_at(struct server *s, struct conn *c); /* takes in whole requests */

/* --- jobs.c: PID 1's children and their deadlines */
/* In the child only the connection is left, as CTL, and where it is not -1 `jobs`, as JOBS. */
pid_t fork_job(struct server *s, int conn, int jobs);
void start_exec(struct server *s, struct conn *c, uint64_t timeout_ms);
int refuse(struct conn *c, enum proto_stage stage, int error);
void client_gone(struct server *s, struct conn *c);
void dismiss_spares(struct server *s);
void reap(struct server *s);
void hunt(struct server *s);
void on_timer(struct server *s);
