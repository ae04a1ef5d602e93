/* runtime/gateway/resolve.h - names resolved in the host's network: /etc/hosts, then the servers of
 * /etc/resolv.conf (a forwarder at 127.0.0.53 is one like others). Asynchronous by c-ares, whose sockets are
 * sources of the gateway's loop. No search domains: a name is what it says.
 *
 * Bounded: RESOLVE_QUERIES at a time (asks for the same name share one), a cache of names (namecache.h)
 * for as long as their answers allow, at most RESOLVE_KEEP_MS. Only addresses are kept, never a verdict.
 *
 * Owns:  gw->resolve. A changed /etc/resolv.conf is noticed (within a second) by its mtime.
 * Uses:  c-ares; nobody else does. System calls that the gateway's filter must let pass for it:
 *   openat(O_RDONLY) newfstatat/fstat/statx read lseek close fcntl (/etc/resolv.conf, /etc/hosts,
 *   /etc/nsswitch.conf, /etc/host.conf, /dev/urandom), getrandom, uname, clock_gettime/gettimeofday,
 *   socket(AF_INET|AF_INET6, DGRAM|STREAM) connect bind setsockopt getsockopt getsockname getpeername
 *   sendto recvfrom sendmsg recvmsg writev readv write, ioctl(SIOCGIFINDEX) (scoped server addresses),
 *   brk mmap munmap mremap, epoll_ctl; newer versions: futex, rt_sigprocmask, socket(AF_UNIX) refused is fine.
 *   hostaddr.c: socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE) once (hostaddr_new(), before the filter
 *   or after it), then sendto and recvfrom on it.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "runtime/network/addr.h"

struct gw;
struct lookup;

enum {
    RESOLVE_QUERIES = 256,
    RESOLVE_WAITERS = 16384, /* lookups that share those queries */
    RESOLVE_KEEP_MS = 60000,
    RESOLVE_ADDRS = 32,
};

struct resolve_result {
    int error; /* 0; ENOENT: no such name or no address; ETIMEDOUT; EAGAIN: too many at once; EIO */
    size_t n;
    struct net_addr v[RESOLVE_ADDRS];
};

/* Sets gw->resolve. A host without /etc/resolv.conf is fine: names are then not found. */
int resolve_new(struct gw *gw, struct err **e);
void resolve_free(struct gw *gw); /* no callback of what is pending */

/* Calls back exactly once unless cancelled, from the loop, never from within. `name` is canonical. Never NULL. */
struct lookup *resolve_name(struct gw *gw, const char *name,
                            void (*done)(void *arg, const struct resolve_result *r), void *arg);
/* Any type of the class IN, for `full`: the server's answer as it came, NXDOMAIN and such included (up to
 * 65535 bytes; the id is not the asker's: put that in), or NULL where there was none. */
struct lookup *resolve_pass(struct gw *gw, const char *name, uint16_t type,
                            void (*done)(void *arg, const uint8_t *msg, size_t len), void *arg);
/* Before the callback; from any callback but its own; takes NULL. */
void resolve_cancel(struct lookup *l);
