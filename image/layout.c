#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "image/import.h"
#include "image/sha.h"
#include "oci/digest.h"
#include "oci/image_config.h"

static bool has_file(int dirfd, const char *name)
{
    struct stat st;
    return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

bool import_is_layout(int dirfd)
{
    return has_file(dirfd, "oci-layout") && has_file(dirfd, "index.json");
}

static int open_file(int dirfd, const char *path, const char *label, int *ret_fd, struct err **e)
{
    AUTOCLOSE int fd = fs_open_beneath(dirfd, path, O_RDONLY | O_NONBLOCK, 0, 0);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, "open '%s' of '%s'", path, label);
    if (!S_ISREG(st.st_mode))
        return err_new(e, ERR_INVALID, "'%s' of '%s' is not a file", path, label);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int import_read(int dirfd, const char *path, const char *label, char **ret, size_t *ret_n,
                struct err **e)
{
    AUTOCLOSE int fd = -1;
    int rc = open_file(dirfd, path, label, &fd, e);

    if (rc < 0)
        return rc;
    AUTOFREE char *proc = str_printf("/proc/self/fd/%d", fd);
    if ((rc = fs_read(AT_FDCWD, proc, MANIFEST_MAX, ret, ret_n, e)) < 0)
        return err_wrap(e, "'%s' of '%s'", path, label);
    return 0;
}

static char *blob_path(const struct desc *d)
{
    return path_join("blobs/sha256", digest_hex(d->digest));
}

/* A small blob, checked against its descriptor. */
static int read_blob(int dirfd, const struct desc *d, const char *label, char **ret, size_t *ret_n,
                     struct err **e)
{
    AUTOFREE char *path = blob_path(d), *text = NULL, *digest = NULL;
    size_t n;
    int rc = import_read(dirfd, path, label, &text, &n, e);

    if (rc < 0)
        return rc;
    digest = sha_of(text, n);
    if (n != d->size || strcmp(digest, d->digest))
        return err_new(e, ERR_CORRUPT, "'%s' of '%s' does not match its digest and size", path,
                       label);
    *ret = TAKE_PTR(text);
    *ret_n = n;
    return 0;
}

static void list_refs(const struct index *i, struct str *out)
{
    for (size_t k = 0; k < i->n; k++)
        if (i->v[k].ref)
            str_addf(out, "%s%s", out->len ? ", " : "", i->v[k].ref);
}

/* The entry of index.json that is meant: by --ref, or the only one, or the machine's platform. */
static int choose(struct import *im, const struct index *i, const char *label,
                  const struct desc **ret, struct err **e)
{
    const char *ref = im->opts->ref;
    const struct desc *d = NULL;
    AUTOSTR struct str refs = STR_INIT;

    for (size_t k = 0; k < i->n && ref && !d; k++)
        if (str_eq(i->v[k].ref, ref))
            d = &i->v[k];
    if (!ref && i->n == 1)
        d = &i->v[0];
    if (!ref && !d)
        d = index_platform(i, im->os, im->arch, im->variant);
    if (d) {
        *ret = d;
        return 0;
    }
    list_refs(i, &refs);
    if (ref)
        return err_new(e, ERR_NOT_FOUND, "'%s' has no image '%s'; it has: %s", label, ref,
                       refs.len ? refs.p : "none with a name");
    return err_new(e, ERR_USAGE, "'%s' holds %zu images; choose one with --ref: %s", label, i->n,
                   refs.len ? refs.p : "none has a name");
}

/* Follows indexes to the manifest of the platform asked for. */
static int find_manifest(struct import *im, int dirfd, const char *label, struct desc *ret,
                         struct index *top, struct err **e)
{
    AUTOFREE char *text = NULL;
    const struct desc *d = NULL;
    size_t n;
    int rc;

    if ((rc = import_read(dirfd, "index.json", label, &text, &n, e)) < 0)
        return rc;
    if ((rc = index_parse(text, n, top, e)) < 0)
        return err_wrap(e, "index.json of '%s'", label);
    if ((rc = choose(im, top, label, &d, e)) < 0)
        return rc;
    for (int depth = 0; desc_is_index(d) && depth < 4; depth++) {
        CLEANUP(index_free_p) struct index sub = { 0 };
        free_p(&text);
        if ((rc = read_blob(dirfd, d, label, &text, &n, e)) < 0 ||
            (rc = index_parse(text, n, &sub, e)) < 0)
            return rc;
        if (!index_platform(&sub, im->os, im->arch, im->variant))
            return err_new(e, ERR_NOT_FOUND, "'%s' has no image for %s/%s; --platform chooses",
                           label, im->os, im->arch);
        index_free_p(top);
        *top = sub;
        sub = (struct index){ 0 };
        d = index_platform(top, im->os, im->arch, im->variant);
    }
    if (!desc_is_manifest(d))
        return err_new(e, ERR_UNSUPPORTED, "'%s' of '%s' is not an image manifest", d->media_type,
                       label);
    *ret = *d; /* borrows from top */
    return 0;
}

static int take_layers(struct import *im, int dirfd, const char *label, const struct manifest *m,
                       const struct image_config *c, struct err **e)
{
    for (size_t i = 0; i < m->n_layers; i++) {
        CLEANUP(staged_free_p) struct staged layer = { 0 };
        AUTOFREE char *path = blob_path(&m->layers[i]);
        AUTOCLOSE int fd = -1;
        int rc;

        if ((rc = open_file(dirfd, path, label, &fd, e)) < 0 ||
            (rc = import_layer(im, fd, path, KEEP_AS_IS, &m->layers[i], c->diff_ids.v[i], &layer,
                               e)) < 0)
            return rc;
        im->result.size += layer.size;
    }
    return 0;
}

int import_layout(struct import *im, int dirfd, const char *label, struct err **e)
{
    CLEANUP(index_free_p) struct index top = { 0 };
    CLEANUP(manifest_free_p) struct manifest m = { 0 };
    CLEANUP(image_config_free_p) struct image_config c = { 0 };
    AUTOFREE char *mtext = NULL, *ctext = NULL;
    struct desc d;
    size_t mn, cn;
    int rc;

    if (im->opts->changed)
        return err_new(e, ERR_USAGE,
                       "--change and --message are for file systems; '%s' is an image", label);
    if ((rc = find_manifest(im, dirfd, label, &d, &top, e)) < 0)
        return rc;
    if ((rc = read_blob(dirfd, &d, label, &mtext, &mn, e)) < 0 ||
        (rc = manifest_parse(mtext, mn, &m, e)) < 0)
        return err_wrap(e, "manifest of '%s'", label);
    if ((rc = read_blob(dirfd, &m.config, label, &ctext, &cn, e)) < 0 ||
        (rc = image_config_parse(ctext, cn, &c, e)) < 0)
        return err_wrap(e, "config of '%s'", label);
    if (c.diff_ids.n != m.n_layers)
        return err_new(e, ERR_CORRUPT,
                       "manifest and config of '%s' name different numbers of layers", label);
    if ((rc = take_layers(im, dirfd, label, &m, &c, e)) < 0 ||
        (rc = stage_blob(&im->stage, ctext, cn, NULL, e)) < 0 ||
        (rc = stage_blob(&im->stage, mtext, mn, NULL, e)) < 0)
        return rc;
    im->result.size += cn;
    im->result.layers = m.n_layers;
    im->result.arch = TAKE_PTR(c.arch);
    return import_commit(im, d.media_type, d.digest, mn, e);
}
