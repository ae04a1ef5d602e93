#include "base/paths.h"

#include <fcntl.h>
#include <string.h>

#include "base/fs.h"
#include "base/user.h"

/* $HOME may be unset (env -i, a service); the account's own then. */
static char *home_dir(void)
{
    CLEANUP(user_free_p) struct user u = { 0 };
    const char *h = getenv("HOME");
    if (h && h[0] == '/')
        return str_dup(h);
    return user_by_uid(geteuid(), &u) ? TAKE_PTR(u.home) : NULL;
}

static char *below(const char *var, const char *home, const char *fallback)
{
    const char *v = getenv(var);
    if (v && v[0] == '/')
        return path_join(v, "petri");
    if (!home)
        return NULL;
    AUTOFREE char *dir = path_join(home, fallback);
    return path_join(dir, "petri");
}

int paths_find(struct paths *ret, struct err **e)
{
    struct paths p = { 0 };
    const char *own = getenv("PETRI_HOME");
    AUTOFREE char *home = home_dir();

    if (own && *own) {
        if (own[0] != '/')
            return err_new(e, ERR_INVALID, "PETRI_HOME is '%s': it must be an absolute path", own);
        p.data = str_dup(own);
        p.run = path_join(own, "run");
    } else if (geteuid() == 0) {
        p.data = str_dup("/var/lib/petri");
        p.run = str_dup("/run/petri");
    } else {
        const char *xdg = getenv("XDG_RUNTIME_DIR");
        p.data = below("XDG_DATA_HOME", home, ".local/share");
        if (!p.data)
            p.data = str_printf("/var/tmp/petri-%u", geteuid());
        p.run = xdg && xdg[0] == '/' && access(xdg, W_OK) == 0
                    ? path_join(xdg, "petri")
                    : str_printf("/tmp/petri-%u", geteuid());
    }
    *ret = p;
    return 0;
}

int paths_make(const struct paths *p, struct err **e)
{
    int rc = fs_private_dir(p->data, e);
    return rc < 0 ? rc : fs_private_dir(p->run, e);
}

int paths_open(struct paths *ret, struct err **e)
{
    struct paths p = { 0 };
    int rc = paths_find(&p, e);
    if (rc == 0)
        rc = paths_make(&p, e);
    if (rc < 0) {
        paths_free_p(&p);
        return rc;
    }
    *ret = p;
    return 0;
}

void paths_free_p(struct paths *p)
{
    free(p->data);
    free(p->run);
    *p = (struct paths){ 0 };
}

char *paths_helper(const char *name, struct err **e)
{
    AUTOFREE char *self = fs_readlink(AT_FDCWD, "/proc/self/exe");
    AUTOFREE char *dir = NULL, *beside = NULL, *installed = NULL;

    if (!self) {
        err_sys(e, "find petri's own directory");
        return NULL;
    }
    *strrchr(self, '/') = '\0';
    beside = path_join(self, name);
    if (access(beside, X_OK) == 0)
        return TAKE_PTR(beside);
    dir = path_join(self, "../libexec/petri");
    installed = path_join(dir, name);
    if (access(installed, X_OK) == 0) {
        char *real = fs_realpath(installed);
        return real ? real : TAKE_PTR(installed);
    }
    err_new(e, ERR_NOT_FOUND, "%s is missing beside petri and in %s; install petri again", name,
            dir);
    return NULL;
}
