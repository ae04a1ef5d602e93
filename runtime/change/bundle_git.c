/* runtime/change/bundle_git.c - commits of a sandbox: packed, checked, added. See bundle.h. */
#include <fcntl.h>
#include <git2.h>
#include <git2/sys/odb_backend.h>
#include <git2/sys/repository.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fs.h"
#include "runtime/change/bundle.h"
#include "runtime/change/bundle_refs.h"
#include "runtime/change/library.h"

static int why(struct err **e, const char *what)
{
    const git_error *g = git_error_last();
    return err_new(e, ERR_FAILED, "%s: %s", what, g && g->message ? g->message : "no reason");
}

static void repository_free(git_repository **r)
{
    git_repository_free(*r);
}

static void odb_free(git_odb **o)
{
    git_odb_free(*o);
}

static void walk_free(git_revwalk **w)
{
    git_revwalk_free(*w);
}

static void pack_free(git_packbuilder **p)
{
    git_packbuilder_free(*p);
}

/* --- reading ------------------------------------------------------------------------------------------- */

/* The objects of every layer and of the project: content has its hash for a name, so what a layer took
 * away does not matter. */
static int all_objects(const struct record *r, const struct strv *dirs, git_repository *host,
                       git_odb **ret, struct err **e)
{
    CLEANUP(odb_free) git_odb *odb = NULL;
    AUTOFREE char *own = str_printf("%sobjects", git_repository_commondir(host));

    if (git_odb_new(&odb) < 0)
        return why(e, "objects of the sandbox");
    for (size_t i = 0; i < dirs->n; i++) {
        git_odb_backend *b;
        if (git_odb_backend_loose(&b, dirs->v[i], -1, 0, 0, 0) < 0 ||
            git_odb_add_alternate(odb, b, 2) < 0 || git_odb_backend_pack(&b, dirs->v[i]) < 0 ||
            git_odb_add_alternate(odb, b, 1) < 0)
            return why(e, "objects of the sandbox");
    }
    if (git_odb_add_disk_alternate(odb, own) < 0)
        return why(e, "objects of the project");
    *ret = TAKE_PTR(odb);
    return 0;
}

static int hide(git_reference *ref, void *walk)
{
    git_object *o = NULL;
    if (git_reference_peel(&o, ref, GIT_OBJECT_COMMIT) == 0)
        (void)git_revwalk_hide(walk, git_object_id(o));
    git_object_free(o);
    git_reference_free(ref);
    return 0;
}

/* A tag is an object by itself, and so may be what it names. */
static int add_tip(git_repository *repo, git_revwalk *walk, git_packbuilder *pack, const char *hex)
{
    git_object *o = NULL, *commit = NULL;
    git_oid id;
    int rc = git_oid_fromstr(&id, hex) < 0 ||
                     git_object_lookup(&o, repo, &id, GIT_OBJECT_ANY) < 0 ||
                     git_object_peel(&commit, o, GIT_OBJECT_COMMIT) < 0 ||
                     git_revwalk_push(walk, git_object_id(commit)) < 0
                 ? -1
                 : 0;
    if (rc == 0 && git_object_type(o) == GIT_OBJECT_TAG)
        rc = git_packbuilder_insert(pack, &id, NULL);
    git_object_free(o);
    git_object_free(commit);
    return rc;
}

static int to_file(void *buf, size_t n, void *fd)
{
    return fs_write_all(*(int *)fd, buf, n) < 0 ? GIT_EUSER : 0;
}

