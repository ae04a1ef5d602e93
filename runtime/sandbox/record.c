/* runtime/sandbox/record.c - a sandbox's record as JSON, both ways. */
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

#include "base/fs.h"
#include "base/json.h"
#include "runtime/sandbox/state.h"

/* One table for reading and writing; TEXT and LIST may be missing, NUMBER is then 0. */
enum kind { TEXT, NUMBER, FLAG, LIST };
static const struct member {
    const char *name;
    enum kind kind;
    size_t at;
} members[] = {
#define M(kind, member)                                                                            \
    {                                                                                              \
#member, kind, offsetof(struct state, member)                                              \
    }
    M(NUMBER, schema),
    M(TEXT, id),
    M(TEXT, name),
    M(TEXT, created),
    M(TEXT, image),
    M(TEXT, project),
    M(NUMBER, project_dev),
    M(NUMBER, project_ino),
    M(NUMBER, owner_uid),
    M(NUMBER, owner_gid),
    { "workspace_mode", TEXT, offsetof(struct state, mode) },
    M(NUMBER, uid),
    M(NUMBER, gid),
    M(NUMBER, user_uid),
    M(NUMBER, user_gid),
    M(TEXT, ids),
    M(TEXT, parent),
    M(TEXT, cgroup),
    M(FLAG, own),
    M(LIST, options),
    M(LIST, configured),
    M(LIST, labels),
    M(LIST, hide),
    M(LIST, readonly),
    M(LIST, workspaces),
    M(LIST, image_layers),
    M(LIST, chain),
    M(TEXT, top),
    M(NUMBER, n_taken),
    M(NUMBER, stamp_sec),
    M(NUMBER, stamp_nsec),
    M(NUMBER, journal_next),
    M(FLAG, ran),
    M(NUMBER, exit_status),
#undef M
};

static void *field(const struct state *s, const struct member *m)
{
    return (char *)(uintptr_t)s + m->at;
}

void state_free_p(struct state *s)
{
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        if (members[i].kind == TEXT)
            free(*(char **)field(s, &members[i]));
        else if (members[i].kind == LIST)
            strv_free_p(field(s, &members[i]));
    }
    for (size_t i = 0; i < s->n_snaps; i++) {
        free(s->snaps[i].id);
        free(s->snaps[i].created);
        free(s->snaps[i].message);
        strv_free_p(&s->snaps[i].chain);
    }
    free(s->snaps);
    *s = (struct state){ 0 };
}

void state_take_paths(struct state *s, const struct plan *p)
{
    strv_free_p(&s->hide);
    strv_free_p(&s->readonly);
    for (size_t i = 0; i < p->hide.n; i++)
        strv_add(&s->hide, p->hide.v[i]);
    for (size_t i = 0; i < p->readonly.n; i++)
        strv_add(&s->readonly, p->readonly.v[i]);
}

void state_from_plan(struct state *s, const struct plan *p, const struct ids *ids)
{
    static const char *const modes[] = { "overlay", "copy", "bind" };

    s->schema = STATE_SCHEMA;
    s->id = str_dup(p->id);
    s->name = str_dup(p->name);
    s->created = state_now();
    s->image = str_dup(p->image);
    s->project = str_dup(p->project);
    s->project_dev = p->project_dev;
    s->project_ino = p->project_ino;
    s->owner_uid = p->owner_uid;
    s->owner_gid = p->owner_gid;
    s->mode = str_dup(modes[p->mode]);
    s->uid = p->uid;
    s->gid = p->gid;
    s->user_uid = ids->user_uid;
    s->user_gid = ids->user_gid;
    s->ids = str_dup(ids_mode_name(ids->mode));
    for (size_t i = 0; i < p->labels.n; i++)
        strv_add(&s->labels, p->labels.v[i]);
    state_take_paths(s, p);
    for (size_t i = 0; i < p->image_layers.n; i++)
        strv_add(&s->image_layers, p->image_layers.v[i]);
    strv_add(&s->workspaces, p->project);
    for (size_t i = 0; i < p->extra_lowers.n; i++)
        strv_add(&s->workspaces, p->extra_lowers.v[i]);
}

