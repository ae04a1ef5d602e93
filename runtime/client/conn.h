/* runtime/client/conn.h - one connection to petri-init or a keeper; frames in and out, never blocking
 * without a limit. The other side is hostile: a frame is small, brings at most one descriptor, or the
 * connection is over.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/init/proto.h"

enum { CONN_BUF = 16384 };

struct conn {
    int fd;
    int passed; /* a descriptor that came and was not taken yet, or -1 */
    size_t off, len;
    bool blocking; /* conn_wait() waits in the kernel: one system call less */
    char other
        [32]; /* the version of the petri that started a petri-init we can't talk to, else "" */
    char buf[CONN_BUF];
};

struct frame {
    uint16_t type;
    const char *p; /* valid until the next conn_next() */
    size_t len;
};

/* 0, or -1 with errno. ENOENT and ECONNREFUSED: nobody is there. */
int conn_open(const char *dir, const char *door, struct conn *ret);
/* For a connection that only conn_wait() reads: frames are waited for at most ms. */
int conn_block(struct conn *c, int ms);
/* Header, payload and descriptors in one go where they fit. */
int conn_send(struct conn *c, enum proto_type type, const void *p, size_t n, const int *fds,
              int n_fds);
/* 1: a frame; 0: none yet; -1 with errno: the connection is over (ECONNRESET: closed). */
int conn_next(struct conn *c, struct frame *ret);
/* The same, waiting at most ms (-1: as long as it takes), or, after conn_block(), as long as that said;
 * ETIMEDOUT. */
int conn_wait(struct conn *c, int ms, struct frame *ret);
int conn_take_fd(struct conn *c); /* -1: none */
void conn_close(struct conn *c);
