/* runtime/sandbox/net_rules.h - rules of a sandbox's network that are added after its start.
 * Crash: a rule is in the record before it is in force.
 */
#pragma once
#include "runtime/network/policy.h"
#include "runtime/sandbox/options.h"
#include "runtime/sandbox/state.h"

/* The policy that flags mean. */
int net_policy_make(const struct options *o, struct net_policy *ret, struct err **e);
/* The policy of the next start. */
int net_of_record(const struct state *s, struct net_policy *ret, struct err **e);
/* Adds all of them, or says which one is wrong. */
int net_add_rules(struct net_policy *p, bool allow, const struct strv *rules, struct err **e);
/* Into the record's flags. */
void net_remember(struct state *s, const char *mode, bool allow, const struct strv *rules);
/* A running sandbox obeys at once. */
int sandbox_net_rules(const struct paths *paths, const char *id, bool allow,
                      const struct strv *rules, struct err **e);
