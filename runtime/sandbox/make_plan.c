/* runtime/sandbox/make_plan.c - from options to a plan. Reads the host, changes nothing but the cache of
 * /etc below layers/. */
#include <ctype.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/user.h"
#include "image/host/etc.h"
#include "image/host/system.h"
#include "image/host/tools.h"
#include "oci/config.h"
#include "runtime/sandbox/options.h"
#include "runtime/sandbox/project.h"

void options_free_p(struct options *o)
{
    strv_free_p(&o->argv);
    strv_free_p(&o->env);
    strv_free_p(&o->env_files);
    strv_free_p(&o->volumes);
    strv_free_p(&o->labels);
    strv_free_p(&o->hide);
}

void plan_holds_free_p(struct plan_holds *h)
{
    image_info_free_p(&h->image);
    close_p(&h->etc_fd);
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
    if (o->pids && p->pids.value < 4)
        return err_new(e, ERR_INVALID, "--pids-limit %s: fewer than 4 can't start anything", o->pids);
    if (o->timeout && (rc = parse_duration(o->timeout, &p->timeout_ms, e)) < 0)
        return err_wrap(e, "--timeout");
    if (o->max_output && (rc = parse_size(o->max_output, &p->max_output, e)) < 0)
        return err_wrap(e, "--max-output");
    return 0;
}

static int check_name(const char *flag, const char *name, struct err **e)
{
    size_t n = strlen(name);
    bool ok = n > 0 && n <= 63 && isalnum((unsigned char)name[0]);
    for (size_t i = 0; ok && i < n; i++)
        ok = isalnum((unsigned char)name[i]) || strchr("-_.", name[i]);
    if (!ok) {
        AUTOSTR struct str s = STR_INIT;
        str_add_escaped(&s, name, n > 40 ? 40 : n);
        return err_new(e, ERR_INVALID, "%s '%s'%s: 1 to 63 letters, digits, '-', '_' or '.', beginning with a "
                                       "letter or digit", flag, s.p ? s.p : "", n > 40 ? "..." : "");
    }
    return 0;
}

static int take_words(const struct options *o, struct plan *p, struct err **e)
{
    int rc;
    unsigned char id[6];

    if (getrandom(id, sizeof id, 0) != sizeof id)
        return err_sys(e, "random bytes for an id");
    p->id = str_printf("%02x%02x%02x%02x%02x%02x", id[0], id[1], id[2], id[3], id[4], id[5]);
    if (o->name && (rc = check_name("--name", o->name, e)) < 0)
        return rc;
    p->name = str_dup(o->name);
    for (size_t i = 0; i < o->labels.n; i++) {
        if (!o->labels.v[i][0] || o->labels.v[i][0] == '=')
            return err_new(e, ERR_INVALID, "--label '%s': write it as KEY=VALUE", o->labels.v[i]);
        strv_add(&p->labels, o->labels.v[i]);
    }
    if (o->network && strcmp(o->network, "none") != 0)
        return err_new(e, ERR_UNSUPPORTED, "--network %s: only 'none' exists in this version; leave the flag out",
                       o->network);
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
    p->tty = o->tty;
    for (size_t i = 0; i < o->argv.n; i++)
        strv_add(&p->argv, o->argv.v[i]);
    return 0;
}

/* A relative path or glob of --hide as the paths it names; names that do not exist yet count too. */
static int take_hide(const struct options *o, struct plan *p, struct err **e)
{
    for (size_t i = 0; i < o->hide.n; i++) {
        const char *h = o->hide.v[i];
        size_t n = strlen(p->project);
        bool outside = h[0] == '/' && !path_below(h, p->project);
        if (h[0] == '/' && !outside)
            h += n;
        while (*h == '/' || (h[0] == '.' && h[1] == '/'))
            h++;
        if (!*h || outside || strcmp(h, ".") == 0 || str_starts(h, "../") || str_ends(h, "/..") ||
            strcmp(h, "..") == 0 || strstr(h, "/../"))
            return err_new(e, ERR_INVALID, "--hide '%s': a path or pattern inside the project, like .env or "
                                           "'*.pem'", o->hide.v[i]);
        AUTOFREE char *trimmed = str_dup(h);
        for (size_t k = strlen(trimmed); k > 1 && trimmed[k - 1] == '/'; k--)
            trimmed[k - 1] = '\0';
        if (!strpbrk(trimmed, "*?[")) {
            strv_add(&p->hide, trimmed);
            continue;
        }
        AUTOFREE char *pattern = path_join(p->project, trimmed);
        glob_t g = {0};
        if (glob(pattern, GLOB_NOSORT | GLOB_PERIOD, NULL, &g) == 0)
            for (size_t k = 0; k < g.gl_pathc; k++)
                strv_add(&p->hide, g.gl_pathv[k] + n + 1);
        globfree(&g);
    }
    return 0;
}

