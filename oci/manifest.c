#include "oci/manifest.h"

#include <string.h>
#include <sys/utsname.h>

#include "oci/digest.h"

enum { MAX_ENTRIES = 10000 };

static bool is_one_of(const char *s, const char *a, const char *b)
{
    return s && (!strcmp(s, a) || !strcmp(s, b));
}

bool desc_is_manifest(const struct desc *d)
{
    return is_one_of(d->media_type, MT_MANIFEST, MT_DOCKER_MANIFEST);
}

bool desc_is_index(const struct desc *d)
{
    return is_one_of(d->media_type, MT_INDEX, MT_DOCKER_LIST);
}

static void desc_free(struct desc *d)
{
    free(d->media_type);
    free(d->digest);
    free(d->ref);
    free(d->os);
    free(d->arch);
    free(d->variant);
}

static int desc_parse(const struct json *j, struct desc *ret, struct err **e)
{
    const char *type = json_str(j, "mediaType"), *digest = json_str(j, "digest");
    const struct json *platform = json_get(j, "platform");

    if (!digest_valid(digest))
        return err_new(e, ERR_CORRUPT, "digest '%.80s' is not valid", digest ? digest : "");
    if (!type || strlen(type) > 255)
        return err_new(e, ERR_CORRUPT, "descriptor of '%s' has no media type", digest);
    if (!json_u64(j, "size", &ret->size) || ret->size > INT64_MAX)
        return err_new(e, ERR_CORRUPT, "descriptor of '%s' has no size", digest);
    ret->media_type = str_dup(type);
    ret->digest = str_dup(digest);
    ret->ref = str_dup(json_str(json_get(j, "annotations"), ANNOTATION_REF));
    ret->os = str_dup(json_str(platform, "os"));
    ret->arch = str_dup(json_str(platform, "architecture"));
    ret->variant = str_dup(json_str(platform, "variant"));
    return 0;
}

static int desc_list(const struct json *arr, size_t max, struct desc **ret, size_t *ret_n,
                     struct err **e)
{
    if (arr->n > max)
        return err_new(e, ERR_LIMIT, "%zu entries, more than %zu", arr->n, max);
    *ret = mem_zalloc((arr->n ? arr->n : 1) * sizeof **ret);
    for (*ret_n = 0; *ret_n < arr->n; ++*ret_n) {
        int rc = desc_parse(arr->items[*ret_n], &(*ret)[*ret_n], e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int check_schema(const struct json *j, struct err **e)
{
    uint64_t version = 0;
    if (json_u64(j, "schemaVersion", &version) && version == 2)
        return 0;
    return err_new(e, ERR_UNSUPPORTED, "schemaVersion is not 2");
}

int index_parse(const char *text, size_t n, struct index *ret, struct err **e)
{
    CLEANUP(index_free_p) struct index i = { 0 };
    const struct json *arr;
    int rc;

    if ((rc = json_parse(text, n, &i.json, e)) < 0 || (rc = check_schema(i.json, e)) < 0)
        return rc;
    arr = json_arr(i.json, "manifests");
    if (!arr)
        return err_new(e, ERR_CORRUPT, "no list of manifests");
    if ((rc = desc_list(arr, MAX_ENTRIES, &i.v, &i.n, e)) < 0)
        return rc;
    *ret = i;
    i = (struct index){ 0 };
    return 0;
}

void index_free_p(struct index *i)
{
    for (size_t k = 0; k < i->n; k++)
        desc_free(&i->v[k]);
    free(i->v);
    json_free(i->json);
    *i = (struct index){ 0 };
}

int manifest_parse(const char *text, size_t n, struct manifest *ret, struct err **e)
{
    CLEANUP(manifest_free_p) struct manifest m = { 0 };
    AUTOJSON struct json *j = NULL;
    const struct json *layers;
    int rc;

    if ((rc = json_parse(text, n, &j, e)) < 0 || (rc = check_schema(j, e)) < 0)
        return rc;
    if ((rc = desc_parse(json_get(j, "config"), &m.config, e)) < 0)
        return err_wrap(e, "config");
    layers = json_arr(j, "layers");
    if (!layers)
        return err_new(e, ERR_CORRUPT, "no list of layers");
    if ((rc = desc_list(layers, MANIFEST_LAYERS_MAX, &m.layers, &m.n_layers, e)) < 0)
        return err_wrap(e, "layers");
    *ret = m;
    m = (struct manifest){ 0 };
    return 0;
}

void manifest_free_p(struct manifest *m)
{
    desc_free(&m->config);
    for (size_t k = 0; k < m->n_layers; k++)
        desc_free(&m->layers[k]);
    free(m->layers);
    *m = (struct manifest){ 0 };
}

const struct desc *index_platform(const struct index *i, const char *os, const char *arch,
                                  const char *variant)
{
    for (size_t k = 0; k < i->n; k++) {
        const struct desc *d = &i->v[k];
        if (str_eq(d->os, os) && str_eq(d->arch, arch) && (!variant || str_eq(d->variant, variant)))
            return d;
    }
    return NULL;
}

const char *oci_host_arch(void)
{
    static const char *const names[][2] = {
        { "x86_64", "amd64" }, { "aarch64", "arm64" },   { "i686", "386" },
        { "armv7l", "arm" },   { "riscv64", "riscv64" },
    };
    struct utsname u;
    if (uname(&u) == 0)
        for (size_t i = 0; i < ARRAY_LEN(names); i++)
            if (!strcmp(u.machine, names[i][0]))
                return names[i][1];
    return "unknown";
}
