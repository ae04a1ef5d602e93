/* runtime/workspace/layer_copy.h - an exact copy of one layer, for a fork of a sandbox that is busy.
 *
 * Nobody may write to the source meanwhile. Content (reflinks where the file system has them, holes stay
 * holes), owners, modes, times, all attributes, links, which names are one file, whiteouts, FIFOs and
 * sockets; every entry but work/. Needs root over all of the files (inside_run). Nothing is synced.
 * Crash: an unfinished layer, which nobody names.
 */
#pragma once
#include <stdbool.h>

#include "base/err.h"

int layer_copy(int src, int dst, struct err **e);
