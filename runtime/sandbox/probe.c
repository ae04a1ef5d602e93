#include "runtime/sandbox/probe.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/paths.h"

const char *probe_status_name(enum probe_status s)
{
    return s == PROBE_OK ? "ok" : s == PROBE_LIMITED ? "limited" : "missing";
}

void probe_add(struct probe_report *r, const char *id, const char *title, bool required,
               enum probe_status status, char *value, char *means, char *fix)
{
    r->v = realloc(r->v, (r->n + 1) * sizeof *r->v);
    if (!r->v)
        abort();
    r->v[r->n++] = (struct probe_result){ id, title, status, required, false, value, means, fix };
    if (required && status == PROBE_MISSING)
        r->ok = false;
}

void probe_add_untried(struct probe_report *r, const char *id, const char *title, bool required,
                       char *value)
{
    probe_add(r, id, title, required, required ? PROBE_MISSING : PROBE_LIMITED,
              value ? value : str_dup("not tried"),
              str_dup("could not be tried; needs user namespaces first"), NULL);
    r->v[r->n - 1].untried = true;
}

void probe_report_free_p(struct probe_report *r)
{
    for (size_t i = 0; i < r->n; i++) {
        free(r->v[i].value);
        free(r->v[i].means);
        free(r->v[i].fix);
    }
    free(r->v);
    free(r->kernel);
    *r = (struct probe_report){ 0 };
}

const struct probe_result *probe_find(const struct probe_report *r, const char *id)
{
    for (size_t i = 0; i < r->n; i++)
        if (!strcmp(r->v[i].id, id))
            return &r->v[i];
    return NULL;
}

/* --- kernel, container ----------------------------------------------------------------------- */

static void kernel_line(struct probe_report *r, const struct probe_host *h,
                        const struct probe_tries *t)
{
    struct str v = STR_INIT;
    unsigned version = h->major * 1000 + h->minor;

    str_add(&v, h->release ? h->release : "unknown");
    if (!t->layers_fd)
        str_add(&v, ", layers by fd");
    else if (!t->layers_plus)
        str_add(&v, ", lowerdir+");
    if (!t->tmpfs_xattr)
        str_add(&v, ", tmpfs xattrs");
    if (version >= 6001)
        probe_add(r, "kernel", "kernel", false, PROBE_OK, str_take(&v), NULL, NULL);
    else if (version >= 5015)
        probe_add(r, "kernel", "kernel", false, PROBE_LIMITED, str_take(&v),
                  str_dup("older than 6.1: root's sandboxes lack idmapped layers"),
                  str_dup("boot a kernel of 6.1 or later"));
    else
        probe_add(r, "kernel", "kernel", true, PROBE_MISSING, str_take(&v),
                  str_dup("petri needs 5.15, better 6.1"),
                  str_dup("boot a kernel of 6.1 or later"));
}

static void container_line(struct probe_report *r, const struct probe_host *h,
                           const struct probe_tries *t)
{
    char *fix = probe_container_fix(h, t);
    if (!h->container) {
        probe_add(r, "container", "inside a container", false, PROBE_OK, str_dup("no"), NULL, NULL);
        return;
    }
    probe_add(r, "container", "inside a container", false, fix ? PROBE_LIMITED : PROBE_OK,
              str_printf("%s (%s)", h->container, h->container_sign),
              fix ? str_dup("sandboxes inside it need it started with more rights") : NULL, fix);
}

static void parts_line(struct probe_report *r)
{
    static const char id[] = "parts", title[] = "petri's own parts";
    static const char whole[] = "install petri as a whole (make install, or the package)";
    CLEANUP(err_free_p) struct err *e = NULL;
    AUTOFREE char *init = paths_helper("petri-init", &e), *gateway = NULL;

    if (init)
        gateway = paths_helper("petri-gateway", &e);
    if (init && gateway)
        probe_add(r, id, title, true, PROBE_OK, TAKE_PTR(init), NULL, NULL);
    else
        probe_add(
            r, id, title, true, init ? PROBE_LIMITED : PROBE_MISSING, err_text(e),
            str_dup(init ? "sandboxes start with --network none only" : "no sandbox can start"),
            str_dup(whole));
}

/* --- all of it ------------------------------------------------------------------------------- */

