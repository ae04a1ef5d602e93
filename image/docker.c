#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "image/import.h"
#include "oci/image_config.h"

bool import_is_docker(int dirfd)
{
    static const char *const roots[] = { "etc", "usr", "bin" };
    struct stat st;

    for (size_t i = 0; i < ARRAY_LEN(roots); i++)
        if (fstatat(dirfd, roots[i], &st, AT_SYMLINK_NOFOLLOW) == 0)
            return false;
    return fstatat(dirfd, "manifest.json", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

/* Old archives have a layer once and links to it, "../ID/layer.tar": one hop, taken by its text. */
static int open_layer(int dirfd, const char *path, const char *label, int *ret_fd, struct err **e)
{
    AUTOFREE char *target = fs_readlink(dirfd, path);
    const char *to = path;
    AUTOCLOSE int fd = -1;
    struct stat st;

    if (target && str_starts(target, "../") && strchr(path, '/') == strrchr(path, '/'))
        to = target + strlen("../");
    fd = fs_open_beneath(dirfd, to, O_RDONLY | O_NONBLOCK, 0, 0);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, "open '%s' of '%s'", path, label);
    if (!S_ISREG(st.st_mode))
        return err_new(e, ERR_INVALID, "'%s' of '%s' is not a file", path, label);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* With --ref the image of that name, else the only one. */
static int choose(struct import *im, const struct json *list, const char *label,
                  const struct json **ret, struct err **e)
{
    AUTOSTR struct str names = STR_INIT;

    for (size_t i = 0; i < list->n; i++) {
        const struct json *tags = json_arr(list->items[i], "RepoTags");
        for (size_t k = 0; tags && k < tags->n; k++) {
            const char *tag = tags->items[k]->string ? tags->items[k]->string : "";
            if (str_eq(im->opts->ref, tag)) {
                *ret = list->items[i];
                return 0;
            }
            str_addf(&names, "%s%s", names.len ? ", " : "", tag);
        }
    }
    if (!im->opts->ref && list->n == 1) {
        *ret = list->items[0];
        return 0;
    }
    return err_new(e, ERR_USAGE, "'%s' holds %zu images; choose one with --ref: %s", label, list->n,
                   names.len ? names.p : "none has a name");
}

static int take_layers(struct import *im, int dirfd, const char *label, const struct json *paths,
                       const struct image_config *c, struct staged *layers, struct err **e)
{
    for (size_t i = 0; i < paths->n; i++) {
        const char *path = paths->items[i]->type == JSON_STRING ? paths->items[i]->string : "";
        AUTOCLOSE int fd = -1;
        int rc;

        if ((rc = open_layer(dirfd, path, label, &fd, e)) < 0 ||
            (rc = import_layer(im, fd, path, KEEP_PORTABLE, NULL, c->diff_ids.v[i], &layers[i],
                               e)) < 0)
            return rc;
    }
    return 0;
}

int import_docker(struct import *im, int dirfd, const char *label, struct err **e)
{
    CLEANUP(image_config_free_p) struct image_config c = { 0 };
    AUTOJSON struct json *list = NULL;
    AUTOFREE char *text = NULL, *ctext = NULL, *digest = NULL;
    AUTOFREE struct staged *layers = NULL;
    const struct json *image = NULL, *paths;
    size_t n, cn;
    int rc;

    if (im->opts->changed)
        return err_new(e, ERR_USAGE,
                       "--change and --message are for file systems; '%s' is an image", label);
    if ((rc = import_read(dirfd, "manifest.json", label, &text, &n, e)) < 0 ||
        (rc = json_parse(text, n, &list, e)) < 0)
        return err_wrap(e, "manifest.json of '%s'", label);
    if (list->type != JSON_ARRAY)
        return err_new(e, ERR_INVALID, "manifest.json of '%s' is not a list", label);
    if ((rc = choose(im, list, label, &image, e)) < 0)
        return rc;
    paths = json_arr(image, "Layers");
    if (!json_str(image, "Config") || !paths)
        return err_new(e, ERR_INVALID, "manifest.json of '%s' names no config or layers", label);
    if ((rc = import_read(dirfd, json_str(image, "Config"), label, &ctext, &cn, e)) < 0 ||
        (rc = image_config_parse(ctext, cn, &c, e)) < 0)
        return err_wrap(e, "config of '%s'", label);
    if (c.diff_ids.n != paths->n)
        return err_new(e, ERR_CORRUPT,
                       "manifest and config of '%s' name different numbers of layers", label);
    layers = mem_zalloc(paths->n * sizeof *layers);
    rc = take_layers(im, dirfd, label, paths, &c, layers, e);
    if (rc == 0 && (rc = stage_blob(&im->stage, ctext, cn, &digest, e)) == 0) {
        im->result.arch = str_dup(c.arch);
        rc = import_manifest(im, digest, cn, layers, paths->n, e);
    }
    for (size_t i = 0; i < paths->n; i++)
        staged_free_p(&layers[i]);
    return rc;
}
