/* runtime/sandbox/control.c - asking a keeper, and what is done to a sandbox that has none. */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/fs.h"
#include "base/json.h"
#include "runtime/sandbox/control.h"
#include "runtime/sandbox/events.h"
#include "runtime/sandbox/flags.h"
#include "runtime/sandbox/keep.h"
#include "runtime/sandbox/snapshot.h"
#include "runtime/sandbox/store_lock.h"
#include "runtime/sandbox/totals.h"

enum { ANSWER_MAX = 64 << 20, AT_ONCE = 4, NAME_ROOM = 57 /* of 63, for a number */ };

static int connect_to(const struct paths *paths, const char *id, int *ret, struct err **e)
{
    AUTOFREE char *path = path_join(paths->run, id);
    AUTOCLOSE int dir = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    AUTOCLOSE int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un a = { .sun_family = AF_UNIX };

    snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/ctl", dir);
    if (dir < 0 || s < 0 || RETRY(connect(s, (struct sockaddr *)&a, sizeof a)) < 0)
        return err_new(e, ERR_STOPPED, "sandbox '%s' is stopped; petri start %s", id, id);
    *ret = TAKE_FD(s);
    return 0;
}

int sandbox_ask(const struct paths *paths, const char *id, const char *request, struct json **ret,
                struct err **e)
{
    AUTOSTR struct str in = STR_INIT;
    AUTOCLOSE int s = -1;
    const struct json *bad;
    char buf[65536];
    ssize_t n;
    int rc = connect_to(paths, id, &s, e);

    if (rc < 0)
        return rc;
    /* a keeper that ends right now must not end us by SIGPIPE */
    AUTOFREE char *line = str_printf("%s\n", request);
    for (size_t done = 0, all = strlen(line); done < all; done += (size_t)n)
        if ((n = RETRY(send(s, line + done, all - done, MSG_NOSIGNAL))) < 0)
            return errno == EPIPE ? err_new(e, ERR_STOPPED, "sandbox '%s' is stopping", id)
                                  : err_sys(e, "ask the keeper of '%s'", id);
    while ((n = RETRY(recv(s, buf, sizeof buf, 0))) > 0 && in.len < ANSWER_MAX)
        str_addn(&in, buf, (size_t)n);
    if (!in.len)
        return err_new(e, ERR_FAILED, "the keeper of '%s' ended without an answer", id);
    if ((rc = json_parse(in.p, in.len, ret, e)) < 0)
        return err_wrap(e, "the answer of the keeper of '%s'", id);
    bad = json_get(*ret, "error");
    if (!bad)
        return 0;
    rc = ERR_FAILED;
    for (int c = ERR_FAILED; c <= ERR_INTERNAL; c++)
        if (str_eq(json_str(bad, "code"), err_code_name((enum err_code)c)))
            rc = c;
    err_new(e, (enum err_code)rc, "%s", json_str(bad, "message"));
    *ret = json_free(*ret);
    return -rc;
}

int sandbox_stop(const struct paths *paths, const char *id, struct json **ret, struct err **e)
{
    const char *request = ret ? "{\"op\":\"stop\",\"promote\":true}" : "{\"op\":\"stop\"}";
    AUTOJSON struct json *j = NULL;
    AUTOCLOSE int lock = -1;
    int rc = sandbox_ask(paths, id, request, ret ? ret : &j, NULL);

    if (rc == 0)
        return 0;
    /* no keeper answers: it is stopped, or somebody else is at work on it */
    for (int i = 0; i < 200; i++) {
        CLEANUP(err_free_p) struct err *why = NULL;
        rc = state_lock(paths, id, &lock, &why);
        if (rc != -ERR_BUSY)
            return rc < 0 ? state_lock(paths, id, &lock, e) : 1;
        (void)poll(NULL, 0, 10);
    }
    return err_new(e, ERR_BUSY, "another petri works on sandbox '%s'; try again", id);
}

/* --- layers of one that is stopped, or of one that runs ------------------------------------------ */

/* Asks the keeper for `op` with one member (key NULL: none). 1: it was done; 0: there is no keeper, and the lock is
 * ours to do it ourselves. */
