/* runtime/change/branch_git.c - petri promote --branch: a commit instead of files.
 *
 * The tree is that of the branch (of HEAD where there is none yet) with the picked changes in it. Working
 * tree, index and HEAD are not touched; no hook and no filter runs.
 */
#include <fcntl.h>
#include <git2.h>
#include <string.h>

#include "base/fs.h"
#include "runtime/change/library.h"
#include "runtime/change/promote.h"

struct branch {
    git_repository *repo;
    git_commit *parent; /* NULL: the first commit */
    git_index *index;   /* in memory */
    git_odb *odb;
    char *ref;    /* refs/heads/NAME */
    char *prefix; /* of the project in the work tree */
};

static void branch_free_p(struct branch *b)
{
    git_index_free(b->index);
    git_odb_free(b->odb);
    git_commit_free(b->parent);
    git_repository_free(b->repo);
    free(b->ref);
    free(b->prefix);
}

static int why(struct err **e, const char *what)
{
    const git_error *g = git_error_last();
    return err_new(e, ERR_FAILED, "%s: %s", what, g && g->message ? g->message : "no reason");
}

static int open_branch(const struct record *r, const char *name, struct branch *b, struct err **e)
{
    AUTOFREE char *slashed = str_printf("%s/", r->project);
    git_reference *ref = NULL;
    git_oid id;
    int valid = 0;

    if (git_repository_open_ext(&b->repo, r->project, 0, NULL) < 0)
        return err_new(e, ERR_INVALID, "--branch wants a git repository, and '%s' is none",
                       r->project);
    const char *top = git_repository_workdir(b->repo);
    if (!top || strncmp(slashed, top, strlen(top)) != 0)
        return err_new(e, ERR_INVALID, "'%s' is not in the work tree of its repository",
                       r->project);
    b->prefix = str_dup(slashed + strlen(top));
    if (git_branch_name_is_valid(&valid, name) < 0 || !valid)
        return err_new(e, ERR_INVALID, "'%.80s' can't be the name of a branch", name);
    b->ref = str_printf("refs/heads/%s", name);
    if (git_reference_lookup(&ref, b->repo, b->ref) == 0) {
        bool out = git_branch_is_checked_out(ref) == 1;
        git_reference_free(ref);
        if (out)
            return err_new(e, ERR_EXISTS,
                           "branch '%s' is checked out; name another one, or promote without "
                           "--branch",
                           name);
    } else if (git_repository_head_unborn(b->repo) == 1 &&
               git_reference_lookup(&ref, b->repo, "HEAD") == 0) {
        bool out = str_eq(git_reference_symbolic_target(ref), b->ref);
        git_reference_free(ref);
        if (out)
            return err_new(e, ERR_EXISTS, "branch '%s' is checked out; name another one", name);
    }
    if (git_reference_name_to_id(&id, b->repo, b->ref) < 0 &&
        git_reference_name_to_id(&id, b->repo, "HEAD") < 0)
        return 0; /* no commit at all yet */
    return git_commit_lookup(&b->parent, b->repo, &id) < 0 ? why(e, "read the branch") : 0;
}

static int read_tree(struct branch *b, struct err **e)
{
    git_tree *tree = NULL;
    int rc = git_index_new(&b->index) < 0 || git_repository_odb(&b->odb, b->repo) < 0 ||
             (b->parent &&
              (git_commit_tree(&tree, b->parent) < 0 || git_index_read_tree(b->index, tree) < 0));
    git_tree_free(tree);
    return rc ? why(e, "read the branch") : 0;
}

