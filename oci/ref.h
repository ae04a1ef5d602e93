/* oci/ref.h - image references: [HOST[:PORT]/]PATH[:TAG], the part of docker's grammar that names
 * something in the local store. The tag is "latest" where none is given; `host` is built in.
 */
#pragma once
#include <stdbool.h>

#include "base/err.h"

struct ref {
    char *name; /* with the registry host where one was given */
    char *tag;
};

int ref_parse(const char *text, struct ref *ret, struct err **e);
/* "name:tag"; the caller frees it. */
char *ref_text(const struct ref *r);
/* The built-in image: "host" or "host:latest". */
bool ref_is_host(const char *text);
void ref_free_p(struct ref *r);
