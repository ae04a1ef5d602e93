/* runtime/change/diff.h - `petri diff`, and the numbers for `petri status`. */
#pragma once

/* petri-change diff DATA [json|stat|name-status|patch|exit-code|rootfs|from=X|path=P]... -- [A [B]] */
int diff_main(const char *data, int argc, char **argv);
/* petri-change count DATA [SANDBOX] [--json]; the answer is JSON in any case */
int count_main(const char *data, int argc, char **argv);
/* petri-change risks DATA [json] -- */
int risks_main(const char *data, int argc, char **argv);
