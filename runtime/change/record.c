#include "runtime/change/record.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/json.h"
#include "runtime/client/client.h"

static const size_t max_record = 16 << 20;

static void snapshot_free(struct snapshot *s)
{
    free(s->id);
    free(s->created);
    free(s->message);
    strv_free_p(&s->chain);
}

void record_free_p(struct record *r)
{
    free(r->data);
    free(r->id);
    free(r->name);
    free(r->image);
    free(r->project);
    free(r->top);
    strv_free_p(&r->hide);
    strv_free_p(&r->readonly);
    strv_free_p(&r->workspaces);
    strv_free_p(&r->chain);
    for (size_t i = 0; i < r->n_snapshots; i++)
        snapshot_free(&r->snapshots[i]);
    free(r->snapshots);
    *r = (struct record){ 0 };
}

const char *record_label(const struct record *r)
{
    return r->name && *r->name ? r->name : r->id;
}

/* --- state.json -------------------------------------------------------------------------------- */

static uint64_t number(const struct json *j, const char *key, uint64_t otherwise)
{
    uint64_t v;
    return json_u64(j, key, &v) ? v : otherwise;
}

/* A layer's id becomes a file name. */
static bool layer_id_valid(const char *id)
{
    size_t n = strlen(id);
    return n > 0 && n <= 64 && strspn(id, "0123456789abcdef") == n;
}

/* A path below a directory, as the record names hidden ones: normal and relative. */
static bool relative_valid(const char *path)
{
    if (!*path || *path == '/')
        return false;
    for (const char *p = path; p; p = strchr(p, '/') ? strchr(p, '/') + 1 : NULL) {
        size_t n = strcspn(p, "/");
        if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return false;
    }
    return true;
}

static bool absolute_valid(const char *path)
{
    return path[0] == '/' && (!path[1] || relative_valid(path + 1));
}

static int take_list(const struct json *j, const char *key, bool (*valid)(const char *),
                     struct strv *ret, struct err **e)
{
    const struct json *a = json_arr(j, key);
    for (size_t i = 0; a && i < a->n; i++) {
        const struct json *s = a->items[i];
        if (s->type != JSON_STRING || !valid(s->string))
            return err_new(e, ERR_CORRUPT, "'%s' has an entry that can't be right", key);
        strv_add(ret, s->string);
    }
    return 0;
}

static int take_snapshots(const struct json *j, struct record *r, struct err **e)
{
    const struct json *a = json_arr(j, "snapshots");
    int rc = 0;

    r->snapshots = a && a->n ? mem_zalloc(a->n * sizeof *r->snapshots) : NULL;
    for (size_t i = 0; a && i < a->n && rc == 0; i++) {
        struct snapshot *s = &r->snapshots[r->n_snapshots];
        if (!json_str(a->items[i], "id"))
            continue;
        r->n_snapshots++;
        s->id = str_dup(json_str(a->items[i], "id"));
        s->created = str_dup(json_str(a->items[i], "created"));
        s->message = str_dup(json_str(a->items[i], "message"));
        rc = take_list(a->items[i], "chain", layer_id_valid, &s->chain, e);
    }
    return rc;
}

static int take_words(const struct json *j, struct record *r, struct err **e)
{
    const char *mode = json_str(j, "workspace_mode"), *ids = json_str(j, "ids");

    r->mode = str_eq(mode, "copy")   ? RECORD_COPY
              : str_eq(mode, "bind") ? RECORD_BIND
                                     : RECORD_OVERLAY;
    r->ids = str_eq(ids, "root")  ? RECORD_IDS_ROOT
             : str_eq(ids, "sub") ? RECORD_IDS_SUB
                                  : RECORD_IDS_SINGLE;
    if (mode && r->mode == RECORD_OVERLAY && strcmp(mode, "overlay"))
        return err_new(e, ERR_CORRUPT, "workspace_mode '%s' is not known", mode);
    if (ids && r->ids == RECORD_IDS_SINGLE && strcmp(ids, "single"))
        return err_new(e, ERR_CORRUPT, "ids '%s' are not known", ids);
    return 0;
}

static int take(const struct json *j, struct record *r, struct err **e)
{
    uint64_t schema = number(j, "schema", 0);
    int rc;

    if (schema > RECORD_SCHEMA)
        return err_new(e, ERR_UNSUPPORTED, "a newer petri wrote it (schema %llu); use that one",
                       (unsigned long long)schema);
    if (schema < RECORD_SCHEMA)
        return err_new(e, ERR_UNSUPPORTED,
                       "it is a kept run, not a sandbox that lives; make one with petri start");
    r->name = str_dup(json_str(j, "name"));
    r->image = str_dup(json_str(j, "image"));
    r->project = str_dup(json_str(j, "project"));
    r->top = str_dup(json_str(j, "top"));
    if (!r->project || !absolute_valid(r->project) || !r->top || !layer_id_valid(r->top))
        return err_new(e, ERR_CORRUPT, "it names no project or no layer");
    r->project_dev = (dev_t)number(j, "project_dev", 0);
    r->project_ino = (ino_t)number(j, "project_ino", 0);
    r->owner_uid = (uid_t)number(j, "owner_uid", getuid());
    r->owner_gid = (gid_t)number(j, "owner_gid", getgid());
    r->user_uid = (uid_t)number(j, "user_uid", r->owner_uid);
    r->user_gid = (gid_t)number(j, "user_gid", r->owner_gid);
    r->stamp.tv_sec = (time_t)number(j, "stamp_sec", 0);
    r->stamp.tv_nsec = (long)number(j, "stamp_nsec", 0);
    if ((rc = take_words(j, r, e)) < 0 || (rc = take_snapshots(j, r, e)) < 0 ||
        (rc = take_list(j, "chain", layer_id_valid, &r->chain, e)) < 0 ||
        (rc = take_list(j, "hide", relative_valid, &r->hide, e)) < 0 ||
        (rc = take_list(j, "readonly", relative_valid, &r->readonly, e)) < 0 ||
        (rc = take_list(j, "workspaces", absolute_valid, &r->workspaces, e)) < 0)
        return rc;
    if (r->workspaces.n == 0)
        strv_add(&r->workspaces, r->project);
    return 0;
}

