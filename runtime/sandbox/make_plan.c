/* runtime/sandbox/make_plan.c - from options to a plan. Reads the host, changes nothing but the cache of
 * /etc below layers/. */
#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/fs.h"
#include "oci/config.h"
#include "runtime/sandbox/plan_parts.h"
#include "runtime/sandbox/project.h"

void plan_holds_free_p(struct plan_holds *h)
{
    image_info_free_p(&h->image);
    close_p(&h->etc_fd);
    close_p(&h->caches_fd);
    if (h->net)
        net_policy_free_p(h->net);
    free_p(&h->net);
}

static int take_limits(const struct options *o, struct plan *p, struct err **e)
{
    static const char *const names[] = { "--memory", "--cpus", "--pids-limit", "--disk" };
    const char *const given[] = { o->memory, o->cpus, o->pids, o->disk };
    struct limit *const limits[] = { &p->memory, &p->cpus_milli, &p->pids, &p->disk };
    int rc = 0;

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (!given[i])
            continue;
        limits[i]->asked = true;
        rc = i == 1   ? parse_cpus(given[i], &limits[i]->value, e)
             : i == 2 ? parse_uint(given[i], 4194304, &limits[i]->value, e)
                      : parse_size(given[i], &limits[i]->value, e);
        if (rc < 0)
            return err_wrap(e, "%s", names[i]);
    }
    if (o->memory && p->memory.value < 4 << 20)
        return err_new(e, ERR_INVALID, "--memory %s: less than 4M can't start anything", o->memory);
    if (o->disk && p->disk.value < 1 << 20)
        return err_new(e, ERR_INVALID, "--disk %s: less than 1M can't start anything", o->disk);
    if (o->pids && p->pids.value < 8)
        return err_new(e, ERR_INVALID, "--pids-limit %s: fewer than 8 can't start anything",
                       o->pids);
    if (o->timeout && (rc = parse_duration(o->timeout, &p->timeout_ms, e)) < 0)
        return err_wrap(e, "--timeout");
    if (o->max_output && (rc = parse_size(o->max_output, &p->max_output, e)) < 0)
        return err_wrap(e, "--max-output");
    return 0;
}

static int take_totals(const struct options *o, struct plan *p, struct err **e)
{
    int rc;

    if (o->total_sandboxes &&
        (rc = parse_uint(o->total_sandboxes, 1000000, &p->totals.sandboxes, e)) < 0)
        return err_wrap(e, "--total-sandboxes");
    if (o->total_memory && (rc = parse_size(o->total_memory, &p->totals.memory, e)) < 0)
        return err_wrap(e, "--total-memory");
    if (o->total_disk && (rc = parse_size(o->total_disk, &p->totals.disk, e)) < 0)
        return err_wrap(e, "--total-disk");
    if (o->startup_timeout && (rc = parse_duration(o->startup_timeout, &p->startup_ms, e)) < 0)
        return err_wrap(e, "--startup-timeout");
    return 0;
}

int options_check_name(const char *flag, const char *name, struct err **e)
{
    size_t n = strlen(name);
    bool ok = n > 0 && n <= 63 && isalnum((unsigned char)name[0]);
    for (size_t i = 0; ok && i < n; i++)
        ok = isalnum((unsigned char)name[i]) || strchr("-_.", name[i]);
    if (!ok) {
        AUTOSTR struct str s = STR_INIT;
        str_add_escaped(&s, name, n > 40 ? 40 : n);
        return err_new(e, ERR_INVALID,
                       "%s '%s'%s: 1 to 63 letters, digits, '-', '_' or '.', beginning with a "
                       "letter or digit",
                       flag, s.p ? s.p : "", n > 40 ? "..." : "");
    }
    return 0;
}

static int take_words(const struct options *o, struct plan *p, struct err **e)
{
    int rc;
    unsigned char id[6];

    if (getrandom(id, sizeof id, 0) != sizeof id)
        return err_sys(e, "random bytes for an id");
    p->id = o->id
                ? str_dup(o->id)
                : str_printf("%02x%02x%02x%02x%02x%02x", id[0], id[1], id[2], id[3], id[4], id[5]);
    if (o->name && (rc = options_check_name("--name", o->name, e)) < 0)
        return rc;
    p->name = str_dup(o->name);
    for (size_t i = 0; i < o->labels.n; i++) {
        if (!o->labels.v[i][0] || o->labels.v[i][0] == '=')
            return err_new(e, ERR_INVALID, "--label '%s': write it as KEY=VALUE", o->labels.v[i]);
        strv_add(&p->labels, o->labels.v[i]);
    }
    if (o->caches && strcmp(o->caches, "on") != 0 && strcmp(o->caches, "off") != 0)
        return err_new(e, ERR_INVALID, "--caches '%s': on or off", o->caches);
    if (!o->mode || strcmp(o->mode, "overlay") == 0)
        p->mode = WORKSPACE_OVERLAY;
    else if (strcmp(o->mode, "copy") == 0)
        p->mode = WORKSPACE_COPY;
    else if (strcmp(o->mode, "bind") == 0)
        p->mode = WORKSPACE_BIND;
    else
        return err_new(e, ERR_INVALID, "--workspace-mode '%s': overlay, copy or bind", o->mode);
    p->read_only = o->read_only;
    p->keep = o->keep;
    p->live = o->live;
    p->tty = o->tty;
    for (size_t i = 0; i < o->argv.n; i++)
        strv_add(&p->argv, o->argv.v[i]);
    return 0;
}

