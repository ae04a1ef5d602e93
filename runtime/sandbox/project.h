/* runtime/sandbox/project.h - which directory is the project, and what of it must never be seen. */
#pragma once
#include <sys/stat.h>

#include "base/err.h"
#include "base/str.h"

/* Files of a project's directory that may configure its sandboxes. */
enum { PROJECT_CONFIGS = 4 };
extern const char *const project_configs[PROJECT_CONFIGS];

struct project {
    char *root; /* real path */
    struct stat st;
    struct strv hide;    /* credentials below it, relative */
    struct strv extra;   /* git directories elsewhere that belong to it, mounts below it */
    struct strv missing; /* mounts below it that a sandbox must not have */
};

/* Sorts the mounts below `dir`: file systems with files on them, and the rest (the kernel's own). */
int project_submounts(const char *dir, struct strv *ret_files, struct strv *ret_rest,
                      struct err **e);

/* The nearest parent of `cwd` with .git or a petri configuration, else cwd itself. A home directory, a
 * parent of one, or a system directory is never taken without being named (`named`). */
int project_find(const char *cwd, const char *named, struct project *ret, struct err **e);
/* Its directory alone; NULL: there is none, or none that project_find() would take. */
char *project_root(const char *cwd, const char *named);
void project_free_p(struct project *p);

/* True for what no sandbox may be handed: the kernel's and services' directories, and directories that
 * hold credentials, whoever's home they are in. `store` is petri's own. */
bool project_forbidden(const char *path, const char *store, const char **ret_why);