static void write_snapshots(struct jsonw *w, const struct state *s)
{
    jw_arr(w, "snapshots");
    for (size_t i = 0; i < s->n_snaps; i++) {
        jw_obj(w, NULL);
        jw_str(w, "id", s->snaps[i].id);
        jw_str(w, "created", s->snaps[i].created);
        jw_str(w, "message", s->snaps[i].message);
        jw_strv(w, "chain", &s->snaps[i].chain);
        jw_end_obj(w);
    }
    jw_end_arr(w);
}

int state_write(const struct paths *paths, const struct state *s, struct err **e)
{
    AUTOFREE char *dir = state_dir(paths, s->id), *path = path_join(dir, "state.json");
    AUTOJSONW struct jsonw w = { .pretty = true };

    jw_obj(&w, NULL);
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        const struct member *m = &members[i];
        if (m->kind == TEXT)
            jw_str(&w, m->name, *(char **)field(s, m));
        else if (m->kind == NUMBER)
            jw_u64(&w, m->name, *(uint64_t *)field(s, m));
        else if (m->kind == FLAG)
            jw_bool(&w, m->name, *(bool *)field(s, m));
        else
            jw_strv(&w, m->name, field(s, m));
    }
    write_snapshots(&w, s);
    jw_end_obj(&w);
    str_addc(&w.out, '\n');
    return fs_write_atomic(AT_FDCWD, path, w.out.p, w.out.len, 0600, e);
}

static void read_snapshots(const struct json *list, struct state *s)
{
    s->snaps = list && list->n ? mem_zalloc(list->n * sizeof *s->snaps) : NULL;
    for (size_t i = 0; list && i < list->n; i++) {
        const struct json *j = list->items[i];
        if (!json_str(j, "id"))
            continue;
        struct snapshot *x = &s->snaps[s->n_snaps++];
        x->id = str_dup(json_str(j, "id"));
        x->created = str_dup(json_str(j, "created"));
        x->message = str_dup(json_str(j, "message"));
        json_strings(json_arr(j, "chain"), &x->chain);
    }
}

/* Nobody keeps it running where the lock can be had; a shared one does not disturb whoever looks, too. */
static bool is_locked(const char *dir)
{
    AUTOFREE char *path = path_join(dir, "lock");
    AUTOCLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0;
}

int state_text(const struct paths *paths, const char *id, char **ret, struct err **e)
{
    AUTOFREE char *dir = state_dir(paths, id), *path = path_join(dir, "state.json");
    CLEANUP(err_free_p) struct err *why = NULL;
    int rc = fs_read(AT_FDCWD, path, 16 << 20, ret, NULL, &why);

    if (rc < 0 && (why->sys == ENOENT || why->sys == ENOTDIR)) /* never was, or went just now */
        return err_new(e, ERR_NOT_FOUND, "no sandbox '%s'; petri ls lists them", id);
    if (rc < 0 && e)
        *e = TAKE_PTR(why);
    return rc;
}

int state_read(const struct paths *paths, const char *id, struct state *ret, struct err **e)
{
    AUTOFREE char *dir = state_dir(paths, id), *text = NULL;
    AUTOJSON struct json *j = NULL;
    AUTOSTATE struct state s = { 0 };
    int rc = state_text(paths, id, &text, e);

    if (rc == -ERR_NOT_FOUND)
        return rc;
    if (rc < 0 || (rc = json_parse(text, strlen(text), &j, e)) < 0)
        return err_wrap(e, "the record of sandbox '%s'", id);
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        const struct member *m = &members[i];
        if (m->kind == TEXT)
            *(char **)field(&s, m) = str_dup(json_str(j, m->name));
        else if (m->kind == NUMBER)
            json_u64(j, m->name, field(&s, m));
        else if (m->kind == FLAG)
            *(bool *)field(&s, m) = json_bool(j, m->name);
        else
            json_strings(json_arr(j, m->name), field(&s, m));
    }
    read_snapshots(json_arr(j, "snapshots"), &s);
    if (s.schema > STATE_SCHEMA)
        return err_new(e, ERR_UNSUPPORTED,
                       "sandbox '%s' was made by a newer petri (record %llu, this one knows %d); "
                       "use that one",
                       id, (unsigned long long)s.schema, STATE_SCHEMA);
    if (!str_eq(s.id, id))
        return err_new(e, ERR_CORRUPT, "the record of sandbox '%s' names another one", id);
    s.running = is_locked(dir);
    *ret = s;
    s = (struct state){ 0 };
    return 0;
}
