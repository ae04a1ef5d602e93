#include "image/gc.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

#include "base/fs.h"
#include "oci/digest.h"
#include "oci/store_read.h"

/* Names in a directory, taken before anything in it changes. */
static int list_dir(int fd, struct strv *ret, struct err **e)
{
    int dup = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = dup >= 0 ? fdopendir(dup) : NULL;
    struct dirent *de;

    if (!d) {
        close_p(&dup);
        return err_sys(e, "read the store");
    }
    while ((de = readdir(d)))
        if (strcmp(de->d_name, ".") && strcmp(de->d_name, ".."))
            strv_add(ret, de->d_name);
    closedir(d);
    return 0;
}

static void sweep_stage(const struct store *s, const char *name)
{
    AUTOCLOSE int fd = openat(s->layers_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        (void)fs_remove_tree(s->layers_fd, name, NULL);
}

void gc_sweep_stages(const struct store *s)
{
    AUTOFREE char *path = path_join(s->data, "images");
    AUTOCLOSE int images = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTOSTRV struct strv stages = { 0 }, files = { 0 };

    if (list_dir(s->layers_fd, &stages, NULL) == 0)
        for (size_t i = 0; i < stages.n; i++)
            if (str_starts(stages.v[i], GC_STAGE_PREFIX))
                sweep_stage(s, stages.v[i]);
    if (images >= 0 && list_dir(images, &files, NULL) == 0)
        for (size_t i = 0; i < files.n; i++)
            if (str_starts(files.v[i], ".tmp-"))
                (void)unlinkat(images, files.v[i], 0);
}

/* What the images of the index need: blob names (hex) and layer names. */
struct live {
    struct strv blobs, layers;
};

static void live_free_p(struct live *l)
{
    strv_free_p(&l->blobs);
    strv_free_p(&l->layers);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void sort(struct strv *l)
{
    if (l->n)
        qsort(l->v, l->n, sizeof *l->v, by_text);
}

static bool has(const struct strv *l, const char *s)
{
    return l->n && bsearch(&s, l->v, l->n, sizeof *l->v, by_text);
}

/* An index within the index is another tool's work; it is kept with what it names. */
static int mark(const struct store *s, const struct desc *d, struct live *live, int depth,
                struct err **e)
{
    AUTOFREE char *text = NULL;
    size_t n;
    int rc;

    strv_add(&live->blobs, digest_hex(d->digest));
    if (desc_is_index(d)) {
        CLEANUP(index_free_p) struct index sub = { 0 };
        if (depth > 4)
            return err_new(e, ERR_CORRUPT, "indexes are nested too deeply");
        if ((rc = store_blob(s->data, d, &text, &n, e)) < 0 ||
            (rc = index_parse(text, n, &sub, e)) < 0)
            return rc;
        for (size_t i = 0; i < sub.n; i++)
            if (mark(s, &sub.v[i], live, depth + 1, NULL) < 0)
                continue; /* other platforms need not be there */
        return 0;
    }
    if (desc_is_manifest(d)) {
        CLEANUP(manifest_free_p) struct manifest m = { 0 };
        CLEANUP(image_config_free_p) struct image_config c = { 0 };
        if ((rc = store_blob(s->data, d, &text, &n, e)) < 0 ||
            (rc = manifest_parse(text, n, &m, e)) < 0)
            return rc;
        strv_add(&live->blobs, digest_hex(m.config.digest));
        for (size_t i = 0; i < m.n_layers; i++)
            strv_add(&live->blobs, digest_hex(m.layers[i].digest));
        free_p(&text);
        if (store_blob(s->data, &m.config, &text, &n, NULL) == 0 &&
            image_config_parse(text, n, &c, NULL) == 0)
            for (size_t i = 0; i < c.diff_ids.n; i++)
                strv_take(&live->layers, store_layer_name(c.diff_ids.v[i]));
    }
    return 0;
}

/* Takes a layer away unless somebody uses it. It goes out of sight by rename first: whoever comes
 * now finds nothing, not half of it. */
static int remove_layer(const struct store *s, const char *name, struct removed *r, struct err **e)
{
    AUTOFREE char *lock = path_join(name, "lock"), *gone = str_printf(GC_STAGE_PREFIX "%s", name);
    AUTOCLOSE int fd = openat(s->layers_fd, lock, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0) {
        r->busy++;
        return 0;
    }
    if (renameat(s->layers_fd, name, s->layers_fd, gone) < 0)
        return err_sys(e, "remove layer '%s'", name);
    r->layers++;
    return fs_remove_tree(s->layers_fd, gone, e);
}

int gc_unused(const struct store *s, struct removed *r, struct err **e)
{
    CLEANUP(index_free_p) struct index index = { 0 };
    CLEANUP(live_free_p) struct live live = { 0 };
    AUTOSTRV struct strv blobs = { 0 }, layers = { 0 };
    int rc;

    if ((rc = store_index(s->data, &index, e)) < 0)
        return rc;
    for (size_t i = 0; i < index.n; i++)
        if ((rc = mark(s, &index.v[i], &live, 0, e)) < 0)
            return err_wrap(e, "names are removed, but unused data stays: image '%s'",
                            index.v[i].ref ? index.v[i].ref : index.v[i].digest);
    sort(&live.blobs);
    sort(&live.layers);
    if ((rc = list_dir(s->layers_fd, &layers, e)) < 0 ||
        (rc = list_dir(s->blobs_fd, &blobs, e)) < 0)
        return rc;
    for (size_t i = 0; i < layers.n; i++)
        if (str_starts(layers.v[i], "sha256-") && !has(&live.layers, layers.v[i]) &&
            (rc = remove_layer(s, layers.v[i], r, e)) < 0)
            return rc;
    for (size_t i = 0; i < blobs.n; i++) {
        if (has(&live.blobs, blobs.v[i]))
            continue;
        if (unlinkat(s->blobs_fd, blobs.v[i], 0) < 0)
            return err_sys(e, "remove blob '%s'", blobs.v[i]);
        r->blobs++;
    }
    return 0;
}
