#include <git2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/change/library.h"

int library_start(struct err **e)
{
    if (git_libgit2_init() < 0)
        return err_new(e, ERR_FAILED, "libgit2 does not start");
    /* root looks at projects of others; nothing of theirs is run, so whose it is does not matter */
    git_libgit2_opts(GIT_OPT_SET_OWNER_VALIDATION, 0);
    return 0;
}

static bool for_owner(const struct record *r)
{
    return getuid() == 0 && r->owner_uid != 0;
}

int library_write(const struct record *r, struct err **e)
{
    int rc = library_start(e);

    if (rc < 0)
        return rc;
    if (for_owner(r) && (setegid(r->owner_gid) < 0 || seteuid(r->owner_uid) < 0)) {
        rc = err_sys(e, "act as the project's owner");
        library_written(r);
        return rc;
    }
    git_libgit2_opts(GIT_OPT_ENABLE_FSYNC_GITDIR, 1);
    umask(022);
    return 0;
}

void library_written(const struct record *r)
{
    if (for_owner(r) && (seteuid(0) < 0 || setegid(0) < 0))
        abort();
    umask(077);
}

char *library_user_config(const char *key)
{
    git_config *cfg = NULL;
    git_buf buf = GIT_BUF_INIT;
    char *value = NULL;

    if (library_start(NULL) == 0 && git_config_open_default(&cfg) == 0 &&
        git_config_get_string_buf(&buf, cfg, key) == 0)
        value = str_dup(buf.ptr);
    git_buf_dispose(&buf);
    git_config_free(cfg);
    return value;
}

/* The repository that `project` belongs to, and where in it the project lies ("" or "sub/dir/"). */
static int open_repository(const char *project, git_repository **ret, char **ret_prefix,
                           struct err **e)
{
    git_repository *repo = NULL;
    int rc = git_repository_open_ext(&repo, project, 0, NULL);

    *ret = NULL;
    if (rc == GIT_ENOTFOUND)
        return 0;
    if (rc < 0) {
        const git_error *why = git_error_last();
        return err_new(e, ERR_FAILED, "read the git repository of '%s': %s", project,
                       why ? why->message : "no reason");
    }
    const char *top = git_repository_workdir(repo);
    size_t n = top ? strlen(top) : 0;
    AUTOFREE char *slashed = str_printf("%s/", project);
    if (!top || strncmp(slashed, top, n) != 0) {
        git_repository_free(repo); /* bare, or its work tree lies elsewhere */
        return 0;
    }
    *ret_prefix = str_dup(slashed + n);
    *ret = repo;
    return 0;
}

/* --- ignored files -------------------------------------------------------------------------------- */

struct ignore {
    git_repository *repo;
    git_index *index; /* may be NULL */
    char *prefix;
};

int ignore_open(const char *project, struct ignore **ret, struct err **e)
{
    struct ignore g = { 0 };
    int rc = open_repository(project, &g.repo, &g.prefix, e);

    *ret = NULL;
    if (rc < 0 || !g.repo)
        return rc;
    if (git_repository_index(&g.index, g.repo) < 0)
        g.index = NULL;
    *ret = mem_dup(&g, sizeof g);
    return 0;
}

struct ignore *ignore_free(struct ignore *g)
{
    if (g) {
        git_index_free(g->index);
        git_repository_free(g->repo);
        free(g->prefix);
    }
    free(g);
    return NULL;
}

static bool tracked(const struct ignore *g, const char *path, bool dir)
{
    size_t at;
    if (!g->index)
        return false;
    if (!dir)
        return git_index_get_bypath(g->index, path, 0) != NULL;
    AUTOFREE char *slashed = str_printf("%s/", path);
    return git_index_find_prefix(&at, g->index, slashed) == 0;
}

bool ignore_path(void *ignore, const char *path, bool dir)
{
    struct ignore *g = ignore;
    AUTOFREE char *full = str_printf("%s%s", g->prefix, path);
    AUTOFREE char *asked = str_printf("%s%s", full, dir ? "/" : "");
    int yes = 0;

    return git_ignore_path_is_ignored(&yes, g->repo, asked) == 0 && yes && !tracked(g, full, dir);
}

/* --- objects -------------------------------------------------------------------------------------- */

struct repo {
    git_repository *repo;
    git_odb *odb;
};

int repo_open(const char *project, struct repo **ret, struct err **e)
{
    AUTOFREE char *prefix = NULL;
    struct repo r = { 0 };
    int rc = open_repository(project, &r.repo, &prefix, e);

    *ret = NULL;
    if (rc < 0 || !r.repo)
        return rc;
    if (git_repository_odb(&r.odb, r.repo) < 0) {
        git_repository_free(r.repo);
        return err_new(e, ERR_FAILED, "read the objects of the git repository of '%s'", project);
    }
    *ret = mem_dup(&r, sizeof r);
    return 0;
}

bool repo_has(struct repo *r, const char *hex)
{
    git_oid id;
    return git_oid_fromstr(&id, hex) == 0 && git_odb_exists(r->odb, &id);
}

struct repo *repo_free(struct repo *r)
{
    if (r) {
        git_odb_free(r->odb);
        git_repository_free(r->repo);
    }
    free(r);
    return NULL;
}