static int take_project(const struct options *o, const struct paths *paths, const char *cwd,
                        struct plan *p, struct err **e)
{
    CLEANUP(project_free_p) struct project pr = { 0 };
    int rc = project_find(cwd, o->workspace, &pr, e);

    if (rc < 0)
        return rc;
    if (path_below(pr.root, paths->data))
        return err_new(e, ERR_DENIED, "workspace '%s' lies in petri's own store", pr.root);
    p->project = TAKE_PTR(pr.root);
    p->project_dev = pr.st.st_dev;
    p->project_ino = pr.st.st_ino;
    p->owner_uid = geteuid() == 0 ? pr.st.st_uid : getuid();
    p->owner_gid = geteuid() == 0 ? pr.st.st_gid : getgid();
    if (path_below(paths->data, p->project) && strcmp(paths->data, p->project) != 0)
        strv_add(&p->hide, paths->data + strlen(p->project) + 1);
    for (size_t i = 0; i < pr.hide.n && !(weakened() & WEAK_HIDE); i++)
        strv_add(&p->hide, pr.hide.v[i]);
    for (size_t i = 0; i < pr.extra.n; i++)
        strv_add(&p->extra_lowers, pr.extra.v[i]);
    for (size_t i = 0; i < pr.missing.n; i++)
        strv_add(&p->missing, pr.missing.v[i]);
    if (p->mode == WORKSPACE_BIND && pr.missing.n)
        return err_new(e, ERR_DENIED,
                       "--workspace-mode bind: '%s' below the project is no ordinary file system; "
                       "unmount it, or use overlay or copy",
                       pr.missing.v[0]);
    return plan_project_paths(o, p, e);
}

static int read_env_file(const char *file, struct strv *ret, struct err **e)
{
    AUTOFREE char *text = NULL;
    size_t line = 0;
    int rc = fs_read(AT_FDCWD, file, 1 << 20, &text, NULL, e);

    if (rc < 0)
        return err_wrap(e, "--env-file");
    for (char *save = NULL, *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        line++;
        l += strspn(l, " \t");
        l[strcspn(l, "\r")] = '\0';
        if (*l == '=')
            return err_new(e, ERR_INVALID, "--env-file '%s': entry %zu has no name before '='",
                           file, line);
        if (*l && *l != '#')
            strv_add(ret, l);
    }
    return 0;
}

/* Variables that were asked for, as NAME=VALUE; a bare NAME takes the host's value, if it has one. */
static int take_env(const struct options *o, struct strv *ret, struct err **e)
{
    AUTOSTRV struct strv all = { 0 };
    int rc;

    for (size_t i = 0; i < o->env_files.n; i++)
        if ((rc = read_env_file(o->env_files.v[i], &all, e)) < 0)
            return rc;
    for (size_t i = 0; i < o->env.n; i++)
        strv_add(&all, o->env.v[i]);
    for (size_t i = 0; i < all.n; i++) {
        if (!*all.v[i] || *all.v[i] == '=')
            return err_new(e, ERR_INVALID,
                           "-e '%s': write it as NAME=VALUE, or NAME to pass the host's", all.v[i]);
        if (strchr(all.v[i], '='))
            strv_add(ret, all.v[i]);
        else if (getenv(all.v[i]))
            strv_addf(ret, "%s=%s", all.v[i], getenv(all.v[i]));
    }
    return 0;
}

static void set_env(struct plan *p, const struct strv *asked)
{
    strv_setenv(&p->env, "HOME", p->home);
    strv_setenv(&p->env, "USER", p->user);
    strv_setenv(&p->env, "LOGNAME", p->user);
    strv_setenv(&p->env, "SANDBOX_ID", p->id);
    strv_setenv(&p->env, "SANDBOX_NAME", p->name ? p->name : p->id);
    if (p->tty && !strv_getenv(&p->env, "TERM"))
        strv_setenv(&p->env, "TERM", getenv("TERM") ? getenv("TERM") : "xterm");
    for (size_t i = 0; i < asked->n; i++) {
        AUTOFREE char *name = str_printf("%.*s", (int)strcspn(asked->v[i], "="), asked->v[i]);
        strv_setenv(&p->env, name, asked->v[i] + strlen(name) + 1);
    }
}

