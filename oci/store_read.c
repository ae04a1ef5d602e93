#include "oci/store_read.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "oci/digest.h"
#include "oci/ref.h"

enum { MIN_ID = 6 };

int store_index(const char *data_dir, struct index *ret, struct err **e)
{
    static const char empty[] = "{\"schemaVersion\":2,\"manifests\":[]}";
    AUTOFREE char *path = path_join(data_dir, "images/index.json"), *text = NULL;
    size_t n;
    int rc;

    if (!fs_exists(path))
        return index_parse(empty, sizeof empty - 1, ret, e);
    rc = fs_read(AT_FDCWD, path, MANIFEST_MAX, &text, &n, e);
    if (rc == 0 && (rc = index_parse(text, n, ret, e)) < 0)
        return err_wrap(e, "'%s'", path);
    return rc;
}

char *store_short_name(const char *ref)
{
    size_t n = strlen(ref), tag = strlen(":latest");
    return str_ends(ref, ":latest") ? str_printf("%.*s", (int)(n - tag), ref) : str_dup(ref);
}

static int not_found(const struct index *i, const char *name, struct err **e)
{
    AUTOSTRV struct strv names = { 0 };
    const char *near;

    for (size_t k = 0; k < i->n; k++)
        if (i->v[k].ref)
            strv_take(&names, store_short_name(i->v[k].ref));
    strv_add(&names, "host");
    near = nearest_word(name, (const char *const *)names.v, names.n);
    if (near)
        return err_new(e, ERR_NOT_FOUND,
                       "no image '%s', did you mean '%s'? (petri image ls shows all)", name, near);
    return err_new(e, ERR_NOT_FOUND,
                   "no image '%s'; import one: petri image import ROOTFS.tar %s (or use 'host')",
                   name, name);
}

static int find_id(const struct index *i, const char *id, const struct desc **ret, struct err **e)
{
    const struct desc *found = NULL;
    const char *hex = str_starts(id, "sha256:") ? id + strlen("sha256:") : id;
    size_t n = strlen(hex);

    if (n < MIN_ID || n > DIGEST_HEX || strspn(hex, "0123456789abcdef") != n)
        return 0;
    for (size_t k = 0; k < i->n; k++) {
        if (!desc_is_manifest(&i->v[k]) || !str_starts(digest_hex(i->v[k].digest), hex))
            continue;
        if (found && strcmp(found->digest, i->v[k].digest))
            return err_new(e, ERR_INVALID,
                           "image ID '%s' fits more than one image; give more digits", id);
        found = found ? found : &i->v[k];
    }
    *ret = found;
    return 0;
}

int store_find(const struct index *i, const char *name, const struct desc **ret, struct err **e)
{
    CLEANUP(ref_free_p) struct ref r = { 0 };
    AUTOFREE char *full = NULL;
    const struct desc *found = NULL;
    int rc;

    /* "sha256:HEX" is read as name and tag by nobody */
    if (!str_starts(name, "sha256:")) {
        if ((rc = ref_parse(name, &r, e)) < 0)
            return rc;
        full = ref_text(&r);
        for (size_t k = 0; k < i->n && !found; k++)
            if (desc_is_manifest(&i->v[k]) && str_eq(i->v[k].ref, full))
                found = &i->v[k];
    }
    if (!found && (rc = find_id(i, name, &found, e)) < 0)
        return rc;
    if (!found && ref_is_host(name))
        return err_new(e, ERR_INVALID, "'%s' is the machine itself, not an image in the store",
                       name);
    if (!found)
        return not_found(i, name, e);
    *ret = found;
    return 0;
}

int store_blob(const char *data_dir, const struct desc *d, char **ret, size_t *ret_len,
               struct err **e)
{
    AUTOFREE char *path = str_printf("%s/images/blobs/sha256/%s", data_dir, digest_hex(d->digest));
    AUTOFREE char *text = NULL;
    size_t n;
    int rc = fs_read(AT_FDCWD, path, MANIFEST_MAX, &text, &n, e);

    if (rc < 0)
        return rc;
    if (n != d->size)
        return err_new(e, ERR_CORRUPT, "blob '%s' has %zu bytes, not %llu; import the image again",
                       path, n, (unsigned long long)d->size);
    *ret = TAKE_PTR(text);
    *ret_len = n;
    return 0;
}

int store_image(const char *data_dir, const struct desc *d, struct manifest *ret_m,
                struct image_config *ret_c, struct err **e)
{
    CLEANUP(manifest_free_p) struct manifest m = { 0 };
    AUTOFREE char *mtext = NULL, *ctext = NULL;
    size_t n;
    int rc;

