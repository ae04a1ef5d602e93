#include <string.h>

#include "runtime/change/render.h"
#include "runtime/change/risk.h"

void render_json_path(struct jsonw *w, const char *key, const char *path)
{
    jw_bytes(w, key, path, strlen(path));
    if (!utf8_valid(path, strlen(path))) {
        AUTOSTR struct str b64 = STR_INIT;
        AUTOFREE char *name = str_printf("%s_base64", key);
        str_add_base64(&b64, path, strlen(path));
        jw_str(w, name, b64.p);
    }
}

static void side(struct jsonw *w, const char *key, mode_t mode, uint64_t size, const char *digest)
{
    if (!mode)
        return;
    jw_obj(w, key);
    jw_strf(w, "mode", "%06o", (unsigned)mode);
    jw_u64(w, "size", size);
    jw_str(w, "sha256", *digest ? digest : NULL);
    jw_end_obj(w);
}

static void risks(struct jsonw *w, const struct change *ch)
{
    jw_arr(w, "flags");
    for (size_t i = 0; i < ch->n_risks; i++) {
        const struct risk_hit *h = &ch->risks[i];
        jw_obj(w, NULL);
        jw_str(w, "code", h->rule->code);
        jw_str(w, "class", risk_class_name(h->rule->class));
        jw_str(w, "reason", h->rule->reason);
        if (h->detail)
            jw_bytes(w, "detail", h->detail, strlen(h->detail));
        jw_end_obj(w);
    }
    jw_end_arr(w);
}

static int change(struct jsonw *w, const struct changeset *c, const struct change *ch,
                  bool with_patch, struct err **e)
{
    jw_obj(w, NULL);
    render_json_path(w, "path", ch->path);
    if (ch->old_path)
        render_json_path(w, "old_path", ch->old_path);
    jw_str(w, "kind", change_kind_name(ch->kind));
    side(w, "old", ch->old_mode, ch->old_size, ch->old_digest);
    side(w, "new", ch->new_mode, ch->new_size, ch->new_digest);
    jw_bool(w, "binary", ch->flags & CHANGE_BINARY);
    jw_bool(w, "ignored", ch->flags & CHANGE_IGNORED);
    jw_bool(w, "hidden", ch->flags & CHANGE_HIDDEN);
    jw_bool(w, "empty_directory", ch->flags & CHANGE_EMPTY_DIR);
    jw_u64(w, "lines_added", ch->lines_added);
    jw_u64(w, "lines_deleted", ch->lines_deleted);
    risks(w, ch);
    if (with_patch) {
        AUTOSTR struct str patch = STR_INIT;
        int rc = patch_format(c, ch, true, &patch, e);
        if (rc < 0)
            return rc;
        if (patch.len && utf8_valid(patch.p, patch.len)) {
            jw_bytes(w, "patch", patch.p, patch.len);
        } else if (patch.len) {
            AUTOSTR struct str b64 = STR_INIT;
            str_add_base64(&b64, patch.p, patch.len);
            jw_str(w, "patch_base64", b64.p);
        }
    }
    jw_end_obj(w);
    return 0;
}

int render_json(struct jsonw *w, const struct changeset *c, bool with_patch, struct err **e)
{
    struct totals t;
    int rc = 0;

    render_totals(c, &t);
    jw_str(w, "change", c->id);
    jw_obj(w, "summary");
    jw_u64(w, "files", t.files);
    jw_u64(w, "added", t.added);
    jw_u64(w, "modified", t.modified);
    jw_u64(w, "deleted", t.deleted);
    jw_u64(w, "lines_added", t.lines_added);
    jw_u64(w, "lines_deleted", t.lines_deleted);
    jw_u64(w, "flags", t.flags);
    jw_u64(w, "refused", t.refused);
    jw_u64(w, "ignored", t.ignored);
    jw_end_obj(w);
    jw_arr(w, "changes");
    for (size_t i = 0; i < c->n && rc == 0; i++)
        rc = change(w, c, &c->v[i], with_patch, e);
    jw_end_arr(w);
    jw_arr(w, "ignored");
    for (size_t i = 0; i < c->n_ignored; i++) {
        jw_obj(w, NULL);
        render_json_path(w, "path", c->ignored[i].path);
        jw_u64(w, "files", c->ignored[i].files);
        jw_end_obj(w);
    }
    jw_end_arr(w);
    jw_arr(w, "repositories");
    for (size_t i = 0; i < c->repos.n; i++)
        jw_bytes(w, NULL, c->repos.v[i], strlen(c->repos.v[i]));
    jw_end_arr(w);
    return rc;
}