static int take_project(const struct options *o, const struct paths *paths, const char *cwd, struct plan *p,
                        struct err **e)
{
    CLEANUP(project_free_p) struct project pr = {0};
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
        return err_new(e, ERR_DENIED, "--workspace-mode bind: '%s' below the project is no ordinary file system; "
                                      "unmount it, or use overlay or copy", pr.missing.v[0]);
    return take_hide(o, p, e);
}

/* Who the sandbox's user is: -u, else the invoker (root: the project's owner, or 1000). */
static int take_user(const struct options *o, bool host, const char *image_user, struct plan *p, struct err **e)
{
    CLEANUP(user_free_p) struct user u = {0};
    const char *want = o->user ? o->user : (image_user && *image_user ? image_user : NULL);
    AUTOFREE char *name = NULL;
    uint64_t uid, gid = 0;
    char *colon;

    if (!want) {
        p->uid = host && p->owner_uid ? p->owner_uid : 1000;
        p->gid = host && p->owner_uid ? p->owner_gid : 1000;
        if (p->uid >= 65536 && geteuid() == 0)
            p->uid = p->gid = 1000;
        if (host && p->uid == p->owner_uid && user_by_uid(p->uid, &u)) {
            p->user = TAKE_PTR(u.name);
            p->home = TAKE_PTR(u.home);
        }
    } else {
        name = str_dup(want);
        colon = strchr(name, ':');
        if (colon)
            *colon++ = '\0';
        if (parse_uint(name, 4294967294, &uid, NULL) == 0) {
            p->uid = (uid_t)uid;
            p->gid = (gid_t)uid;
            if (host && user_by_uid(p->uid, &u))
                p->gid = u.gid;
            if (p->uid == p->owner_uid)
                p->gid = p->owner_gid;
        } else if (strcmp(name, "root") == 0) {
            p->uid = p->gid = 0;
        } else if (host && user_by_name("/etc/passwd", name, &u)) {
            p->uid = u.uid;
            p->gid = u.gid;
        } else {
            return err_new(e, ERR_NOT_FOUND, "user '%s' is not known here; use a number (-u 1000) or root", want);
        }
        if (colon && parse_uint(colon, 4294967294, &gid, NULL) < 0)
            return err_new(e, ERR_INVALID, "user '%s': the group must be a number", want);
        if (colon)
            p->gid = (gid_t)gid;
        p->user = u.name ? TAKE_PTR(u.name) : NULL;
        p->home = p->uid == 0 ? str_dup("/root") : u.home ? TAKE_PTR(u.home) : NULL;
    }
    if (!p->user)
        p->user = str_dup(p->uid == 0 ? "root" : host ? "user" : "sandbox");
    if (!p->home || p->home[0] != '/' || !p->home[1] || host_system_path(p->home)) {
        free(p->home);
        p->home = str_printf("/home/%s", p->user);
    }
    return 0;
}

/* -v SRC:DST[:ro] */
static int take_volume(const char *v, const struct paths *paths, struct plan_mounts *ret, struct err **e)
{
    AUTOFREE char *spec = str_dup(v), *src = NULL;
    char *dst = strchr(spec, ':'), *opt = dst ? strchr(dst + 1, ':') : NULL;
    const char *why = NULL;
    static const char *const taken[] = { "/proc", "/sys", "/dev", "/.petri-init" };

    if (opt)
        *opt++ = '\0';
    if (dst)
        *dst++ = '\0';
    if (!dst || dst[0] != '/' || !dst[1] || strstr(dst, "/../") || str_ends(dst, "/..") ||
        (opt && strcmp(opt, "ro") != 0 && strcmp(opt, "rw") != 0))
        return err_new(e, ERR_INVALID, "-v '%s': write it as SRC:DST or SRC:DST:ro, with DST absolute", v);
    for (size_t i = 0; i < ARRAY_LEN(taken); i++)
        if (path_below(dst, taken[i]))
            return err_new(e, ERR_DENIED, "-v '%s': %s is the sandbox's own", v, taken[i]);
    src = fs_realpath(spec);
    if (!src)
        return err_sys(e, "-v '%s': '%s'", v, spec);
    struct stat st;
    if (stat(src, &st) < 0 || !(S_ISDIR(st.st_mode) || S_ISREG(st.st_mode)))
        return err_new(e, ERR_DENIED, "-v '%s': '%s' is no directory or plain file", v, src);
    if (strcmp(src, "/") == 0 || project_forbidden(src, paths->data, &why) ||
        project_forbidden(src, paths->run, &why))
        return err_new(e, ERR_DENIED, "-v '%s': '%s' can't be handed in: %s", v, src,
                       why ? why : "it is the whole machine");
    AUTOSTRV struct strv files = {0}, rest = {0};
    int rc = project_submounts(src, &files, &rest, e);
    if (rc < 0)
        return rc;
    if (rest.n)
        return err_new(e, ERR_DENIED, "-v '%s': '%s' in it is no ordinary file system and can't be handed in", v,
                       rest.v[0]);
    plan_mounts_add(ret, MOUNT_BIND, src, dst, opt && strcmp(opt, "ro") == 0);
    return 0;
}