/* Where paths_open() would put the store, without making it. */
static char *usual_store(const struct probe_host *h)
{
    const char *home = getenv("PETRI_HOME"), *xdg = getenv("XDG_DATA_HOME");

    if (home && *home)
        return str_dup(home);
    if (!h->uid)
        return str_dup("/var/lib/petri");
    if (xdg && *xdg == '/')
        return path_join(xdg, "petri");
    home = getenv("HOME");
    if (!home || *home != '/')
        home = h->me.home;
    return home ? path_join(home, ".local/share/petri") : str_printf("/var/tmp/petri-%u", h->uid);
}

static char *nearest_existing(const char *path)
{
    char *p = str_dup(path);
    while (!fs_is_dir(p)) {
        char *slash = strrchr(p, '/');
        if (!slash || slash == p) {
            free(p);
            return str_dup("/");
        }
        *slash = 0;
    }
    return p;
}

/* A directory beside (or in) the store for the time of the probe; NULL: can't be made. */
static char *probe_dir_make(const char *existing)
{
    char *dir = path_join(existing, ".petri-probe-XXXXXX");
    if (mkdtemp(dir))
        return dir;
    free(dir);
    return NULL;
}

static void try_all(const char *existing, const char *project, struct probe_tries *ret)
{
    AUTOFREE char *dir = NULL;
    sigset_t hold, old;

    /* Ctrl-C waits these milliseconds, so that the directory does not stay. */
    sigemptyset(&hold);
    sigaddset(&hold, SIGINT);
    sigaddset(&hold, SIGTERM);
    sigaddset(&hold, SIGHUP);
    sigprocmask(SIG_BLOCK, &hold, &old);
    dir = existing ? probe_dir_make(existing) : NULL;
    probe_try(dir, project, ret);
    if (dir)
        fs_remove_tree(AT_FDCWD, dir, NULL);
    sigprocmask(SIG_SETMASK, &old, NULL);
}

void probe_all(const char *store, const char *project, struct probe_report *ret)
{
    CLEANUP(probe_host_free_p) struct probe_host h = { 0 };
    AUTOFREE char *where = NULL, *existing = NULL, *cwd = NULL;
    struct probe_report r = { .ok = true };
    struct probe_tries t;

    probe_host_read(&h);
    where = store ? str_dup(store) : usual_store(&h);
    existing = nearest_existing(where);
    cwd = project ? str_dup(project) : getcwd(NULL, 0);
    try_all(existing, cwd, &t);
    r.kernel = str_dup(h.release ? h.release : "unknown");
    parts_line(&r);
    kernel_line(&r, &h, &t);
    container_line(&r, &h, &t);
    probe_namespaces(&r, &h, &t);
    probe_files(&r, &h, &t, where, existing, cwd ? cwd : "/");
    probe_network(&r, &h, &t);
    probe_subids(&r, &h);
    probe_cgroups(&r, &h);
    probe_linger(&r, &h);
    probe_room(&r, existing);
    probe_extras(&r, &h);
    *ret = r;
}

/* --- refusals -------------------------------------------------------------------------------- */

static char *refusal(const struct probe_result *p)
{
    return str_printf("%s %s. Nothing was run.%s%s", p->title, p->value, p->fix ? " Fix: " : "",
                      p->fix ? p->fix : " petri doctor says more.");
}

int probe_refuse(const char *id, struct err **e)
{
    AUTOREPORT struct probe_report r = { 0 };
    AUTOFREE char *text = NULL;
    const struct probe_result *p;

    probe_all(NULL, NULL, &r);
    p = probe_find(&r, id);
    if (!p || p->status == PROBE_OK)
        return 0;
    text = refusal(p);
    return err_new(e, ERR_UNSUPPORTED, "%s", text);
}

char *probe_userns_remedy(void)
{
    CLEANUP(probe_host_free_p) struct probe_host h = { 0 };
    AUTOREPORT struct probe_report r = { .ok = true };
    struct probe_tries t;

    probe_host_read(&h);
    try_all(NULL, NULL, &t);
    probe_namespaces(&r, &h, &t);
    for (size_t i = 0; i < r.n; i++)
        if (r.v[i].status != PROBE_OK)
            return refusal(&r.v[i]);
    return NULL;
}
