/* runtime/change/merge_git.c - bases of files and three-way merges, by libgit2. */
#include <git2.h>
#include <string.h>

#include "base/fs.h"
#include "runtime/change/base.h"
#include "runtime/change/library.h"

struct base {
    git_repository *repo;
    git_index *index;
    char *prefix; /* of the project in the work tree: "" or "sub/" */
};

struct base *base_free(struct base *b)
{
    if (b) {
        git_index_free(b->index);
        git_repository_free(b->repo);
        free(b->prefix);
        free(b);
    }
    return NULL;
}

int base_open(const struct record *r, struct base **ret, struct err **e)
{
    AUTOFREE char *file = str_printf("%s/sandboxes/%s/base.index", r->data, r->id);
    AUTOFREE char *slashed = str_printf("%s/", r->project);
    CLEANUP(base_free_p) struct base *b = mem_zalloc(sizeof *b);
    int rc;

    *ret = NULL;
    if (!fs_exists(file))
        return 0;
    if ((rc = library_start(e)) < 0)
        return rc;
    /* an index that can't be read proves nothing: no base is no failure */
    if (git_repository_open_ext(&b->repo, r->project, 0, NULL) < 0 ||
        git_index_open(&b->index, file) < 0)
        return 0;
    const char *top = git_repository_workdir(b->repo);
    if (!top || strncmp(slashed, top, strlen(top)) != 0)
        return 0;
    b->prefix = str_dup(slashed + strlen(top));
    *ret = TAKE_PTR(b);
    return 0;
}

static const git_index_entry *find(const struct base *b, const char *path)
{
    if (!b)
        return NULL;
    AUTOFREE char *full = str_printf("%s%s", b->prefix, path);
    return git_index_get_bypath(b->index, full, 0);
}

bool base_has(const struct base *b, const char *path)
{
    return find(b, path) != NULL;
}

void base_each(const struct base *b, const char *dir, void (*f)(void *arg, const char *path),
               void *arg)
{
    AUTOFREE char *below = b ? str_printf("%s%s%s", b->prefix, dir, *dir ? "/" : "") : NULL;
    const git_index_entry *en;
    size_t i = 0;

    if (!b || (*below && git_index_find_prefix(&i, b->index, below) < 0))
        return;
    for (; (en = git_index_get_byindex(b->index, i)) && str_starts(en->path, below); i++)
        if (!(en->flags_extended & GIT_INDEX_ENTRY_SKIP_WORKTREE))
            f(arg, en->path + strlen(b->prefix));
}

bool base_equals(const struct base *b, const char *path, const void *p, size_t n)
{
    const git_index_entry *en = find(b, path);
    git_oid id;
    return en && git_odb_hash(&id, p, n, GIT_OBJECT_BLOB) == 0 && git_oid_equal(&id, &en->id);
}

int base_read(const struct base *b, const char *path, char **ret, size_t *ret_n, struct err **e)
{
    const git_index_entry *en = find(b, path);
    git_blob *blob = NULL;

    if (!en || git_blob_lookup(&blob, b->repo, &en->id) < 0)
        return err_new(e, ERR_NOT_FOUND, "no base of '%s' is known", path);
    *ret_n = (size_t)git_blob_rawsize(blob);
    *ret = mem_zalloc(*ret_n + 1);
    memcpy(*ret, git_blob_rawcontent(blob), *ret_n);
    git_blob_free(blob);
    return 0;
}

int base_merge(const char *old, size_t old_n, const char *ours, size_t ours_n, const char *theirs,
               size_t theirs_n, struct str *ret, bool *ret_clean, struct err **e)
{
    git_merge_file_input base, a, b;
    git_merge_file_options o;
    git_merge_file_result out = { 0 };
    int rc;

    if ((rc = library_start(e)) < 0)
        return rc;
    if (git_merge_file_input_init(&base, GIT_MERGE_FILE_INPUT_VERSION) < 0 ||
        git_merge_file_input_init(&a, GIT_MERGE_FILE_INPUT_VERSION) < 0 ||
        git_merge_file_input_init(&b, GIT_MERGE_FILE_INPUT_VERSION) < 0 ||
        git_merge_file_options_init(&o, GIT_MERGE_FILE_OPTIONS_VERSION) < 0)
        return err_new(e, ERR_INTERNAL, "libgit2 is of another version");
    base.ptr = old;
    base.size = old_n;
    a.ptr = ours;
    a.size = ours_n;
    b.ptr = theirs;
    b.size = theirs_n;
    if (git_merge_file(&out, &base, &a, &b, &o) < 0) {
        *ret_clean = false; /* binary, too large */
        return 0;
    }
    *ret_clean = out.automergeable;
    str_addn(ret, out.ptr ? out.ptr : "", out.len);
    git_merge_file_result_free(&out);
    return 0;
}
