#include "image/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "image/gc.h"
#include "image/sha.h"
#include "oci/digest.h"
#include "oci/store_read.h"

static const char oci_layout[] = "{\"imageLayoutVersion\":\"1.0.0\"}";
static const char empty_index[] =
    "{\"schemaVersion\":2,\"mediaType\":\"" MT_INDEX "\",\"manifests\":[]}";

static int open_dir(const char *data, const char *name, int *ret_fd, struct err **e)
{
    AUTOFREE char *path = path_join(data, name);
    int fd, rc = fs_private_dir(path, e);

    if (rc < 0)
        return rc;
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, "open '%s'", path);
    *ret_fd = fd;
    return 0;
}

static int write_once(const char *data, const char *name, const char *text, struct err **e)
{
    AUTOFREE char *path = path_join(data, name);
    return fs_exists(path) ? 0 : fs_write_atomic(AT_FDCWD, path, text, strlen(text), 0600, e);
}

/* One writer at a time; each holds it for moments only. */
static int lock_store(const struct store *s, int *ret_fd, struct err **e)
{
    AUTOCLOSE int fd =
        openat(s->layers_fd, ".lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || RETRY(flock(fd, LOCK_EX)) < 0)
        return err_sys(e, "lock the image store '%s'", s->data);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int store_open(const char *data_dir, struct store *ret, struct err **e)
{
    CLEANUP(store_close_p) struct store s = { .layers_fd = -1, .blobs_fd = -1 };
    AUTOCLOSE int images = -1, blobs = -1, lock = -1;
    int rc;

    s.data = str_dup(data_dir);
    if ((rc = open_dir(data_dir, "images", &images, e)) < 0 ||
        (rc = open_dir(data_dir, "images/blobs", &blobs, e)) < 0 ||
        (rc = open_dir(data_dir, "images/blobs/sha256", &s.blobs_fd, e)) < 0 ||
        (rc = open_dir(data_dir, "layers", &s.layers_fd, e)) < 0 ||
        (rc = lock_store(&s, &lock, e)) < 0 ||
        (rc = write_once(data_dir, "images/index.json", empty_index, e)) < 0 ||
        (rc = write_once(data_dir, "images/oci-layout", oci_layout, e)) < 0)
        return rc;
    *ret = s;
    s = (struct store){ .layers_fd = -1, .blobs_fd = -1 };
    return 0;
}

void store_close_p(struct store *s)
{
    free_p(&s->data);
    close_p(&s->layers_fd);
    close_p(&s->blobs_fd);
}

/* --- staging --------------------------------------------------------------------------------- */

int stage_open(const struct store *s, struct stage *ret, struct err **e)
{
    CLEANUP(stage_close_p) struct stage g = { .layers_fd = -1, .fd = -1 };
    AUTOCLOSE int lock = -1;
    uint64_t random;
    int rc;

    if ((rc = lock_store(s, &lock, e)) < 0)
        return rc;
    gc_sweep_stages(s);
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        return err_sys(e, "get random bytes");
    g.name = str_printf(GC_STAGE_PREFIX "%016llx", (unsigned long long)random);
    if (mkdirat(s->layers_fd, g.name, 0700) < 0)
        return err_sys(e, "make a directory in '%s/layers'", s->data);
    g.layers_fd = s->layers_fd;
    g.fd = openat(s->layers_fd, g.name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (g.fd < 0 || flock(g.fd, LOCK_EX | LOCK_NB) < 0 || mkdirat(g.fd, "blobs", 0700) < 0 ||
        mkdirat(g.fd, "layers", 0700) < 0)
        return err_sys(e, "set up '%s/layers/%s'", s->data, g.name);
    *ret = g;
    g = (struct stage){ .layers_fd = -1, .fd = -1 };
    return 0;
}

void stage_close_p(struct stage *g)
{
    if (g->name && g->layers_fd >= 0)
        (void)fs_remove_tree(g->layers_fd, g->name, NULL);
    free_p(&g->name);
    close_p(&g->fd);
    g->layers_fd = -EBADF;
}

int stage_blob(const struct stage *g, const void *p, size_t n, char **ret_digest, struct err **e)
{
    AUTOFREE char *digest = sha_of(p, n);
    AUTOFREE char *path = path_join("blobs", digest_hex(digest));
    AUTOCLOSE int fd =
        openat(g->fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0 || fs_write_all(fd, p, n) < 0)
        return err_sys(e, "write a blob to the store");
    if (ret_digest)
        *ret_digest = TAKE_PTR(digest);
    return 0;
}

/* Moves everything of stage/DIR to `to`; a layer that is there already stays as it is. */
static int move_all(const struct stage *g, const char *dir, int to, struct err **e)
{
    int fd = openat(g->fd, dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *de;
    int rc = 0;

    if (!d) {
        close_p(&fd);
        return err_sys(e, "read the stage");
    }
    while (rc == 0 && (de = readdir(d)))
        if (de->d_name[0] != '.' && renameat(fd, de->d_name, to, de->d_name) < 0 &&
            errno != ENOTEMPTY && errno != EEXIST)
            rc = err_sys(e, "move '%s' into the store", de->d_name);
    closedir(d);
    if (rc == 0 && fsync(to) < 0)
        rc = err_sys(e, "sync the store");
    return rc;
}

static void write_entry(struct jsonw *w, const char *ref, const char *type, const char *digest,
                        uint64_t size)
{
    jw_obj(w, NULL);
    jw_str(w, "mediaType", type);
    jw_str(w, "digest", digest);
    jw_u64(w, "size", size);
    jw_obj(w, "annotations");
    jw_str(w, ANNOTATION_REF, ref);
    jw_end_obj(w);
    jw_end_obj(w);
}

/* Everything of the old index but entries named in `drop`; digest NULL adds nothing. */
static int write_index(const struct store *s, const struct index *old, const struct strv *drop,
                       const char *ref, const char *type, const char *digest, uint64_t size,
                       struct err **e)
{
    AUTOFREE char *path = path_join(s->data, "images/index.json");
    const struct json *list = json_arr(old->json, "manifests");
    AUTOJSONW struct jsonw w = { 0 };

    jw_obj(&w, NULL);
    for (size_t i = 0; i < old->json->n; i++)
        if (strcmp(old->json->keys[i], "manifests"))
            jw_json(&w, old->json->keys[i], old->json->items[i]);
    jw_arr(&w, "manifests");
    for (size_t i = 0; i < old->n; i++)
        if (!old->v[i].ref || !strv_has(drop, old->v[i].ref))
            jw_json(&w, NULL, list->items[i]);
    if (digest)
        write_entry(&w, ref, type, digest, size);
    jw_end_arr(&w);
    jw_end_obj(&w);
    return fs_write_atomic(AT_FDCWD, path, w.out.p, w.out.len, 0600, e);
}

int stage_commit(const struct store *s, const struct stage *g, const char *ref,
                 const char *manifest_type, const char *manifest_digest, uint64_t manifest_size,
                 struct err **e)
{
    CLEANUP(index_free_p) struct index index = { 0 };
    AUTOSTRV struct strv drop = { 0 };
    AUTOCLOSE int lock = -1;
    int rc;

    /* once, for all of it, before anything can be seen */
    if (syncfs(g->fd) < 0)
        return err_sys(e, "sync the store");
    strv_add(&drop, ref);
    if ((rc = lock_store(s, &lock, e)) < 0 || (rc = store_index(s->data, &index, e)) < 0 ||
        (rc = move_all(g, "blobs", s->blobs_fd, e)) < 0 ||
        (rc = move_all(g, "layers", s->layers_fd, e)) < 0)
        return rc;
    return write_index(s, &index, &drop, ref, manifest_type, manifest_digest, manifest_size, e);
}

/* --- removal --------------------------------------------------------------------------------- */

/* All names that `name` stands for: itself, or every name of an ID. */
static int names_of(const struct index *i, const char *name, struct strv *ret, struct err **e)
{
    const struct desc *d;
    AUTOFREE char *full = NULL;
    int rc = store_find(i, name, &d, e);

    if (rc < 0)
        return rc;
    full = strchr(name, ':') ? str_dup(name) : str_printf("%s:latest", name);
    for (size_t k = 0; k < i->n; k++) {
        bool same = str_eq(d->ref, full) ? &i->v[k] == d : !strcmp(i->v[k].digest, d->digest);
        if (same && i->v[k].ref && !strv_has(ret, i->v[k].ref))
            strv_add(ret, i->v[k].ref);
    }
    return 0;
}

int store_remove(const struct store *s, char **names, size_t n, struct removed *ret, struct err **e)
{
    CLEANUP(removed_free_p) struct removed r = { 0 };
    CLEANUP(index_free_p) struct index index = { 0 };
    AUTOCLOSE int lock = -1;
    int rc;

    if ((rc = lock_store(s, &lock, e)) < 0 || (rc = store_index(s->data, &index, e)) < 0)
        return rc;
    for (size_t k = 0; k < n; k++)
        if ((rc = names_of(&index, names[k], &r.names, e)) < 0)
            return rc;
    if ((rc = write_index(s, &index, &r.names, NULL, NULL, NULL, 0, e)) < 0)
        return rc;
    gc_sweep_stages(s);
    if ((rc = gc_unused(s, &r, e)) < 0)
        return rc;
    *ret = r;
    r = (struct removed){ 0 };
    return 0;
}

void removed_free_p(struct removed *r)
{
    strv_free_p(&r->names);
}