    if ((rc = store_blob(data_dir, d, &mtext, &n, e)) < 0 ||
        (rc = manifest_parse(mtext, n, &m, e)) < 0)
        return err_wrap(e, "manifest");
    if ((rc = store_blob(data_dir, &m.config, &ctext, &n, e)) < 0 ||
        (rc = image_config_parse(ctext, n, ret_c, e)) < 0)
        return err_wrap(e, "config");
    if (ret_c->diff_ids.n != m.n_layers) {
        image_config_free_p(ret_c);
        return err_new(e, ERR_CORRUPT, "manifest and config name different numbers of layers");
    }
    *ret_m = m;
    m = (struct manifest){ 0 };
    return 0;
}

char *store_layer_name(const char *diff_id)
{
    return str_printf("sha256-%s", digest_hex(diff_id));
}

/* Takes the layer's lock, then looks again whether it still is the layer's: `image rm` may have
 * been quicker. */
static int lock_layer(const char *dir, int *ret_fd, struct err **e)
{
    AUTOFREE char *path = path_join(dir, "lock");
    AUTOCLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat a, b;

    if (fd < 0 && errno == ENOENT)
        return err_new(e, ERR_NOT_FOUND, "layer '%s' is not unpacked", dir);
    if (fd < 0)
        return err_sys(e, "open '%s'", path);
    if (flock(fd, LOCK_SH | LOCK_NB) < 0)
        return err_new(e, ERR_BUSY, "layer '%s' is being removed", dir);
    if (fstat(fd, &a) < 0 || stat(path, &b) < 0 || a.st_ino != b.st_ino || a.st_dev != b.st_dev)
        return err_new(e, ERR_NOT_FOUND, "layer '%s' was removed just now", dir);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int add_layer(const char *data_dir, const char *diff_id, struct image_info *info,
                     struct err **e)
{
    AUTOFREE char *name = store_layer_name(diff_id);
    AUTOFREE char *dir = str_printf("%s/layers/%s", data_dir, name);
    AUTOFREE char *fs = path_join(dir, "fs");
    int rc;

    /* An overlay takes a directory once; what the lower one holds is in the upper one too. */
    if (strv_has(&info->layer_dirs, fs))
        return 0;
    rc = lock_layer(dir, &info->locks[info->n_locks], e);
    if (rc < 0)
        return err_wrap(e, "unpack it: petri image import --ref %s %s/images %s", info->name,
                        data_dir, info->name);
    info->n_locks++;
    strv_take(&info->layer_dirs, TAKE_PTR(fs));
    return 0;
}

int store_resolve(const char *data_dir, const char *name, struct image_info *ret, struct err **e)
{
    CLEANUP(image_info_free_p) struct image_info info = { 0 };
    CLEANUP(index_free_p) struct index i = { 0 };
    CLEANUP(manifest_free_p) struct manifest m = { 0 };
    CLEANUP(image_config_free_p) struct image_config c = { 0 };
    const struct desc *d;
    int rc;

    if ((rc = store_index(data_dir, &i, e)) < 0 || (rc = store_find(&i, name, &d, e)) < 0)
        return rc;
    if ((rc = store_image(data_dir, d, &m, &c, e)) < 0)
        return err_wrap(e, "image '%s'", name);
    info.name = str_dup(d->ref ? d->ref : d->digest);
    info.digest = str_dup(d->digest);
    info.locks = mem_zalloc(c.diff_ids.n * sizeof *info.locks);
    for (size_t k = c.diff_ids.n; k-- > 0;)
        if ((rc = add_layer(data_dir, c.diff_ids.v[k], &info, e)) < 0)
            return err_wrap(e, "image '%s'", name);
    info.workdir = TAKE_PTR(c.workdir);
    info.user = TAKE_PTR(c.user);
    info.arch = TAKE_PTR(c.arch);
    info.env = c.env;
    info.entrypoint = c.entrypoint;
    info.cmd = c.cmd;
    c.env = c.entrypoint = c.cmd = (struct strv){ 0 };
    *ret = info;
    info = (struct image_info){ 0 };
    return 0;
}

void image_info_free_p(struct image_info *i)
{
    for (size_t k = 0; k < i->n_locks; k++)
        close_p(&i->locks[k]);
    free(i->locks);
    free(i->name);
    free(i->digest);
    free(i->workdir);
    free(i->user);
    free(i->arch);
    strv_free_p(&i->layer_dirs);
    strv_free_p(&i->env);
    strv_free_p(&i->entrypoint);
    strv_free_p(&i->cmd);
    *i = (struct image_info){ 0 };
}
