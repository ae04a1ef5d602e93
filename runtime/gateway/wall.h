/* runtime/gateway/wall.h - the gateway reads what hostile code sends: should that ever win, this is what it gets.
 *
 * No privileges (root becomes nobody), no new ones, no other process, no file but those that tell how names are
 * resolved (read only), sockets of IP and of the routing table, nothing executable that is not so already.
 * Anything else kills the process, and the sandbox is cut off.
 * Uses:  seccomp by a filter of its own, Landlock where the kernel has it.
 */
#pragma once
#include "base/err.h"

/* As many descriptors as the hard limit allows. */
void wall_open_files(void);
/* Once, before the first word of anybody. */
int wall_harden(struct err **e);