static int ask_or_lock(const struct paths *paths, const char *id, const char *op, const char *key,
                       const char *value, struct json **ret, int *ret_lock, struct err **e)
{
    AUTOJSONW struct jsonw w = { 0 };

    jw_obj(&w, NULL);
    jw_str(&w, "op", op);
    if (key)
        jw_str(&w, key, value);
    jw_end_obj(&w);
    for (int i = 0; i < 200; i++) {
        CLEANUP(err_free_p) struct err *why = NULL;
        int rc = state_lock(paths, id, ret_lock, &why);
        if (rc == 0)
            return 0;
        if (rc != -ERR_BUSY)
            return state_lock(paths, id, ret_lock, e);
        err_free_p(&why);
        rc = sandbox_ask(paths, id, w.out.p, ret, &why);
        if (rc == 0 && !str_eq(json_str(*ret, "state"), "stopped"))
            return 1;
        if (rc == 0) { /* it ended before it came to our request */
            *ret = json_free(*ret);
            continue;
        }
        /* it may be starting or stopping this very moment */
        if (rc != -ERR_STOPPED) {
            if (e)
                *e = TAKE_PTR(why);
            return rc;
        }
        (void)poll(NULL, 0, 10);
    }
    return err_new(e, ERR_BUSY, "another petri works on sandbox '%s'; try again", id);
}

int sandbox_snapshot(const struct paths *paths, const char *id, const char *message,
                     char **ret_snap, uint64_t *ret_paused_ms, struct err **e)
{
    AUTOJSON struct json *j = NULL;
    AUTOSTATE struct state s = { 0 };
    AUTOCLOSE int lock = -1, store = -1;
    int rc;

    *ret_paused_ms = 0;
    rc = ask_or_lock(paths, id, "snapshot", "message", message, &j, &lock, e);
    if (rc < 0)
        return rc;
    if (rc == 1) {
        json_u64(j, "paused_ms", ret_paused_ms);
        *ret_snap = str_dup(json_str(j, "snapshot"));
        return 0;
    }
    if ((rc = store_lock_shared(paths, &store, e)) < 0 || (rc = state_read(paths, id, &s, e)) < 0 ||
        (rc = state_freeze(paths, &s, e)) < 0)
        return rc;
    snapshot_add(&s, &s.chain, message);
    *ret_snap = str_dup(s.snaps[s.n_snaps - 1].id);
    if ((rc = state_write(paths, &s, e)) == 0)
        events_add(paths, "snapshot", &s, NULL);
    return rc;
}

int sandbox_snapshot_rm(const struct paths *paths, const char *id, const char *snap, struct err **e)
{
    AUTOJSON struct json *j = NULL;
    AUTOSTATE struct state s = { 0 };
    AUTOCLOSE int lock = -1;
    int rc = ask_or_lock(paths, id, "snapshot_rm", "snapshot", snap, &j, &lock, e);

    if (rc != 0)
        return rc < 0 ? rc : 0;
    if ((rc = state_read(paths, id, &s, e)) < 0 || (rc = snapshot_remove(&s, snap, e)) < 0)
        return rc;
    return state_write(paths, &s, e);
}

int sandbox_rollback(const struct paths *paths, const char *id, const char *snap, char **ret_saved,
                     struct err **e)
{
    AUTOJSON struct json *j = NULL;
    AUTOSTATE struct state s = { 0 };
    AUTOCLOSE int lock = -1, store = -1;
    int rc;

    rc = ask_or_lock(paths, id, "rollback", "snapshot", snap, &j, &lock, e);
    if (rc < 0)
        return rc;
    if (rc == 1) {
        *ret_saved = str_dup(json_str(j, "saved"));
        return 0;
    }
    if ((rc = store_lock_shared(paths, &store, e)) < 0 || (rc = state_read(paths, id, &s, e)) < 0)
        return rc;
    if ((rc = snapshot_back(paths, &s, snap, e)) < 0)
        return rc;
    *ret_saved = str_dup(s.snaps[s.n_snaps - 1].id);
    if ((rc = state_write(paths, &s, e)) < 0)
        return rc;
    events_add(paths, "rollback", &s, NULL);
    return 0;
}

/* --- fork ---------------------------------------------------------------------------------------- */

struct batch {
    const struct paths *paths;
    const struct state *from;
    const struct plan *plan; /* of the first; the others differ in id, name and top */
    const struct strv *chain;
    int store, caches_fd;
    uint64_t journal_next;
    unsigned number;     /* of the next name */
    bool taken[1 << 14]; /* numbers that need not be tried */
};

