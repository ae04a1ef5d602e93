/* image/host/tools_priv.h - what the files of the tool-chain search share. */
#pragma once
#include "image/host/tools.h"

struct tools {
    const struct host_tools_in *in;
    char *home, *real_home;       /* normal; NULL: no home to look in */
    char *project, *real_project; /* NULL: none */
    struct plan_mounts *mounts;
    struct strv trees; /* absolute places that are inside, read-only */
    struct strv *env;
};

/* tools_roots.c */
/* Whether the sandbox sees this path: system, project, or brought in already. */
bool tools_there(const struct tools *t, const char *path);
/* Brings in the known tool chain that holds `path` (absolute, lexical or real); false: none. */
bool tools_bring_known(struct tools *t, const char *path);
/* Brings in exactly this directory below home, if nothing speaks against it. */
bool tools_bring_dir(struct tools *t, const char *path);
/* `path` as the user writes it: below home instead of below the home's real path. */
char *tools_lexical(const struct tools *t, const char *path);
/* ~/.local/bin: its links one by one, so that the directory stays writable inside. */
bool tools_bring_local_bin(struct tools *t);
/* Links in a directory that lead to known tool chains. */
void tools_follow_links(struct tools *t, const char *dir);
/* The interpreter a virtual environment is made from. */
void tools_bring_venv_base(struct tools *t, const char *venv);

/* tools_hide.c: credentials files below a place that came in; known: a table says what it is. */
void tools_hide(struct tools *t, const char *rel, bool known);
/* A name that never comes in, as a component of a path. */
bool tools_private_name(const char *rel);

/* tools_env.c */
/* Tool chains that a variable names and that look like one. */
void tools_bring_named(struct tools *t);
void tools_env(struct tools *t);
