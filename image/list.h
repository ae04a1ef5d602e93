/* image/list.h - what is in the store, for people and as JSON. */
#pragma once
#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"

/* Adds the answer of `image ls`: a table, IDs only, or a JSON array. */
int list_images(const char *data_dir, bool json, bool quiet, struct str *out, struct err **e);
/* Adds all about one image. */
int list_inspect(const char *data_dir, const char *name, bool json, struct str *out,
                 struct err **e);