static int take_cwd(const struct options *o, bool host, const char *cwd, struct plan *p,
                    struct err **e)
{
    const char *top = host ? p->project : p->workspace;
    if (o->workdir) {
        if (!*o->workdir)
            return err_new(e, ERR_INVALID, "-w '': a directory is needed");
        p->cwd = o->workdir[0] == '/' ? str_dup(o->workdir) : path_join(top, o->workdir);
        if (strstr(p->cwd, "/../") || str_ends(p->cwd, "/.."))
            return err_new(e, ERR_INVALID, "-w '%s': a path without '..'", o->workdir);
    } else if (path_below(cwd, p->project)) {
        p->cwd = str_printf("%s%s", top, cwd + strlen(p->project));
    } else {
        p->cwd = str_dup(top);
    }
    return 0;
}

char *plan_layer(const struct paths *paths, struct err **e)
{
    uint64_t id;
    if (getrandom(&id, sizeof id, 0) != sizeof id) {
        err_sys(e, "random bytes for a layer");
        return NULL;
    }
    return str_printf("%s/changes/%016llx", paths->data, (unsigned long long)id);
}

int plan_make(const struct options *o, const struct paths *paths, struct plan **ret,
              struct plan_holds *ret_holds, struct err **e)
{
    CLEANUP(plan_free_p) struct plan *p = plan_new();
    CLEANUP(plan_holds_free_p) struct plan_holds holds = { .etc_fd = -1, .caches_fd = -1 };
    CLEANUP(plan_mounts_free_p) struct plan_mounts volumes = { 0 };
    AUTOSTRV struct strv env = { 0 };
    bool host = !o->image || strcmp(o->image, "host") == 0;
    char cwd[PATH_MAX];
    int rc;

    if (o->live && o->workspace)
        snprintf(cwd, sizeof cwd, "%s", o->workspace);
    else if (!getcwd(cwd, sizeof cwd))
        return err_sys(e, "the current directory");
    p->image = str_dup(host ? "host" : o->image);
    if ((rc = take_limits(o, p, e)) < 0 || (rc = take_totals(o, p, e)) < 0 ||
        (rc = take_words(o, p, e)) < 0 || (rc = plan_network(o, p, &holds, e)) < 0 ||
        (rc = take_project(o, paths, cwd, p, e)) < 0)
        return rc;
    if (!host && (rc = plan_store_image(o->image, paths, p, &holds, e)) < 0)
        return rc;
    if ((rc = plan_user(o, host, host ? NULL : holds.image.user, p, e)) < 0)
        return rc;
    for (size_t i = 0; i < o->volumes.n; i++)
        if ((rc = plan_volume(o->volumes.v[i], paths, &volumes, e)) < 0)
            return rc;
    for (size_t i = 0; i < volumes.n; i++)
        if (path_below(p->workspace, volumes.v[i].dst) || path_below(p->project, volumes.v[i].dst))
            return err_new(e, ERR_DENIED,
                           "-v '%s': that is the project's own place; use --workspace DIR "
                           "--workspace-mode bind",
                           o->volumes.v[i]);
    if ((rc = take_env(o, &env, e)) < 0 || (rc = take_cwd(o, host, cwd, p, e)) < 0)
        return rc;
    /* all words are judged; from here on the store is touched */
    if ((rc = paths_make(paths, e)) < 0)
        return rc;
    if (host && (rc = plan_host_image(paths, p, &holds, e)) < 0)
        return rc;
    if (!host)
        plan_mounts_add(&p->mounts, MOUNT_TMPFS, NULL, p->home, false);
    if ((!host && (rc = plan_resolver(paths, p, e)) < 0) ||
        (rc = plan_caches(o, paths, &volumes, p, &holds, e)) < 0)
        return rc;
    if ((rc = plan_judge_workspace(p, e)) < 0)
        return rc;
    for (size_t i = 0; i < volumes.n; i++) {
        plan_make_room(p, volumes.v[i].dst);
        plan_mounts_add(&p->mounts, MOUNT_BIND, volumes.v[i].src, volumes.v[i].dst,
                        volumes.v[i].ro);
        p->mounts.v[p->mounts.n - 1].user = true;
    }
    if ((rc = plan_judge_sockets(p, e)) < 0)
        return rc;
    set_env(p, &env);
    if (o->live || o->keep) {
        p->root_writable = true;
        p->top = plan_layer(paths, e);
        if (!p->top)
            return -ERR_FAILED;
    }
    if (!p->argv.n && !host) {
        for (size_t i = 0; i < holds.image.entrypoint.n; i++)
            strv_add(&p->argv, holds.image.entrypoint.v[i]);
        for (size_t i = 0; i < holds.image.cmd.n; i++)
            strv_add(&p->argv, holds.image.cmd.v[i]);
    }
    if (!p->argv.n && !o->live)
        return err_new(e, ERR_USAGE, "no command given; like: petri run -- make test");
    *ret = TAKE_PTR(p);
    *ret_holds = holds;
    holds = (struct plan_holds){ .etc_fd = -1, .caches_fd = -1 };
    return 0;
}