/* A new name below a read-only system directory needs a place to be mounted on: an overlay has it. */
static void make_room(struct plan *p, const char *dst)
{
    for (size_t i = 0; i < p->mounts.n; i++) {
        struct plan_mount *m = &p->mounts.v[i];
        if (m->kind != MOUNT_BIND || !path_below(dst, m->dst) || strcmp(dst, m->dst) == 0)
            continue;
        AUTOFREE char *there = str_printf("%s%s", m->src, dst + strlen(m->dst));
        if (!fs_exists(there)) {
            m->overlay = true;
            m->ro = false;
        }
    }
}

/* Trees that hold a socket of the host's: system directories come in as overlays, others not at all. */
static int judge_sockets(struct plan *p, struct err **e)
{
    AUTOSTRV struct strv trees = {0};
    int rc = host_socket_trees(&p->mounts, &trees, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < p->mounts.n; i++) {
        struct plan_mount *m = &p->mounts.v[i];
        if (m->kind != MOUNT_BIND || !strv_has(&trees, m->dst))
            continue;
        if (m->user)
            return err_new(e, ERR_DENIED, "-v '%s:%s': a socket of a running service lies in it; a sandbox "
                                          "must not reach it", m->src, m->dst);
        m->overlay = true;
    }
    if (p->project && p->mode == WORKSPACE_BIND) {
        struct plan_mounts one = {0};
        AUTOSTRV struct strv hit = {0};
        plan_mounts_add(&one, MOUNT_BIND, p->project, p->project, false);
        rc = host_socket_trees(&one, &hit, e);
        plan_mounts_free_p(&one);
        if (rc < 0)
            return rc;
        if (hit.n)
            return err_new(e, ERR_DENIED, "--workspace-mode bind: a socket of a running service lies in '%s'; "
                                          "use overlay or copy", p->project);
    }
    return 0;
}

static int host_image(const struct paths *paths, struct plan *p, struct plan_holds *holds, struct err **e)
{
    extern char **environ;
    AUTOFREE char *layers = path_join(paths->data, "layers"), *etc = NULL;
    const char *home = getenv("HOME");
    CLEANUP(user_free_p) struct user me = {0};
    struct host_user u = { .name = p->user, .uid = p->uid, .gid = p->gid, .home = p->home,
                           .shell = access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh",
                           .root_construction = p->uid == 0 };
    AUTOSTRV struct strv env = {0};
    size_t first;
    int rc;

    if ((rc = fs_mkdirs(layers, 0700, e)) < 0 || (rc = host_etc(layers, &u, &etc, e)) < 0 ||
        (rc = host_etc_hold(etc, &holds->etc_fd, e)) < 0)
        return rc;
    if ((rc = host_system_mounts(p->home, p->uid == 0, &p->mounts, e)) < 0)
        return rc;
    plan_mounts_add(&p->mounts, MOUNT_BIND, weakened() & WEAK_ETC ? "/etc" : etc, "/etc", true);
    if (p->uid == 0) {
        /* user 0 may install: overlays over the system, so that writes go to the sandbox */
        p->root_writable = true;
        for (size_t i = 0; i < p->mounts.n; i++)
            if (p->mounts.v[i].kind == MOUNT_BIND && strcmp(p->mounts.v[i].dst, "/opt") == 0) {
                /* third parties' directory: files that only root may read stay closed to user 0 */
                p->mounts.v[i].plain_ids = true;
            } else if (p->mounts.v[i].kind == MOUNT_BIND && fs_is_dir(p->mounts.v[i].src)) {
                p->mounts.v[i].overlay = true;
                p->mounts.v[i].ro = false;
            }
    }
    for (char **v = environ; *v; v++)
        strv_add(&env, *v);
    if ((!home || home[0] != '/') && user_by_uid(geteuid(), &me))
        home = me.home;
    first = p->mounts.n;
    struct host_tools_in in = { .env = &env, .home = home, .inner_home = p->home, .project = p->project };
    if ((rc = host_tools(&in, &p->mounts, &p->env, e)) < 0)
        return rc;
    for (size_t i = first; i < p->mounts.n; i++)
        p->mounts.v[i].ro = p->mounts.v[i].kind == MOUNT_BIND;
    if ((rc = host_hide_submounts(&p->mounts, e)) < 0)
        return rc;
    for (size_t i = 0; weakened() & WEAK_ENV && i < env.n; i++)
        strv_add(&p->env, env.v[i]);
    return 0;
}

