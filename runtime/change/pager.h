/* runtime/change/pager.h - the user's pager between petri and the terminal.
 *
 * Which one: PETRI_PAGER, GIT_PAGER, PAGER, core.pager of the user's own git configuration, less. Never
 * what a repository's configuration says. "cat" or an empty value means none.
 */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

struct pager {
    pid_t pid; /* 0: none */
};

/* Puts a pager in front of stdout where that is a terminal. */
void pager_start(struct pager *ret);
/* Ends the output and waits until the person has read it. */
void pager_end(struct pager *p);
