/* runtime/network/agent_impl.h - what setting up and serving share: the list of a hello's sockets. */
#pragma once
#include "runtime/network/agent.h"

void agent_add(struct agent *a, enum feed_kind kind, uint16_t port);
/* All sockets of the list, in the gateway's namespace where this process has to be. 0 or -1 with errno. */
int agent_open_items(struct agent *a);
void agent_close_items(struct agent *a);