static int write_pack(const struct record *r, git_packbuilder *pack, int *ret_fd, struct err **e)
{
    AUTOCLOSE int fd = open(r->data, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd < 0)
        fd = memfd_create("petri-pack", MFD_CLOEXEC);
    if (fd < 0)
        return err_sys(e, "a file for commits");
    if (git_packbuilder_foreach(pack, to_file, &fd) < 0)
        return why(e, "pack the sandbox's commits");
    if (lseek(fd, 0, SEEK_SET) < 0)
        return err_sys(e, "a file for commits");
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int pack_refs(const struct record *r, git_repository *host, git_repository *repo,
                     const struct strv *refs, int *ret_pack, struct str *ret_refs, struct err **e)
{
    CLEANUP(walk_free) git_revwalk *walk = NULL;
    CLEANUP(pack_free) git_packbuilder *pack = NULL;
    CLEANUP(odb_free) git_odb *own = NULL;
    git_oid head;

    if (git_revwalk_new(&walk, repo) < 0 || git_packbuilder_new(&pack, repo) < 0 ||
        git_repository_odb(&own, host) < 0)
        return why(e, "commits of the sandbox");
    for (size_t i = 0; i < refs->n; i++) {
        git_oid id;
        if (git_oid_fromstrn(&id, refs->v[i], 40) < 0 || git_odb_exists(own, &id))
            continue;
        AUTOFREE char *hex = str_printf("%.40s", refs->v[i]);
        if (add_tip(repo, walk, pack, hex) < 0)
            return why(e, refs->v[i]);
        str_addf(ret_refs, "%s\n", refs->v[i]);
    }
    if (!ret_refs->len)
        return 0;
    if (git_reference_foreach(host, hide, walk) < 0)
        return why(e, "refs of the project");
    if (git_reference_name_to_id(&head, host, "HEAD") == 0) /* it may be detached */
        (void)git_revwalk_hide(walk, &head);
    if (git_packbuilder_insert_walk(pack, walk) < 0)
        return why(e, "commits of the sandbox");
    return write_pack(r, pack, ret_pack, e);
}

int bundle_make(const struct record *r, const struct changeset *c, int *ret_pack,
                struct str *ret_refs, struct err **e)
{
    CLEANUP(repository_free) git_repository *host = NULL;
    CLEANUP(repository_free) git_repository *repo = NULL;
    CLEANUP(odb_free) git_odb *odb = NULL;
    AUTOSTRV struct strv refs = { 0 }, dirs = { 0 };
    struct bundle_fds fds = { 0 };
    int rc;

    *ret_pack = -1;
    if ((rc = library_start(e)) < 0)
        return rc;
    if (git_repository_open_ext(&host, r->project, 0, NULL) < 0)
        return 0; /* no repository, no commits */
    rc = bundle_refs(r, &refs, e);
    if (rc == 0 && refs.n)
        rc = bundle_objects(r, &dirs, &fds, e);
    if (rc == 0 && dirs.n && refs.n) {
        rc = all_objects(r, &dirs, host, &odb, e);
        if (rc == 0 && git_repository_wrap_odb(&repo, odb) < 0)
            rc = why(e, "objects of the sandbox");
        if (rc == 0)
            rc = pack_refs(r, host, repo, &refs, ret_pack, ret_refs, e);
    }
    for (size_t i = 0; i < fds.n; i++)
        close(fds.v[i]);
    free(fds.v);
    return rc;
}

/* --- writing --------------------------------------------------------------------------------------------- */

static int add_pack(git_repository *repo, int pack, struct err **e)
{
    CLEANUP(odb_free) git_odb *odb = NULL;
    AUTOFREE char *dir = str_printf("%sobjects/pack", git_repository_commondir(repo));
    AUTOFREE char *buf = mem_zalloc(1 << 17);
    git_indexer_options o;
    git_indexer_progress stats = { 0 };
    git_indexer *ix = NULL;
    ssize_t n = 0;
    int rc = 0;

    if (fs_mkdirs(dir, 0755, e) < 0)
        return -ERR_FAILED;
    if (git_repository_odb(&odb, repo) < 0 ||
        git_indexer_options_init(&o, GIT_INDEXER_OPTIONS_VERSION) < 0)
        return why(e, "objects of the project");
    o.verify = 1;
    if (git_indexer_new(&ix, dir, 0, odb, &o) < 0)
        return why(e, "write to the project's repository");
    while (rc == 0 && (n = RETRY(read(pack, buf, 1 << 17))) > 0)
        rc = git_indexer_append(ix, buf, (size_t)n, &stats);
    if (rc == 0 && n == 0)
        rc = git_indexer_commit(ix, &stats);
    if (rc < 0 || n < 0)
        rc = why(e, "add the sandbox's commits to the project's repository");
    git_indexer_free(ix);
    if (rc == 0 && git_odb_refresh(odb) < 0)
        rc = why(e, "objects of the project");
    return rc;
}

/* One line "HEX NAME". What can't be a ref here is left out. */
static int set_ref(const struct record *r, git_repository *repo, const char *line,
                   struct strv *ret_set, struct err **e)
{
    AUTOFREE char *name = str_printf("refs/petri/%s/%s", record_label(r), line + 41);
    git_reference *ref = NULL;
    git_object *o = NULL;
    git_oid id;
    int valid = 0;

    if (git_oid_fromstrn(&id, line, 40) < 0 || git_reference_name_is_valid(&valid, name) < 0 ||
        !valid || git_object_lookup(&o, repo, &id, GIT_OBJECT_ANY) < 0)
        return 0;
    git_object_free(o);
    if (git_reference_create(&ref, repo, name, &id, 1, NULL) < 0)
        return why(e, name);
    git_reference_free(ref);
    strv_add(ret_set, name);
    return 0;
}

static int take(const struct record *r, int pack, const char *refs, struct strv *ret_set,
                struct err **e)
{
    CLEANUP(repository_free) git_repository *repo = NULL;
    int rc;

    if (git_repository_open_ext(&repo, r->project, 0, NULL) < 0)
        return why(e, "open the project's repository");
    if ((rc = add_pack(repo, pack, e)) < 0)
        return rc;
    for (const char *p = refs; *p && rc == 0; p += strcspn(p, "\n"), p += *p == '\n') {
        AUTOFREE char *line = str_printf("%.*s", (int)strcspn(p, "\n"), p);
        if (strlen(line) > 41)
            rc = set_ref(r, repo, line, ret_set, e);
    }
    return rc;
}

int bundle_take(const struct record *r, int pack, const char *refs, struct strv *ret_set,
                struct err **e)
{
    int rc = library_write(r, e);

    if (rc < 0)
        return rc;
    rc = take(r, pack, refs, ret_set, e);
    library_written(r);
    return rc;
}
