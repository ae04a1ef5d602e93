#include "image/host/system.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"

/* In front of /usr: links on a merged system, directories on an older one. */
static const char *const front[] = { "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32" };
static const char *const trees[] = { "/usr", "/opt" };
/* Read by dpkg -l and apt-cache. */
static const char *const databases[] = { "/var/lib/dpkg", "/var/lib/apt" };

static const char *const empty_dirs[] = { "/home",    "/media",     "/mnt",     "/root",     "/srv",
                                          "/var/lib", "/var/cache", "/var/log", "/var/spool" };
/* What package scripts expect to be there. */
static const char *const install_dirs[] = {
    "/var/cache/apt/archives/partial",
    "/var/cache/debconf",
    "/var/cache/ldconfig",
    "/var/cache/man",
    "/var/lib/misc",
    "/var/lib/pam",
    "/var/lib/systemd",
    "/var/lib/ucf",
    "/var/local",
    "/var/log/apt",
    "/var/mail",
    "/var/opt",
};
static const char *const writable[] = { "/run", "/tmp", "/var/tmp" };

/* Secrets by habit: readable for everybody, though they have no business in a sandbox. */
static const struct {
    const char *dir;
    const char *names[10];
} secrets[] = {
    { "/usr/etc", { "npmrc", "pip.conf" } },
    { "/usr/local", { ".env", ".netrc", ".npmrc", "lib/.npmrc", "share/.npmrc", "ssl/private" } },
    { "/usr/local/cargo", { "credentials", "credentials.toml" } },
    { "/usr/local/etc",
      { "npmrc", "pip.conf", "wgetrc", "ssh", "letsencrypt", "openvpn", "wireguard",
        "ipsec.secrets", "ssl/private" } },
    { "/opt", { ".env", ".netrc", ".npmrc" } },
};
/* The same in each directory of /opt. */
static const char *const opt_secrets[] = { ".env", ".netrc", ".npmrc", ".ssh" };
#define OPT_MAX 64

bool host_system_path(const char *path)
{
    for (size_t i = 0; i < ARRAY_LEN(trees); i++)
        if (path_below(path, trees[i]))
            return true;
    for (size_t i = 0; i < ARRAY_LEN(front); i++)
        if (path_below(path, front[i]))
            return true;
    return false;
}

/* Hides `name` in the directory fd (which is `dir`) if it is there; a link's target, if that
 * comes in too. */
static void hide(const char *root, int fd, const char *dir, const char *name,
                 struct plan_mounts *ret)
{
    struct stat st;

    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    AUTOFREE char *path = path_join(dir, name);
    if (!S_ISLNK(st.st_mode)) {
        plan_mounts_add(ret, MOUNT_EMPTY, NULL, path, true);
        return;
    }
    AUTOFREE char *full = str_printf("%s%s", root, path);
    AUTOFREE char *real = fs_realpath(full);
    size_t n = strlen(root);
    if (real && strncmp(real, root, n) == 0 && host_system_path(real + n))
        plan_mounts_add(ret, MOUNT_EMPTY, NULL, real + n, true);
}

static void hide_secrets(const char *root, struct plan_mounts *ret)
{
    for (size_t i = 0; i < ARRAY_LEN(secrets); i++) {
        AUTOFREE char *full = str_printf("%s%s", root, secrets[i].dir);
        AUTOCLOSE int fd = open(full, O_PATH | O_DIRECTORY | O_CLOEXEC);
        for (size_t k = 0; fd >= 0 && k < ARRAY_LEN(secrets[i].names) && secrets[i].names[k]; k++)
            hide(root, fd, secrets[i].dir, secrets[i].names[k], ret);
    }
}