static int add_blob(struct branch *b, struct picks *p, size_t i, git_oid *ret, struct err **e)
{
    AUTOFREE char *text = NULL, *link = NULL;
    AUTOCLOSE int fd = -1;
    size_t n = 0;
    int rc = 0;

    if (p->v[i].content >= 0) {
        rc = drift_read_fd(p->v[i].content, &text, &n, e);
    } else if ((rc = source_content(p->s, i, &fd, &link, e)) == 0) {
        rc = link ? 0 : drift_read_fd(fd, &text, &n, e);
        n = link ? strlen(link) : n;
        if (rc == 0)
            rc = source_same(p->s, i, link ? link : text, n, e);
    }
    if (rc < 0)
        return err_wrap(e, "'%s'", p->s->c.v[i].path);
    if (git_odb_write(ret, b->odb, link ? link : text, n, GIT_OBJECT_BLOB) < 0)
        return why(e, p->s->c.v[i].path);
    return 0;
}

static int put(struct branch *b, struct picks *p, size_t i, struct err **e)
{
    const struct change *ch = &p->s->c.v[i];
    AUTOFREE char *path = str_printf("%s%s", b->prefix, ch->path);
    git_index_entry en = { .path = path };
    int rc;

    if (!ch->new_mode || S_ISDIR(ch->new_mode)) {
        (void)git_index_remove(b->index, path, 0);
        return 0;
    }
    if ((rc = add_blob(b, p, i, &en.id, e)) < 0)
        return rc;
    en.mode = S_ISLNK(ch->new_mode)      ? GIT_FILEMODE_LINK
              : (ch->new_mode & S_IXUSR) ? GIT_FILEMODE_BLOB_EXECUTABLE
                                         : GIT_FILEMODE_BLOB;
    return git_index_add(b->index, &en) < 0 ? why(e, ch->path) : 0;
}

static int write_commit(struct branch *b, const struct record *r, const struct changeset *c,
                        git_oid *ret, struct err **e)
{
    AUTOFREE char *message =
        str_printf("petri: changes of sandbox %s\n\nChange: %s\n", record_label(r), c->id);
    const git_commit *parents[1] = { b->parent };
    git_signature *who = NULL;
    git_tree *tree = NULL;
    git_oid id;
    int rc = git_index_write_tree_to(&id, b->index, b->repo) < 0 ||
             git_tree_lookup(&tree, b->repo, &id) < 0;

    if (rc == 0 && git_signature_default(&who, b->repo) < 0 &&
        git_signature_now(&who, "petri", "petri@localhost") < 0)
        rc = -1;
    /* the ref is moved only from where it was when this was made */
    if (rc == 0)
        rc = git_commit_create(ret, b->repo, b->ref, who, who, NULL, message, tree,
                               b->parent ? 1 : 0, parents) < 0;
    git_tree_free(tree);
    git_signature_free(who);
    return rc ? why(e, "commit to the branch") : 0;
}

static int commit_picks(const struct record *r, struct picks *p, const char *name,
                        char **ret_commit, struct err **e)
{
    CLEANUP(branch_free_p) struct branch b = { 0 };
    char hex[GIT_OID_HEXSZ + 1];
    git_oid id;
    int rc;

    if ((rc = open_branch(r, name, &b, e)) < 0 || (rc = read_tree(&b, e)) < 0)
        return rc;
    for (size_t pass = 0; pass < 2;
         pass++) /* what goes first: a file may take a directory's place */
        for (size_t i = 0; i < p->n; i++)
            if (p->v[i].what == PICK_TAKE && (p->s->c.v[i].new_mode != 0) == (pass == 1) &&
                (rc = put(&b, p, i, e)) < 0)
                return rc;
    if ((rc = write_commit(&b, r, &p->s->c, &id, e)) < 0)
        return rc;
    *ret_commit = str_dup(git_oid_tostr(hex, sizeof hex, &id));
    return 0;
}

int branch_commit(const struct record *r, struct picks *p, const char *name, char **ret_commit,
                  struct err **e)
{
    int rc = library_write(r, e);

    if (rc < 0)
        return rc;
    rc = commit_picks(r, p, name, ret_commit, e);
    library_written(r);
    return rc;
}
