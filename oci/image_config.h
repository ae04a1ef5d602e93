/* oci/image_config.h - the config of an OCI image: what a command in it starts with.
 * It comes from strangers: whatever could mean another place or another user than it seems to is
 * refused here, once for import and again for every run.
 */
#pragma once
#include "base/err.h"
#include "base/str.h"

struct image_config {
    char *os, *arch, *variant, *created; /* may be NULL */
    char *workdir;                       /* absolute and normal; "/" where none is given */
    char *user;                          /* "", "1000", "name", "1000:1000", "name:group" */
    struct strv env;                     /* NAME=VALUE */
    struct strv entrypoint, cmd;
    struct strv labels;   /* KEY=VALUE */
    struct strv diff_ids; /* bottom first */
};

int image_config_parse(const char *text, size_t n, struct image_config *ret, struct err **e);
void image_config_free_p(struct image_config *c);
