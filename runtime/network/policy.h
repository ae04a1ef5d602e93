/* runtime/network/policy.h - what a sandbox may reach: rules, their spelling, the judgement.
 * Owns:  nothing. Pure: no I/O, no state; the keeper and the gateway run the same code.
 * Uses:  base/.
 * Crash: nothing to leave.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "base/macros.h"
#include "runtime/network/addr.h"

enum net_mode {
    NET_NONE,
    NET_LIMITED,   /* every public name and address, on the policy's ports */
    NET_ALLOWLIST, /* what rules name */
    NET_FULL,      /* every public name and address, every port */
};

enum {
    NET_NAME_SIZE = 256,     /* a canonical name and its NUL */
    NET_MAX_PORTS = 128,     /* that need a listener */
    NET_MAX_JSON = 60 << 10, /* a policy in one packet, with room for what surrounds it */
};

struct net_rule {
    char *text;             /* as written, canonical: "*.example.com:8443", "10.1.2.0/24" */
    char *name;             /* "example.com"; NULL: a range */
    bool below;             /* *.name: everything below it, at any depth, not itself */
    struct net_range range; /* one address: of all its bits */
    uint16_t port;          /* 0: the policy's ports; in a deny rule: every port */
};

struct net_rules {
    struct net_rule *v;
    size_t n;
};

struct net_publish {
    struct net_addr host; /* where the host listens; 127.0.0.1 unless said */
    uint16_t host_port, port;
};

struct net_policy {
    enum net_mode mode;
    struct net_rules allow, deny;
    uint16_t *ports; /* n_ports == 0: 80 and 443 */
    size_t n_ports;
    uint64_t rate;  /* bytes per second, both directions together; 0: no limit */
    uint64_t bytes; /* in total; 0: no limit */
    struct net_publish *publish;
    size_t n_publish;
    bool stop; /* gateway dead: stop the sandbox, else start another gateway */
};

/* --- words of flags; an error names flag, text and remedy on one line ------------------------ */
int net_mode_parse(const char *word, enum net_mode *ret, struct err **e);
const char *net_mode_word(enum net_mode mode);
/* NAME, *.NAME, IP, CIDR, each with :PORT; IPv6 with a port in brackets: [V6]:PORT, [V6/BITS]:PORT */
int net_rule_parse(const char *flag, const char *text, struct net_rule *ret, struct err **e);
/* "10M", "500K/s", "2MB/s": bytes per second; "none": 0 */
int net_rate_parse(const char *flag, const char *text, uint64_t *ret, struct err **e);
/* [HOST:]PORT:PORT; HOST is an IP address (IPv6 in brackets) or localhost */
int net_publish_parse(const char *text, struct net_publish *ret, struct err **e);
int net_port_parse(const char *flag, const char *text, uint16_t *ret, struct err **e);

/* Canonical: lower case, one final dot off. -1: not a name; empty or long labels, bytes that are no part
 * of one, and whatever some library takes for an IPv4 address (2130706433, 0x7f.1, 127.1). */
int net_name(const char *p, size_t len, char ret[NET_NAME_SIZE]);

/* --- ownership ------------------------------------------------------------------------------- */
void net_rule_free_p(struct net_rule *r);
/* Takes the rule; false: there was one of the same text, the new one is freed. */
bool net_rules_add(struct net_rules *l, struct net_rule *take);
void net_policy_free_p(struct net_policy *p);
int net_policy_copy(const struct net_policy *p, struct net_policy *ret);
/* What no single flag can know: too many rules or ports, a port twice, port 53. Ask before use. */
int net_policy_check(const struct net_policy *p, struct err **e);

/* --- judgement ------------------------------------------------------------------------------- */
struct net_verdict {
    bool allow;
    const char
        *rule; /* the rule's text (the policy's memory), or the word of what decided: "limited" */
    const char *why; /* one short phrase where denied, else NULL */
};
/* A canonical name on a port, before any address is known. Deny beats allow. */
struct net_verdict net_judge_name(const struct net_policy *p, const char *name, uint16_t port);
/* An address that would be dialled. `named`: a name that net_judge_name() allowed led here; `local`: it is
 * the host's own. What is not public, or local, needs an allow rule with a range that itself lies within
 * what is not public (0.0.0.0/0 opens none of it); a public address of the host, and a metadata address,
 * one with exactly this address. A name never opens them. */
struct net_verdict net_judge_addr(const struct net_policy *p, const struct net_addr *a, bool local,
                                  uint16_t port, bool named);
/* The server's name must be read before anything is dialled. */
bool net_needs_names(const struct net_policy *p);
/* Is it one of the policy's own ports (a rule need not name it)? */
bool net_own_port(const struct net_policy *p, uint16_t port);
/* Can anything be reached on this TCP port? */
bool net_listens(const struct net_policy *p, uint16_t port);
/* All ports that need a listener, sorted: the policy's and its allow rules', never 53 (the resolver's),
 * at most NET_MAX_PORTS. The caller frees them. */
size_t net_ports(const struct net_policy *p, uint16_t **ret);

/* --- as JSON: an object; what was written reads back as the same ------------------------------ */
void net_policy_json(struct jsonw *w, const char *key, const struct net_policy *p);
int net_policy_from_json(const struct json *j, struct net_policy *ret, struct err **e);
