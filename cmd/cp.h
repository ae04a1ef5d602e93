/* cmd/cp.h - petri cp: cp.c reads the command line and copies in, cp_out.c copies out. */
#pragma once
#include "cmd/attach.h"

struct cp {
    struct petri_sandbox *s;
    struct petri_error e;
    bool follow, quiet;
    uint64_t files, dirs, links, bytes, skipped;
};

enum { CP_DEPTH = 200 };

/* Names "a/b/c" as "c"; what ends in "/" or "/." counts without it. The caller's. */
char *cp_base(const char *path);
/* Fill c->e and return -1; cp_sys() takes errno. */
int cp_sys(struct cp *c, const char *what, const char *path);
int cp_refuse(struct cp *c, const char *code, const char *path, const char *why);
/* Says what is not copied, and counts it. */
void cp_skip(struct cp *c, const char *path, const char *what);

/* From the sandbox's `src` to `dst` on this machine, as docker cp does; -1 with c->e. */
int cp_out(struct cp *c, const char *src, const char *dst);