/* Directories of /opt are vendors' and sites' own: the usual names in each, no deeper. */
static void hide_in_opt(const char *root, struct plan_mounts *ret)
{
    AUTOFREE char *opt = str_printf("%s/opt", root);
    DIR *d = opendir(opt);
    struct dirent *de;

    for (int n = 0; d && n < OPT_MAX && (de = readdir(d));) {
        if (de->d_name[0] == '.' || (de->d_type != DT_DIR && de->d_type != DT_UNKNOWN))
            continue;
        for (size_t i = 0; i < ARRAY_LEN(opt_secrets); i++) {
            AUTOFREE char *name = str_printf("%s/%s", de->d_name, opt_secrets[i]);
            hide(root, dirfd(d), "/opt", name, ret);
        }
        n++;
    }
    if (d)
        closedir(d);
}

/* A directory as a bind, a link as a link; what leads outside stays out. */
static int add_tree(const char *root, const char *path, struct plan_mounts *ret)
{
    AUTOFREE char *full = str_printf("%s%s", root, path);
    AUTOFREE char *text = fs_readlink(AT_FDCWD, full);
    struct stat st;

    if (!text) {
        /* EINVAL: there, and no link */
        if (errno != EINVAL || lstat(full, &st) < 0 || !S_ISDIR(st.st_mode))
            return -1;
        plan_mounts_add(ret, MOUNT_BIND, full, path, true);
        return 0;
    }
    const char *t = text;
    while (*t == '/')
        t++;
    if (!(str_starts(t, "usr/") || strcmp(t, "usr") == 0) || strstr(t, ".."))
        return -1;
    plan_mounts_add(ret, MOUNT_LINK, text, path, true);
    return 0;
}

/* Some system accounts have their home in /bin or /dev. */
static bool home_ok(const char *home)
{
    static const char *const taken[] = { "/dev", "/etc", "/proc", "/sys" };
    for (size_t i = 0; home && i < ARRAY_LEN(taken); i++)
        if (path_below(home, taken[i]))
            return false;
    return home && home[0] == '/' && home[1] && !host_system_path(home);
}

int host_system_mounts_at(const char *root, const char *home, bool root_construction,
                          struct plan_mounts *ret, struct err **e)
{
    if (add_tree(root, "/usr", ret) < 0)
        return err_new(e, ERR_UNSUPPORTED,
                       "the image 'host' needs a directory /usr, and there is none; use --image");
    for (size_t i = 0; i < ARRAY_LEN(front); i++)
        (void)add_tree(root, front[i], ret);
    for (size_t i = 0; i < ARRAY_LEN(empty_dirs); i++)
        plan_mounts_add(ret, MOUNT_DIR, NULL, empty_dirs[i], true);
    for (size_t i = 0; root_construction && i < ARRAY_LEN(install_dirs); i++)
        plan_mounts_add(ret, MOUNT_DIR, NULL, install_dirs[i], true);
    if (add_tree(root, "/opt", ret) < 0)
        plan_mounts_add(ret, MOUNT_DIR, NULL, "/opt", true);
    for (size_t i = 0; i < ARRAY_LEN(databases); i++) {
        AUTOFREE char *full = str_printf("%s%s", root, databases[i]);
        struct stat st;
        if (lstat(full, &st) == 0 && S_ISDIR(st.st_mode))
            plan_mounts_add(ret, MOUNT_BIND, full, databases[i], true);
    }
    plan_mounts_add(ret, MOUNT_LINK, "/run", "/var/run", true);
    plan_mounts_add(ret, MOUNT_LINK, "/run/lock", "/var/lock", true);
    hide_secrets(root, ret);
    hide_in_opt(root, ret);
    for (size_t i = 0; i < ARRAY_LEN(writable); i++)
        plan_mounts_add(ret, MOUNT_TMPFS, NULL, writable[i], false);
    if (home_ok(home))
        plan_mounts_add(ret, MOUNT_TMPFS, NULL, home, false);
    return 0;
}

int host_system_mounts(const char *home, bool root_construction, struct plan_mounts *ret,
                       struct err **e)
{
    return host_system_mounts_at("", home, root_construction, ret, e);
}
