#include "image/list.h"

#include <string.h>

#include "base/json.h"
#include "oci/digest.h"
#include "oci/store_read.h"

enum { ID_LEN = 12 };

struct row {
    char *name, *tag, *id, *digest, *created, *arch;
    uint64_t size;
};

struct rows {
    struct row *v;
    size_t n;
};

static void rows_free_p(struct rows *r)
{
    for (size_t i = 0; i < r->n; i++) {
        free(r->v[i].name);
        free(r->v[i].tag);
        free(r->v[i].id);
        free(r->v[i].digest);
        free(r->v[i].created);
        free(r->v[i].arch);
    }
    free(r->v);
}

static int by_name(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    int c = strcmp(x->name, y->name);
    return c ? c : strcmp(x->tag, y->tag);
}

static uint64_t total_size(const struct desc *d, const struct manifest *m)
{
    uint64_t n = d->size + m->config.size;
    for (size_t i = 0; i < m->n_layers; i++)
        n += m->layers[i].size;
    return n;
}

/* An image that can't be read is shown all the same: somebody will want to remove it. */
static void fill(const char *data_dir, const struct desc *d, struct row *ret)
{
    CLEANUP(manifest_free_p) struct manifest m = { 0 };
    CLEANUP(image_config_free_p) struct image_config c = { 0 };
    const char *ref = d->ref ? d->ref : "<none>", *slash = strrchr(ref, '/');
    const char *colon = strchr(slash ? slash : ref, ':');

    ret->name = colon ? str_printf("%.*s", (int)(colon - ref), ref) : str_dup(ref);
    ret->tag = str_dup(colon ? colon + 1 : "");
    ret->digest = str_dup(d->digest);
    ret->id = str_printf("%.*s", ID_LEN, digest_hex(d->digest));
    if (store_image(data_dir, d, &m, &c, NULL) == 0) {
        ret->size = total_size(d, &m);
        ret->created = TAKE_PTR(c.created);
        ret->arch = TAKE_PTR(c.arch);
    }
}

static int load(const char *data_dir, struct rows *ret, struct err **e)
{
    CLEANUP(index_free_p) struct index i = { 0 };
    int rc = store_index(data_dir, &i, e);

    if (rc < 0)
        return rc;
    ret->v = mem_zalloc((i.n + 1) * sizeof *ret->v);
    for (size_t k = 0; k < i.n; k++)
        if (desc_is_manifest(&i.v[k]))
            fill(data_dir, &i.v[k], &ret->v[ret->n++]);
    if (ret->n)
        qsort(ret->v, ret->n, sizeof *ret->v, by_name);
    return 0;
}

static void add_json(const struct rows *r, struct str *out)
{
    AUTOJSONW struct jsonw w = { .pretty = true };

    jw_arr(&w, NULL);
    for (size_t i = 0; i < r->n; i++) {
        const struct row *x = &r->v[i];
        jw_obj(&w, NULL);
        jw_str(&w, "name", x->name);
        jw_str(&w, "tag", x->tag);
        jw_str(&w, "id", x->id);
        jw_str(&w, "digest", x->digest);
        jw_u64(&w, "size", x->size);
        jw_str(&w, "created", x->created);
        jw_str(&w, "architecture", x->arch);
        jw_end_obj(&w);
    }
    jw_end_arr(&w);
    str_addn(out, w.out.p, w.out.len);
    str_addc(out, '\n');
}

/* Left-aligned, as wide as its column; the text is made safe for a terminal. */
static void add_cell(struct str *out, const char *text, size_t width)
{
    size_t from = out->len;
    str_add_escaped(out, text, strlen(text));
    do
        str_addc(out, ' ');
    while (out->len - from < width + 3);
}

/* "2026-11-18 10:20" of an RFC 3339 time. */
static char *short_time(const char *created)
{
    if (!created || strlen(created) < 16)
        return str_dup("-");
    return str_printf("%.10s %.5s", created, created + 11);
}

static void add_table(const struct rows *r, struct str *out)
{
    size_t name = strlen("NAME"), tag = strlen("TAG");

    for (size_t i = 0; i < r->n; i++) {
        name = strlen(r->v[i].name) > name ? strlen(r->v[i].name) : name;
        tag = strlen(r->v[i].tag) > tag ? strlen(r->v[i].tag) : tag;
    }
    add_cell(out, "NAME", name);
    add_cell(out, "TAG", tag);
    add_cell(out, "ID", ID_LEN);
    add_cell(out, "SIZE", 6);
    str_add(out, "CREATED\n");
    for (size_t i = 0; i < r->n; i++) {
        AUTOFREE char *when = short_time(r->v[i].created);
        char size[24];
        format_size(r->v[i].size, size);
        add_cell(out, r->v[i].name, name);
        add_cell(out, r->v[i].tag, tag);
        add_cell(out, r->v[i].id, ID_LEN);
        add_cell(out, size, 6);
        str_add_escaped(out, when, strlen(when));
        str_addc(out, '\n');
    }
}