/* One look at all names instead of a try for each of them. */
static void find_taken(struct batch *b)
{
    AUTOFREE char *top = path_join(b->paths->data, "names");
    AUTOFREE char *start =
        str_printf("%.*s-", NAME_ROOM, b->from->name ? b->from->name : b->from->id);
    DIR *d = opendir(top);
    struct dirent *de;

    while (d && (de = readdir(d))) {
        const char *digits = de->d_name + strlen(start);
        uint64_t n;
        if (str_starts(de->d_name, start) && *digits != '0' &&
            parse_uint(digits, ARRAY_LEN(b->taken) - 1, &n, NULL) == 0)
            b->taken[n] = true;
    }
    if (d)
        closedir(d);
}

int sandbox_freeze(const struct paths *paths, const char *id, bool idle, struct state *ret,
                   struct strv *chain, uint64_t *paused_ms, struct err **e)
{
    AUTOJSON struct json *j = NULL;
    AUTOCLOSE int lock = -1;
    int rc = ask_or_lock(paths, id, "layer", idle ? "idle" : NULL, "yes", &j, &lock, e);

    if (rc < 0)
        return rc;
    if (rc == 1) {
        json_u64(j, "paused_ms", paused_ms);
        json_strings(json_arr(j, "chain"), chain);
        return state_read(paths, id, ret, e);
    }
    if ((rc = state_read(paths, id, ret, e)) < 0)
        return rc;
    size_t before = ret->chain.n;
    if ((rc = state_freeze(paths, ret, e)) < 0)
        return rc;
    if (ret->chain.n != before && (rc = state_write(paths, ret, e)) < 0)
        return rc;
    for (size_t i = 0; i < ret->chain.n; i++)
        strv_add(chain, ret->chain.v[i]);
    return 0;
}

/* Everything of the source but its id, name, layers and history. */
static void describe(const struct batch *b, struct kept *k)
{
    const struct state *f = b->from;
    struct state *s = &k->state;

    s->schema = STATE_SCHEMA;
    s->id = str_dup(k->plan->id);
    s->name = str_dup(k->plan->name);
    s->created = state_now();
    s->image = str_dup(f->image);
    s->project = str_dup(f->project);
    s->project_dev = f->project_dev;
    s->project_ino = f->project_ino;
    s->owner_uid = f->owner_uid;
    s->owner_gid = f->owner_gid;
    s->mode = str_dup(f->mode);
    s->uid = f->uid;
    s->gid = f->gid;
    s->user_uid = f->user_uid;
    s->user_gid = f->user_gid;
    s->ids = str_dup(f->ids);
    s->parent = str_dup(f->id);
    s->stamp_sec = f->stamp_sec;
    s->stamp_nsec = f->stamp_nsec;
    s->journal_next = b->journal_next;
    flags_inherit(&f->options, &s->options);
    flags_inherit(&f->configured, &s->configured);
    for (size_t i = 0; i < f->labels.n; i++)
        strv_add(&s->labels, f->labels.v[i]);
    state_take_paths(s, k->plan);
    for (size_t i = 0; i < f->workspaces.n; i++)
        strv_add(&s->workspaces, f->workspaces.v[i]);
    for (size_t i = 0; i < f->image_layers.n; i++)
        strv_add(&s->image_layers, f->image_layers.v[i]);
    for (size_t i = 0; i < b->chain->n; i++)
        strv_add(&s->chain, b->chain->v[i]);
    s->top = str_dup(strrchr(k->plan->top, '/') + 1);
}

static void copy_index(const struct paths *paths, const char *from, const char *to)
{
    AUTOFREE char *a = state_dir(paths, from), *b = state_dir(paths, to);
    AUTOFREE char *x = path_join(a, "base.index"), *y = path_join(b, "base.index");
    (void)!link(x, y); /* nobody ever writes to it */
}

