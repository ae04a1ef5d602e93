/* runtime/gateway/hostaddr.h - whether an address is one of the host's own (or a broadcast there): the kernel's
 * routing table answers, so that addresses of every interface, added later ones too (within a second), count.
 * Owns:  gw->host: one rtnetlink socket.
 */
#pragma once
#include <stdbool.h>

#include "base/err.h"
#include "runtime/network/addr.h"

struct gw;

int hostaddr_new(struct gw *gw, struct err **e);
void hostaddr_free(struct gw *gw);
/* True also for the unspecified address, and where the kernel gives no clear answer. */
bool hostaddr_local(struct gw *gw, const struct net_addr *a);
