/* runtime/change/serve.c - the process that reads a sandbox for source.h. */
#include <fcntl.h>
#include <string.h>
#include <sys/xattr.h>

#include "base/fs.h"
#include "runtime/change/bundle.h"
#include "runtime/change/source.h"

static void put(struct str *s, const void *p, size_t n)
{
    str_addn(s, p, n);
}

static void put_u64(struct str *s, uint64_t v)
{
    put(s, &v, sizeof v);
}

static void put_str(struct str *s, const char *text)
{
    put_u64(s, text ? strlen(text) : UINT64_MAX);
    if (text)
        put(s, text, strlen(text));
}

/* --- a directory that is kept open: neighbours come one after the other ------------------------------- */

struct near {
    const struct view *v;
    struct vdir d;
};

static void near_free(struct near *n)
{
    if (n->v)
        vdir_free_p(&n->d);
    n->v = NULL;
}

/* The directory of `path`; *ret_name points into path. */
static int near_get(struct near *n, const struct view *v, const char *path, const char **ret_name,
                    struct err **e)
{
    const char *slash = strrchr(path, '/');
    AUTOFREE char *dir = str_printf("%.*s", slash ? (int)(slash - path) : 0, path);
    char *save = NULL;
    int rc;

    *ret_name = slash ? slash + 1 : path;
    if (n->v == v && !strcmp(n->d.path, dir))
        return 0;
    near_free(n);
    if ((rc = vdir_root(v, &n->d, e)) < 0)
        return rc;
    n->v = v;
    for (char *p = strtok_r(dir, "/", &save); p; p = strtok_r(NULL, "/", &save)) {
        struct vdir sub;
        if ((rc = vdir_open(v, &n->d, p, &sub, e)) < 0) {
            near_free(n);
            return rc;
        }
        vdir_free_p(&n->d);
        n->d = sub;
    }
    return 0;
}

/* --- directories ------------------------------------------------------------------------------------- */

struct dirset {
    struct strv made, gone, seen;
    struct str modes; /* uint64_t each */
};

static bool below_last(const struct strv *l, const char *dir)
{
    /* changes are sorted: what was looked at last is what comes again */
    return l->n && strcmp(l->v[l->n - 1], dir) == 0;
}

static int look_dir(const struct changeset *c, const struct change *ch, const char *dir,
                    struct dirset *ds, struct err **e)
{
    const struct view_pair *p = &c->pairs[ch->view];
    const char *rel = change_rel(c, ch, dir);
    struct entry old, new;
    int rc;

    if ((rc = view_lookup(&p->old, rel, &old, e)) < 0 ||
        (rc = view_lookup(&p->new, rel, &new, e)) < 0)
        return rc;
    if (new.kind == VIEW_DIR && old.kind != VIEW_DIR && !strv_has(&ds->made, dir)) {
        strv_add(&ds->made, dir);
        put_u64(&ds->modes, new.st.st_mode & 07777);
    }
    if (old.kind == VIEW_DIR && new.kind != VIEW_DIR && !strv_has(&ds->gone, dir))
        strv_add(&ds->gone, dir);
    return 0;
}

/* Every directory above a file that came or went, and empty ones themselves. */
static int look_dirs(const struct changeset *c, struct dirset *ds, struct err **e)
{
    int rc = 0;

    for (size_t i = 0; i < c->n && rc == 0; i++) {
        const struct change *ch = &c->v[i];
        size_t skip = strlen(c->pairs[ch->view].new.prefix);
        AUTOFREE char *dir = str_dup(ch->path);
        char *slash = strrchr(dir + skip, '/');
        if (ch->old_mode && ch->new_mode && !(ch->flags & CHANGE_EMPTY_DIR))
            continue;
        if (slash)
            *slash = '\0';
        if (slash && !below_last(&ds->seen, dir)) {
            strv_add(&ds->seen, dir);
            for (char *s = strchr(dir + skip, '/'); rc == 0; s = strchr(s + 1, '/')) {
                if (s)
                    *s = '\0';
                rc = look_dir(c, ch, dir, ds, e);
                if (!s)
                    break;
                *s = '/';
            }
        }
        if (rc == 0 && (ch->flags & CHANGE_EMPTY_DIR))
            rc = look_dir(c, ch, ch->path, ds, e);
    }
    return rc;
}

/* --- the list ---------------------------------------------------------------------------------------- */

static void put_change(const struct change *ch, struct str *out)
{
    put(out, ch, sizeof *ch);
    put_str(out, ch->path);
    if (ch->new_text) {
        put_u64(out, ch->new_size);
        put(out, ch->new_text, ch->new_size);
    }
    for (size_t i = 0; i < ch->n_risks; i++) {
        put(out, &ch->risks[i].rule, sizeof ch->risks[i].rule);
        put_str(out, ch->risks[i].detail);
    }
}

static int send_list(const struct changeset *c, int sock, struct err **e)
{
    AUTOSTR struct str out = STR_INIT;
    struct dirset ds = { 0 };
    int rc = look_dirs(c, &ds, e);

    put(&out, c->id, sizeof c->id);
    put_u64(&out, c->n);
    for (size_t i = 0; i < c->n && rc == 0; i++)
        put_change(&c->v[i], &out);
    put_u64(&out, c->n_ignored);
    for (size_t i = 0; i < c->n_ignored; i++) {
        put_str(&out, c->ignored[i].path);
        put_u64(&out, c->ignored[i].files);
    }
    put_u64(&out, c->repos.n);
    for (size_t i = 0; i < c->repos.n; i++)
        put_str(&out, c->repos.v[i]);
    put_u64(&out, ds.made.n);
    for (size_t i = 0; i < ds.made.n; i++) {
        put_str(&out, ds.made.v[i]);
        put(&out, ds.modes.p + i * sizeof(uint64_t), sizeof(uint64_t));
    }
    put_u64(&out, ds.gone.n);
    for (size_t i = 0; i < ds.gone.n; i++)
        put_str(&out, ds.gone.v[i]);
    if (rc == 0 && source_send(sock, 'C', out.p, out.len, -1) < 0)
        rc = err_sys(e, "hand over the list of changes");
    strv_free_p(&ds.made);
    strv_free_p(&ds.gone);
    strv_free_p(&ds.seen);
    str_reset(&ds.modes);
    return rc;
}