static int store_image_plan(const char *name, const struct paths *paths, struct plan *p, struct plan_holds *holds,
                            struct err **e)
{
    static const char *const places[] = { "/tmp", "/run", "/var/tmp" };
    int rc = store_resolve(paths->data, name, &holds->image, e);

    if (rc < 0)
        return rc;
    for (size_t i = 0; i < holds->image.layer_dirs.n; i++)
        strv_add(&p->image_layers, holds->image.layer_dirs.v[i]);
    p->root_writable = true;
    for (size_t i = 0; i < holds->image.env.n; i++)
        strv_add(&p->env, holds->image.env.v[i]);
    if (!strv_getenv(&p->env, "PATH"))
        strv_setenv(&p->env, "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        plan_mounts_add(&p->mounts, MOUNT_TMPFS, NULL, places[i], false);
    return 0;
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
            return err_new(e, ERR_INVALID, "--env-file '%s': entry %zu has no name before '='", file, line);
        if (*l && *l != '#')
            strv_add(ret, l);
    }
    return 0;
}

/* Variables that were asked for, as NAME=VALUE; a bare NAME takes the host's value, if it has one. */
static int take_env(const struct options *o, struct strv *ret, struct err **e)
{
    AUTOSTRV struct strv all = {0};
    int rc;

    for (size_t i = 0; i < o->env_files.n; i++)
        if ((rc = read_env_file(o->env_files.v[i], &all, e)) < 0)
            return rc;
    for (size_t i = 0; i < o->env.n; i++)
        strv_add(&all, o->env.v[i]);
    for (size_t i = 0; i < all.n; i++) {
        if (!*all.v[i] || *all.v[i] == '=')
            return err_new(e, ERR_INVALID, "-e '%s': write it as NAME=VALUE, or NAME to pass the host's", all.v[i]);
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

static int take_cwd(const struct options *o, bool host, const char *cwd, struct plan *p, struct err **e)
{
    const char *top = host ? p->project : "/workspace";
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

int plan_make(const struct options *o, const struct paths *paths, struct plan **ret,
              struct plan_holds *ret_holds, struct err **e)
{
    CLEANUP(plan_free_p) struct plan *p = plan_new();
    CLEANUP(plan_holds_free_p) struct plan_holds holds = { .etc_fd = -1 };
    CLEANUP(plan_mounts_free_p) struct plan_mounts volumes = {0};
    AUTOSTRV struct strv env = {0};
    bool host = !o->image || strcmp(o->image, "host") == 0;
    char cwd[PATH_MAX];
    int rc;

    if (!getcwd(cwd, sizeof cwd))
        return err_sys(e, "the current directory");
    p->image = str_dup(host ? "host" : o->image);
    if ((rc = take_limits(o, p, e)) < 0 || (rc = take_words(o, p, e)) < 0 ||
        (rc = take_project(o, paths, cwd, p, e)) < 0)
        return rc;
    if (!host && (rc = store_image_plan(o->image, paths, p, &holds, e)) < 0)
        return rc;
    if ((rc = take_user(o, host, host ? NULL : holds.image.user, p, e)) < 0)
        return rc;
    for (size_t i = 0; i < o->volumes.n; i++)
        if ((rc = take_volume(o->volumes.v[i], paths, &volumes, e)) < 0)
            return rc;
    if ((rc = take_env(o, &env, e)) < 0 || (rc = take_cwd(o, host, cwd, p, e)) < 0)
        return rc;
    /* all words are judged; from here on the store is touched */
    if ((rc = paths_make(paths, e)) < 0)
        return rc;
    if (host && (rc = host_image(paths, p, &holds, e)) < 0)
        return rc;
    if (!host)
        plan_mounts_add(&p->mounts, MOUNT_TMPFS, NULL, p->home, false);
    for (size_t i = 0; i < volumes.n; i++) {
        make_room(p, volumes.v[i].dst);
        plan_mounts_add(&p->mounts, MOUNT_BIND, volumes.v[i].src, volumes.v[i].dst, volumes.v[i].ro);
        p->mounts.v[p->mounts.n - 1].user = true;
    }
    if ((rc = judge_sockets(p, e)) < 0)
        return rc;
    set_env(p, &env);
    if (!p->argv.n && !host) {
        for (size_t i = 0; i < holds.image.entrypoint.n; i++)
            strv_add(&p->argv, holds.image.entrypoint.v[i]);
        for (size_t i = 0; i < holds.image.cmd.n; i++)
            strv_add(&p->argv, holds.image.cmd.v[i]);
    }
    if (!p->argv.n)
        return err_new(e, ERR_USAGE, "no command given; like: petri run -- make test");
    *ret = TAKE_PTR(p);
    *ret_holds = holds;
    holds = (struct plan_holds){ .etc_fd = -1 };
    return 0;
}