int record_parse(const char *data, const char *id, const char *text, size_t n, struct record *ret,
                 struct err **e)
{
    CLEANUP(record_free_p) struct record r = { .data = str_dup(data), .id = str_dup(id) };
    AUTOJSON struct json *j = NULL;
    int rc = json_parse(text, n, &j, e);

    if (rc == 0)
        rc = take(j, &r, e);
    if (rc < 0)
        return rc;
    *ret = r;
    r = (struct record){ 0 };
    return 0;
}

static int load_id(const char *data, const char *id, const char *word, struct record *ret,
                   struct err **e)
{
    AUTOFREE char *path = str_printf("%s/sandboxes/%s/state.json", data, id), *text = NULL;
    CLEANUP(err_free_p) struct err *why = NULL;
    size_t n;

    if (fs_read(AT_FDCWD, path, max_record, &text, &n, &why) < 0) {
        if (why->sys == ENOENT || why->sys == ENOTDIR)
            return err_new(e, ERR_NOT_FOUND, "there is no sandbox '%s'; see petri ls", word);
        if (e)
            *e = TAKE_PTR(why);
        return err_wrap(e, "sandbox '%s'", word);
    }
    int rc = record_parse(data, id, text, n, ret, e);
    return rc < 0 ? err_wrap(e, "sandbox '%s'", word) : 0;
}

/* --- which one ----------------------------------------------------------------------------------- */

int record_load(const char *data, const char *word, struct record *ret, struct err **e)
{
    const struct petri_client client = { .data = (char *)(uintptr_t)data };
    struct petri_sandbox found = { 0 };
    struct petri_error why = PETRI_ERROR_INIT;
    int rc = client_find(&client, word, NULL, &found, &why);

    if (rc < 0)
        rc = err_new(e, str_eq(why.code, "not_found") ? ERR_NOT_FOUND : ERR_INVALID, "%s",
                     why.message);
    else
        rc = load_id(data, found.id, word ? word : found.id, ret, e);
    free(found.name);
    free(found.sub);
    return rc;
}

int record_load_at(const char *data, const char *word, struct record *ret, char **ret_snap,
                   struct err **e)
{
    const char *at = word ? strchr(word, '@') : NULL;
    AUTOFREE char *name = at ? str_printf("%.*s", (int)(at - word), word) : str_dup(word);
    AUTOSTRV struct strv layers = { 0 };
    int rc = record_load(data, name && *name ? name : NULL, ret, e);

    if (rc < 0)
        return rc;
    if (at && (rc = record_layers(ret, at + 1, &layers, e)) < 0) {
        record_free_p(ret);
        return rc;
    }
    *ret_snap = at ? str_dup(at + 1) : NULL;
    return 0;
}

int record_layers(const struct record *r, const char *snap, struct strv *ret, struct err **e)
{
    const struct strv *chain = snap ? NULL : &r->chain;

    for (size_t i = 0; snap && i < r->n_snapshots; i++)
        if (str_eq(r->snapshots[i].id, snap))
            chain = &r->snapshots[i].chain;
    if (!chain)
        return err_new(e, ERR_NOT_FOUND,
                       "sandbox '%s' has no snapshot '%.80s'; see petri snapshot ls",
                       record_label(r), snap);
    if (!snap)
        strv_add(ret, r->top);
    for (size_t i = chain->n; i > 0; i--)
        strv_add(ret, chain->v[i - 1]);
    return 0;
}

int record_open_project(const struct record *r, int *ret_fd, struct err **e)
{
    AUTOCLOSE int fd = open(r->project, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
        return err_new(e, ERR_NOT_FOUND,
                       "the project '%s' of sandbox '%s' is gone; move it back, or petri rm %s",
                       r->project, record_label(r), record_label(r));
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, "open the project '%s'", r->project);
    if (r->project_ino && (st.st_dev != r->project_dev || st.st_ino != r->project_ino))
        return err_new(
            e, ERR_DENIED,
            "'%s' is not the directory that sandbox '%s' was made from; move that one back",
            r->project, record_label(r));
    *ret_fd = TAKE_FD(fd);
    return 0;
}
