/* cmd/change.h - becoming petri-change, the program that has libgit2 (runtime/change/main.c). */
#pragma once
#include "cmd/cmd.h"

/* Before a command: promotions whose process died, of any project. Errors are petri-change's to tell. */
void cmd_recover(const char *name);
/* petri-change VERB DATA FLAGS... -- OPERANDS...; does not return where it works, else prints why. */
int cmd_become_change(const char *verb, const struct strv *flags, const struct strv *operands,
                      bool json);