/* One fork: record, name, layer, and a keeper on its way. The plan is the caller's, borrowed and changed. */
static int fork_one(struct batch *b, struct plan *p, const char *name, struct started *ret,
                    int *ret_pipe, struct err **e)
{
    struct kept k = KEPT_INIT;
    unsigned char id[6];
    int rc;

    if (getrandom(id, sizeof id, 0) != sizeof id)
        return err_sys(e, "random bytes for an id");
    free(p->id);
    p->id = str_printf("%02x%02x%02x%02x%02x%02x", id[0], id[1], id[2], id[3], id[4], id[5]);
    free(p->top);
    p->top = NULL;
    k.plan = p;
    k.holds.caches_fd = b->caches_fd; /* the keeper's copy of it */
    k.made = true;
    if ((rc = state_create(b->paths, p->id, &k.lock, e)) < 0)
        return rc;
    rc = -ERR_EXISTS;
    for (unsigned i = b->number; rc == -ERR_EXISTS && i < b->number + 100000; i++) {
        if (!name && i < ARRAY_LEN(b->taken) && b->taken[i])
            continue;
        CLEANUP(err_free_p) struct err *why = NULL;
        free(p->name);
        p->name =
            name ? str_dup(name)
                 : str_printf("%.*s-%u", NAME_ROOM, b->from->name ? b->from->name : b->from->id, i);
        rc = state_name(b->paths, p->id, p->name, &why);
        if (rc < 0 && (rc != -ERR_EXISTS || name) && e)
            *e = TAKE_PTR(why);
        if (name)
            break;
        if (rc == 0)
            b->number = i + 1; /* for the next one */
    }
    if (rc == 0)
        rc = layer_new(b->paths, &p->top, e);
    if (rc == 0) {
        strv_setenv(&p->env, "SANDBOX_ID", p->id);
        strv_setenv(&p->env, "SANDBOX_NAME", p->name);
        describe(b, &k);
        copy_index(b->paths, b->from->id, p->id);
        k.store = fcntl(b->store, F_DUPFD_CLOEXEC, 3);
        k.callers_store = b->store;
        rc = kept_fork(b->paths, &k, ret_pipe, e);
    }
    ret->id = str_dup(p->id);
    ret->name = str_dup(p->name);
    ret->made = true;
    k.plan = NULL;
    state_free_p(&k.state);
    close_p(&k.lock);
    close_p(&k.store);
    if (rc < 0)
        state_remove_left(b->paths, p->id);
    return rc;
}

/* Waits for the oldest that is still on its way. */
static int settle(const struct paths *paths, int *pipe, const struct started *s, struct err **e)
{
    int rc = kept_wait(*pipe, NULL, e);
    close_p(pipe);
    if (rc < 0)
        state_remove_left(paths, s->id);
    return rc;
}

int sandbox_fork(const struct paths *paths, const char *id, const struct options *given, size_t n,
                 struct started *ret, uint64_t *ret_paused_ms, struct err **e)
{
    CLEANUP(options_free_p) struct options o = { .live = true };
    CLEANUP(kept_free_p) struct kept first = KEPT_INIT;
    AUTOSTATE struct state from = { 0 };
    AUTOSTRV struct strv chain = { 0 };
    AUTOCLOSE int store = -1;
    struct batch b = { .paths = paths, .from = &from, .chain = &chain, .number = 1 };
    const char *name = given->name;
    int pipes[AT_ONCE], rc;
    size_t done = 0, i = 0;

    *ret_paused_ms = 0;
    /* before the layer is: what is promoted from here on may be what the fork has not */
    b.journal_next = state_journal_next(paths);
    if ((rc = store_lock_shared(paths, &store, e)) < 0 ||
        (rc = sandbox_freeze(paths, id, false, &from, &chain, ret_paused_ms, e)) < 0)
        return rc;
    b.store = store;
    options_restore(&o, &from.options);
    options_restore(&o, &given->given);
    o.name = NULL;
    strv_free_p(&o.publish); /* a port of the host's is one sandbox's */
    o.workspace = from.project;
    o.id = from.id; /* each gets its own */
    if ((rc = plan_make(&o, paths, &first.plan, &first.holds, e)) < 0 ||
        (rc = kept_same_base(&from, first.plan, e)) < 0)
        return rc;
    if ((rc = totals_check(paths, first.plan, first.plan->disk.value, n, e)) < 0)
        return rc;
    b.caches_fd = first.holds.caches_fd;
    layers_of(paths, &chain, &first.plan->chain);
    if (!name)
        find_taken(&b);
    for (; i < n && rc == 0; i++) {
        if (i - done == AT_ONCE) {
            rc = settle(paths, &pipes[done % AT_ONCE], &ret[done], e);
            done++;
        }
        if (rc == 0)
            rc = fork_one(&b, first.plan, name, &ret[i], &pipes[i % AT_ONCE], e);
    }
    for (i = rc < 0 && i > 0 ? i - 1 : i; done < i; done++) {
        int last = settle(paths, &pipes[done % AT_ONCE], &ret[done], rc < 0 ? NULL : e);
        rc = rc < 0 ? rc : last;
    }
    if (rc == 0)
        events_add(paths, "fork", &from, NULL);
    return rc;
}
