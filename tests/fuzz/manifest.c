/* Any bytes as an index, a manifest, an image config or a name: refused, or within the rules. */
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "oci/digest.h"
#include "oci/image_config.h"
#include "oci/manifest.h"
#include "oci/ref.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check_config(const char *text, size_t n)
{
    CLEANUP(image_config_free_p) struct image_config c = { 0 };

    if (image_config_parse(text, n, &c, NULL) < 0)
        return;
    must(c.workdir[0] == '/' && !strstr(c.workdir, "/../") && !str_ends(c.workdir, "/.."));
    must(!path_below(c.workdir, "/proc") && strspn(c.user, "/\n ") == 0);
    must(c.diff_ids.n > 0);
    for (size_t i = 0; i < c.diff_ids.n; i++)
        must(digest_valid(c.diff_ids.v[i]));
    for (size_t i = 0; i < c.env.n; i++)
        must(strchr(c.env.v[i], '=') > c.env.v[i]);
}

static void check_manifest(const char *text, size_t n)
{
    CLEANUP(manifest_free_p) struct manifest m = { 0 };
    CLEANUP(index_free_p) struct index i = { 0 };

    if (manifest_parse(text, n, &m, NULL) == 0)
        for (size_t k = 0; k < m.n_layers; k++)
            must(digest_valid(m.layers[k].digest) && m.layers[k].media_type);
    if (index_parse(text, n, &i, NULL) == 0) {
        AUTOJSONW struct jsonw w = { 0 };
        CLEANUP(index_free_p) struct index again = { 0 };
        jw_json(&w, NULL, i.json);
        must(index_parse(w.out.p, w.out.len, &again, NULL) == 0 && again.n == i.n);
    }
}

static void check_ref(const char *text)
{
    CLEANUP(ref_free_p) struct ref r = { 0 }, same = { 0 };
    AUTOFREE char *full = NULL;

    if (ref_parse(text, &r, NULL) < 0)
        return;
    full = ref_text(&r);
    must(ref_parse(full, &same, NULL) == 0 && !strcmp(same.name, r.name) &&
         !strcmp(same.tag, r.tag));
    must(!strstr(full, "..") || strstr(r.tag, ".."));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTOFREE char *text = mem_zalloc(size + 1);

    memcpy(text, data, size);
    check_config(text, size);
    check_manifest(text, size);
    check_ref(text);
    return 0;
}