static void add_ids(const struct rows *r, struct str *out)
{
    AUTOSTRV struct strv seen = { 0 };

    for (size_t i = 0; i < r->n; i++) {
        if (strv_has(&seen, r->v[i].id))
            continue;
        strv_add(&seen, r->v[i].id);
        str_addf(out, "%s\n", r->v[i].id);
    }
}

int list_images(const char *data_dir, bool json, bool quiet, struct str *out, struct err **e)
{
    CLEANUP(rows_free_p) struct rows r = { 0 };
    int rc = load(data_dir, &r, e);

    if (rc < 0)
        return rc;
    if (json)
        add_json(&r, out);
    else if (quiet)
        add_ids(&r, out);
    else
        add_table(&r, out);
    return 0;
}

/* --- inspect --------------------------------------------------------------------------------- */

static void inspect_json(const struct desc *d, const struct manifest *m,
                         const struct image_config *c, const struct strv *names, struct str *out)
{
    AUTOJSONW struct jsonw w = { .pretty = true };

    jw_obj(&w, NULL);
    jw_strv(&w, "names", names);
    jw_strf(&w, "id", "%.*s", ID_LEN, digest_hex(d->digest));
    jw_str(&w, "digest", d->digest);
    jw_str(&w, "media_type", d->media_type);
    jw_u64(&w, "size", total_size(d, m));
    jw_str(&w, "created", c->created);
    jw_str(&w, "os", c->os);
    jw_str(&w, "architecture", c->arch);
    jw_strv(&w, "entrypoint", &c->entrypoint);
    jw_strv(&w, "cmd", &c->cmd);
    jw_strv(&w, "env", &c->env);
    jw_str(&w, "workdir", c->workdir);
    jw_str(&w, "user", c->user);
    jw_strv(&w, "labels", &c->labels);
    jw_arr(&w, "layers");
    for (size_t i = 0; i < m->n_layers; i++) {
        jw_obj(&w, NULL);
        jw_str(&w, "digest", m->layers[i].digest);
        jw_str(&w, "diff_id", c->diff_ids.v[i]);
        jw_str(&w, "media_type", m->layers[i].media_type);
        jw_u64(&w, "size", m->layers[i].size);
        jw_end_obj(&w);
    }
    jw_end_arr(&w);
    jw_end_obj(&w);
    str_addn(out, w.out.p, w.out.len);
    str_addc(out, '\n');
}

static void add_line(struct str *out, const char *key, const char *value)
{
    if (!value || !*value)
        return;
    str_addf(out, "%-13s", key);
    str_add_escaped(out, value, strlen(value));
    str_addc(out, '\n');
}

static void add_words(struct str *out, const char *key, const struct strv *l)
{
    AUTOJSONW struct jsonw w = { 0 };
    if (!l->n)
        return;
    jw_strv(&w, NULL, l);
    add_line(out, key, w.out.p);
}

static void inspect_text(const struct desc *d, const struct manifest *m,
                         const struct image_config *c, const struct strv *names, struct str *out)
{
    char size[24];

    for (size_t i = 0; i < names->n; i++)
        add_line(out, i ? "" : "name", names->v[i]);
    add_line(out, "digest", d->digest);
    add_line(out, "created", c->created);
    add_line(out, "architecture", c->arch);
    format_size(total_size(d, m), size);
    add_line(out, "size", size);
    add_words(out, "entrypoint", &c->entrypoint);
    add_words(out, "cmd", &c->cmd);
    add_line(out, "workdir", c->workdir);
    add_line(out, "user", c->user);
    for (size_t i = 0; i < c->env.n; i++)
        add_line(out, i ? "" : "env", c->env.v[i]);
    for (size_t i = 0; i < c->labels.n; i++)
        add_line(out, i ? "" : "labels", c->labels.v[i]);
    for (size_t i = 0; i < m->n_layers; i++)
        add_line(out, i ? "" : "layers", c->diff_ids.v[i]);
}

int list_inspect(const char *data_dir, const char *name, bool json, struct str *out, struct err **e)
{
    CLEANUP(index_free_p) struct index i = { 0 };
    CLEANUP(manifest_free_p) struct manifest m = { 0 };
    CLEANUP(image_config_free_p) struct image_config c = { 0 };
    AUTOSTRV struct strv names = { 0 };
    const struct desc *d = NULL;
    int rc;

    if ((rc = store_index(data_dir, &i, e)) < 0 || (rc = store_find(&i, name, &d, e)) < 0)
        return rc;
    if ((rc = store_image(data_dir, d, &m, &c, e)) < 0)
        return err_wrap(e, "image '%s'", name);
    for (size_t k = 0; k < i.n; k++)
        if (i.v[k].ref && !strcmp(i.v[k].digest, d->digest))
            strv_add(&names, i.v[k].ref);
    if (json)
        inspect_json(d, &m, &c, &names, out);
    else
        inspect_text(d, &m, &c, &names, out);
    return 0;
}