/* --- requests ---------------------------------------------------------------------------------------- */

static int open_change(const struct changeset *c, struct near *n, const struct str *req, int sock,
                       struct err **e)
{
    AUTOCLOSE int fd = -1;
    AUTOFREE char *text = NULL;
    const char *name;
    uint64_t i = 0;
    int rc;

    if (req->len == sizeof i)
        memcpy(&i, req->p, sizeof i);
    if (req->len != sizeof i || i >= c->n)
        return err_new(e, ERR_INTERNAL, "no change of that number");
    const struct change *ch = &c->v[i];
    const struct view *v = &c->pairs[ch->view].new;
    rc = near_get(n, v, change_rel(c, ch, ch->path), &name, e);
    if (rc == 0)
        rc = S_ISLNK(ch->new_mode) ? vdir_readlink(v, &n->d, name, &text, e)
                                   : vdir_open_file(v, &n->d, name, NULL, &fd, NULL, e);
    if (rc < 0)
        return err_wrap(e, "'%s'", ch->path);
    return source_send(sock, text ? 'L' : 'F', text, text ? strlen(text) : 0, fd);
}

static int open_path(const struct changeset *c, const char *path, bool base, int sock,
                     struct err **e)
{
    const struct view *v = &c->pairs[0].new;
    AUTOCLOSE int fd = -1;
    int rc = -ERR_NOT_FOUND;

    if (!base) {
        rc = view_open(v, path, &fd, NULL, e);
    } else {
        for (size_t i = 0; i < v->n; i++)
            if (v->layers[i].base && !v->layers[i].project && v->layers[i].fd >= 0) {
                struct view only = *v;
                only.layers = &v->layers[i];
                only.n = 1;
                rc = view_open(&only, path, &fd, NULL, e);
            }
        if (rc < 0 && (!e || !*e))
            err_new(e, ERR_NOT_FOUND, "no copy of '%s' was kept", path);
    }
    return rc < 0 ? rc : source_send(sock, 'F', NULL, 0, fd);
}

static int send_origin(const struct changeset *c, const char *path, int sock, struct err **e)
{
    const struct view *v = &c->pairs[0].new;
    const char *attr = v->trusted ? "trusted.overlay.origin" : "user.overlay.origin";
    char value[256];
    ssize_t n = -1;

    /* the lowest layer that has it: those above have notes of the layers below them */
    for (size_t i = v->n; i-- > 0;) {
        AUTOCLOSE int fd = -1;
        if (v->layers[i].project || v->layers[i].fd < 0)
            continue;
        fd = fs_open_beneath(v->layers[i].fd, path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW, 0, 0);
        if (fd < 0)
            continue;
        n = fgetxattr(fd, attr, value, sizeof value);
        break;
    }
    return n < 0 ? err_new(e, ERR_NOT_FOUND, "'%s' is new in the sandbox", path)
                 : source_send(sock, 'X', value, (size_t)n, -1);
}

static int send_commits(const struct serve *sv, const struct changeset *c, struct err **e)
{
    AUTOSTR struct str refs = STR_INIT;
    AUTOCLOSE int pack = -1;
    int rc = bundle_make(sv->r, c, &pack, &refs, e);
    return rc < 0 ? rc : source_send(sv->sock, 'G', refs.p, refs.len, pack);
}

static int answer(const struct serve *sv, const struct changeset *c, struct near *n, char what,
                  const struct str *req, struct err **e)
{
    const char *path = req->p ? req->p : "";

    switch (what) {
    case 'C':
        return send_list(c, sv->sock, e);
    case 'O':
        return open_change(c, n, req, sv->sock, e);
    case 'P':
    case 'B':
        return open_path(c, path, what == 'B', sv->sock, e);
    case 'X':
        return send_origin(c, path, sv->sock, e);
    case 'G':
        return send_commits(sv, c, e);
    default:
        return err_new(e, ERR_INTERNAL, "no such request");
    }
}

int serve_run(void *arg, struct err **e)
{
    const struct serve *sv = arg;
    CLEANUP(changeset_free_p) struct changeset c = { 0 };
    struct changeset_opts o = { .paths = sv->paths };
    struct near near = { 0 };
    int rc = changeset_host(sv->r, NULL, &o, &c, e);

    if (rc < 0)
        return rc;
    for (;;) {
        CLEANUP(err_free_p) struct err *why = NULL;
        AUTOSTR struct str req = STR_INIT;
        char what;
        if (source_receive(sv->sock, &what, &req, NULL, &why) < 0)
            break; /* nobody asks any more */
        if (answer(sv, &c, &near, what, &req, &why) < 0) {
            AUTOFREE char *text = why ? err_text(why) : str_dup("the answer could not be sent");
            AUTOFREE char *msg = str_printf("%c%s", (char)(why ? why->code : ERR_FAILED), text);
            if (source_send(sv->sock, 'E', msg, strlen(msg), -1) < 0)
                break;
        }
    }
    near_free(&near);
    return 0;
}
