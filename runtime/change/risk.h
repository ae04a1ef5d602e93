/* runtime/change/risk.h - the one table of what a reviewer must know about a change.
 *
 * A change that would run code on the host, show a secret or hide something is named first in every diff.
 * `refuse`: promote leaves it out unless --allow names it; `read`: it must have been looked at; `note`: said.
 * docs/diff.md lists the same rows (tests/unit/change_risk.c compares them).
 */
#pragma once
#include "runtime/change/changeset.h"

enum risk_class { RISK_REFUSE, RISK_READ, RISK_NOTE };

struct risk_rule {
    const char *code; /* stable, for --json and --allow: "git-dir", "ci" ... */
    enum risk_class class;
    /* Path patterns separated by spaces: "name" any component, "dir/" a directory and what is in it,
     * "/name" at the top only, "*" within a component; NULL: decided by content or kind. Compared after
     * case folding and what HFS+ and NTFS make of names. */
    const char *patterns;
    const char *reason; /* one clause, lower case */
};

extern const struct risk_rule risk_rules[];
extern const size_t risk_n_rules;

const char *risk_class_name(enum risk_class c); /* "refuse" "read" "note" */
const struct risk_rule *risk_find(const char *code);
/* Rules that path alone fulfils, in the table's order; how many there are of at most `max`. */
size_t risk_for_path(const char *path, const struct risk_rule **ret, size_t max);
/* Marks every change of the set: path rules and content rules. */
int risk_mark(struct changeset *c, struct err **e);
/* The worst class of a change; RISK_NOTE + 1 where there is none. */
int risk_worst(const struct change *ch);
