/* runtime/network/addr.h - IP addresses: parsing, ranges, and which of them are nobody's business.
 * Owns:  nothing. Pure: no I/O, no state.
 * Uses:  base/.
 * Crash: nothing to leave.
 *
 * An IPv4 address that is mapped into IPv6 (::ffff:a.b.c.d) is the IPv4 address: every function that
 * makes a net_addr unmaps it, because that is where the kernel would connect to.
 */
#pragma once
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct net_addr {
    uint8_t family; /* AF_INET, AF_INET6 */
    uint8_t b[16];  /* network order; the first 4 of IPv4, the rest 0 */
};

struct net_range {
    struct net_addr addr; /* the first of it */
    unsigned bits;
};

enum net_class {
    ADDR_PUBLIC,
    ADDR_PRIVATE,
    ADDR_LOOPBACK,
    ADDR_LINKLOCAL,
    ADDR_METADATA, /* where clouds hand credentials to their machines */
    ADDR_MULTICAST,
    ADDR_RESERVED,
};

/* "public", "private", "loopback", "link-local", "metadata", "multicast", "reserved" */
const char *addr_class_word(enum net_class c);
/* NAT64 (64:ff9b::/96) and 6to4 (2002::/16) addresses are what the IPv4 address in them is. */
enum net_class addr_class(const struct net_addr *a);
/* ADDR_PUBLIC also where only a part is not: a range has a class when all of it has. */
enum net_class range_class(const struct net_range *r);
/* 0.0.0.0 and ::, which a kernel takes for itself. */
bool addr_unspecified(const struct net_addr *a);

/* From 4 or 16 bytes in network order. */
struct net_addr addr_make(int family, const void *bytes);
/* "192.0.2.1", "2001:db8::1": the strict spellings only, no zone, no port. 0 or -1. */
int addr_parse(const char *text, struct net_addr *ret);
void addr_text(const struct net_addr *a, char buf[INET6_ADDRSTRLEN]);
bool addr_eq(const struct net_addr *a, const struct net_addr *b);
/* The IPv4 address inside a NAT64 or 6to4 address; false where there is none. */
bool addr_embedded(const struct net_addr *a, struct net_addr *ret);

/* The address with all bits behind the first `bits` cleared. */
struct net_addr addr_masked(const struct net_addr *a, unsigned bits);
unsigned addr_bits(const struct net_addr *a); /* 32 or 128 */
bool range_holds(const struct net_range *r, const struct net_addr *a);

/* 0 or -1 (neither IPv4 nor IPv6). ret_port may be NULL. */
int addr_from_sockaddr(const struct sockaddr *sa, struct net_addr *ret, uint16_t *ret_port);
socklen_t addr_to_sockaddr(const struct net_addr *a, uint16_t port, struct sockaddr_storage *ret);
