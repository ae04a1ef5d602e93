/* runtime/sandbox/store_lock.h - DATA/changes.lock: shared while somebody has layers that no record names yet,
 * exclusive for whoever removes what no record names. */
#pragma once
#include "base/err.h"
#include "base/paths.h"

int store_lock_shared(const struct paths *paths, int *ret_fd, struct err **e);
/* 0, or -ERR_BUSY without a word where somebody has it. */
int store_lock_exclusive(const struct paths *paths, int *ret_fd, struct err **e);
