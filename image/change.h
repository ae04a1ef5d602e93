/* image/change.h - the config of a new image, from Dockerfile instructions given by --change. */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "base/str.h"

struct change {
    struct strv env, entrypoint, cmd, labels; /* labels: KEY=VALUE */
    char *workdir, *user;
};

/* CMD, ENTRYPOINT, ENV, LABEL, USER, WORKDIR; words as a Dockerfile has them. */
int change_add(struct change *c, const char *instruction, struct err **e);
/* The members of an OCI config's "config" object. */
void change_write(const struct change *c, struct jsonw *w);
void change_free_p(struct change *c);
