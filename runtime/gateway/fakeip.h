/* runtime/gateway/fakeip.h - addresses that stand for names: what DNS tells a sandbox, and what a
 * connection to such an address meant.
 *
 * Addresses are 198.18.1.0 to 198.19.255.254, in the host's byte order. At most FAKEIP_NAMES names
 * live at a time; then the one used longest ago goes, never one that is pinned. An address is given
 * again as late as possible, so that a program that kept an old one finds nobody rather than someone else.
 * Every call takes constant time, whatever names a sandbox asks for.
 * Owns:  its tables: less than 3 MiB of room, touched as names come in, and one string per name.
 * Uses:  base/.
 * Crash: all names are forgotten; a program inside asks again.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FAKEIP_NAMES = 65536 };
#define FAKEIP_FIRST 0xc6120100u /* 198.18.1.0 */
#define FAKEIP_LAST 0xc613fffeu  /* 198.19.255.254 */

struct fakeip;

/* `key`: random bytes, so that nobody can choose names that collide. */
struct fakeip *fakeip_new(const uint8_t key[16]);
struct fakeip *fakeip_free(struct fakeip *f); /* NULL */

/* The address of a canonical name (1 to 253 bytes), a new one where it has none. 0: every name is pinned. */
uint32_t fakeip_addr(struct fakeip *f, const char *name);
/* The name behind an address, borrowed until the next fakeip_addr() unless pinned; NULL: nobody's. */
const char *fakeip_name(struct fakeip *f, uint32_t addr);
/* An address of the range above, given to a name or not. */
bool fakeip_range(uint32_t addr);
/* An open connection keeps its name; pins count. False: nobody's address. */
bool fakeip_pin(struct fakeip *f, uint32_t addr);
void fakeip_unpin(struct fakeip *f, uint32_t addr);
size_t fakeip_count(const struct fakeip *f);
