/* Tool chains of a made-up home: what comes in, what never does, and the environment; then the
 * system directories and the sockets of a made-up machine. */
#include "image/host/tools.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "image/host/system.h"
#include "tests/unit/check.h"

static char base[] = "/tmp/petri-host-tools-XXXXXX";
static char *home, *project;

static char *at(const char *dir, const char *path)
{
    static char buf[8][PATH_MAX];
    static int i;
    i = (i + 1) % 8;
    snprintf(buf[i], PATH_MAX, "%s/%s", dir, path);
    return buf[i];
}

static void put(const char *dir, const char *path, const char *text)
{
    AUTOFREE char *full = str_dup(at(dir, path));
    *strrchr(full, '/') = '\0';
    fs_mkdirs(full, 0755, NULL);
    full[strlen(full)] = '/';
    int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || fs_write_all(fd, text, strlen(text)) < 0) {
        perror(full);
        exit(1);
    }
    close(fd);
}

static void linkto(const char *text, const char *dir, const char *path)
{
    if (symlink(text, at(dir, path)) < 0) {
        perror(path);
        exit(1);
    }
}

static const struct plan_mount *find(const struct plan_mounts *m, enum plan_mount_kind kind,
                                     const char *dst)
{
    for (size_t i = 0; i < m->n; i++)
        if (m->v[i].kind == kind && strcmp(m->v[i].dst, dst) == 0)
            return &m->v[i];
    return NULL;
}

static void make_home(void)
{
    put(home, ".ssh/id_rsa", "CANARY");
    put(home, ".aws/credentials", "CANARY");
    put(home, ".pyenv/shims/python3", "x");
    put(home, ".pyenv/versions/3.12/bin/python3", "x");
    put(home, ".pyenv/versions/3.12/pip.conf", "CANARY");
    put(home, ".cargo/bin/cargo", "x");
    put(home, ".cargo/credentials.toml", "CANARY");
    put(home, ".cargo/config.toml", "CANARY");
    put(home, ".rustup/toolchains/x", "x");
    put(home, ".nvm/nvm.sh", "x");
    put(home, ".nvm/versions/node/v20/bin/node", "x");
    put(home, ".nvm/versions/node/v20/etc/npmrc", "CANARY");
    put(home, ".nvm/.npmrc", "CANARY");
    put(home, "go/bin/gopls", "x");
    put(home, "go/src/private/x.go", "CANARY");
    put(home, "go/pkg/mod/m/x.go", "x");
    put(home, ".local/share/uv/python/cp312/bin/python3.12", "x");
    put(home, ".local/share/uv/tools/ruff/bin/ruff", "x");
    put(home, ".local/share/uv/credentials/credentials.toml", "CANARY");
    put(home, ".local/share/pipx/venvs/black/bin/black", "x");
    put(home, ".local/share/fnm/node-versions/v1/installation/bin/node", "x");
    put(home, ".local/share/keyrings/login.keyring", "CANARY");
    put(home, ".local/bin/script", "x");
    linkto(at(home, ".local/share/uv/tools/ruff/bin/ruff"), home, ".local/bin/ruff");
    linkto("../share/pipx/venvs/black/bin/black", home, ".local/bin/black");
    linkto("script", home, ".local/bin/alias");
    linkto(at(home, ".ssh/id_rsa"), home, ".local/bin/bad1");
    linkto("../../.aws/credentials", home, ".local/bin/bad2");
    linkto(at(base, "other/secret"), home, ".local/bin/bad3");
    linkto("/usr/bin/env", home, ".local/bin/sys");
    put(home, "bin/mine", "x");
    linkto(at(home, ".local/share/uv/tools/ruff/bin/ruff"), home, "bin/r");
    put(home, "holds/.aws/x", "CANARY");
    put(home, "venvs/v/pyvenv.cfg", "home = /nowhere\n");
    put(home, "venvs/v/bin/python", "x");
    put(home, "jdk/release", "x");
    put(home, "jdk/bin/java", "x");
    linkto(".ssh", home, "evil");
    linkto(at(base, "other"), home, ".volta"); /* a known name that leads to someone else */
    linkto("/", home, ".deno");
    linkto(".ssh", home, ".fnm");
    put(base, "other/bin/x", "CANARY");
    put(base, "other/secret", "CANARY");
    fs_mkdirs(at(base, "run"), 0755, NULL);
    linkto(at(home, ".local/share/fnm/node-versions/v1/installation"), base, "run/fnm");
    put(project, ".venv/bin/pytest", "x");
    put(project, ".venv/pyvenv.cfg", "include-system-site-packages = false\n");
    put(project, "tools/x", "x");
}

struct result {
    struct plan_mounts m;
    struct strv env;
};

static void result_free_p(struct result *r)
{
    plan_mounts_free_p(&r->m);
    strv_free_p(&r->env);
}

/* Runs the search; `path` has entries with H, B, P in front for home, base and project. */
static void search(struct result *r, const char *inner, const char *path, const char *const *vars)
{
    AUTOSTRV struct strv env = { 0 };
    AUTOSTR struct str p = STR_INIT;

    for (const char *c = path; *c; c++) {
        bool first = c == path || c[-1] == ':';
        const char *d = *c == 'H' ? home : *c == 'B' ? base : *c == 'P' ? project : NULL;
        if (first && d)
            str_add(&p, d);
        else
            str_addc(&p, *c);
    }
    strv_addf(&env, "PATH=%s", p.p ? p.p : "");
    for (; vars && *vars; vars++)
        strv_add(&env, *vars);
    struct host_tools_in in = { &env, home, inner, project };
    CHECK(host_tools(&in, &r->m, &r->env, NULL) == 0, "host_tools");
    for (size_t i = 0; i < r->m.n; i++) {
        const struct plan_mount *b = &r->m.v[i];
        if (b->kind != MOUNT_BIND)
            continue;
        CHECK(b->ro, "%s is writable", b->dst);
        CHECK(strcmp(b->src, home) != 0 && !path_below(home, b->src), "the home came in");
        CHECK(path_below(b->src, home), "%s is not of this home", b->src);
        static const char *const never[] = { ".ssh",
                                             ".aws",
                                             ".cargo/credentials.toml",
                                             ".cargo/config.toml",
                                             ".local/share/keyrings/x",
                                             "go/src/private",
                                             ".local/share/uv/credentials" };
        for (size_t k = 0; k < ARRAY_LEN(never); k++)
            CHECK(!path_below(at(home, never[k]), b->src), "%s lets %s in", b->src, never[k]);
    }
}

static void check_path(const char *in, const char *want)
{
    CLEANUP(result_free_p) struct result r = { 0 };
    AUTOSTR struct str w = STR_INIT;
    search(&r, home, in, NULL);
    for (const char *c = want; *c; c++) {
        bool first = c == want || c[-1] == ':';
        const char *d = *c == 'H' ? home : *c == 'B' ? base : *c == 'P' ? project : NULL;
        if (first && d)
            str_add(&w, d);
        else
            str_addc(&w, *c);
    }
    CHECK_STR(strv_getenv(&r.env, "PATH"), w.p);
}

static void paths(void)
{
#define TAIL ":H/.local/bin"
    static const struct {
        const char *in, *want;
    } t[] = {
        { "/usr/bin:/bin", "/usr/bin:/bin" TAIL },
        { "", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" TAIL },
        { "/usr/bin//:/usr/bin:.:bin::/nonexistent:/bin/", "/usr/bin:/bin" TAIL },
        { "H/.pyenv/shims:/usr/bin", "H/.pyenv/shims:/usr/bin" TAIL },
        { "H/.local/bin:/usr/bin", "H/.local/bin:/usr/bin" },
        { "H:H/:H/.:/usr/bin", "/usr/bin" TAIL },
        { "H/.ssh:H/.aws:H/evil:H/.pyenv/../.ssh:H/.fnm:/usr/bin", "/usr/bin" TAIL },
        { "H/.config:H/.local:H/.local/share:H/.cargo:H/.local/share/keyrings:/bin", "/bin" TAIL },
        { "H/holds:/usr/bin", "/usr/bin" TAIL },
        { "B/other/bin:B:/:/etc:/root:/home:/proc/self:/tmp:/usr/bin", "/usr/bin" TAIL },
        { "H/.volta/bin:H/.deno/bin:/usr/bin", "/usr/bin:/bin" TAIL },
        { "B/run/fnm/bin:/bin", "H/.local/share/fnm/node-versions/v1/installation/bin:/bin" TAIL },
        { "P/.venv/bin:P/tools:P/none:/bin", "P/.venv/bin:P/tools:/bin" TAIL },
        { "H/bin:/bin:H/go/bin", "H/bin:/bin:H/go/bin" TAIL },
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        if (i != 10)
            check_path(t[i].in, t[i].want);
    /* .deno is a link to /: the directory behind it is the system's own */
    CLEANUP(result_free_p) struct result r = { 0 };
    search(&r, home, t[10].in, NULL);
    CHECK(!find(&r.m, MOUNT_BIND, at(home, ".volta")), "a link to another home");
    CHECK(!find(&r.m, MOUNT_BIND, at(home, ".deno")), "a link to /");
}

static void places(void)
{
    CLEANUP(result_free_p) struct result r = { 0 };
    AUTOFREE char *go = str_printf("GOPATH=%s/go", home),
                  *cargo = str_printf("CARGO_HOME=%s/.cargo", home);
    const char *vars[] = { "TERM=xterm",
                           "LC_ALL=C",
                           "LCX=no",
                           "LC_TOKEN=CANARY",
                           "AWS_SECRET_ACCESS_KEY=CANARY",
                           "LD_PRELOAD=/x",
                           "PYTHONPATH=/x",
                           go,
                           cargo,
                           "TERMX=1",
                           "TZ=a\nb",
                           "JAVA_HOME=/nonexistent",
                           "GOROOT=/usr",
                           NULL };

    search(&r, home,
           "H/.pyenv/shims:H/.cargo/bin:H/.nvm/versions/node/v20/bin:H/go/bin:"
           "H/.local/bin:H/bin:/usr/bin",
           vars);
    static const char *const in[] = { ".pyenv",
                                      ".cargo/bin",
                                      ".rustup",
                                      ".nvm",
                                      "go/bin",
                                      "go/pkg/mod",
                                      "bin",
                                      ".local/share/uv/python",
                                      ".local/share/uv/tools",
                                      ".local/share/pipx" };
    for (size_t i = 0; i < ARRAY_LEN(in); i++) {
        const struct plan_mount *b = find(&r.m, MOUNT_BIND, at(home, in[i]));
        CHECK(b && strcmp(b->src, b->dst) == 0, "%s is missing", in[i]);
    }
    CHECK(!find(&r.m, MOUNT_BIND, at(home, ".cargo")), ".cargo");
    static const char *const hidden[] = { ".nvm/versions/node/v20/etc/npmrc", ".nvm/.npmrc",
                                          ".pyenv/versions/3.12/pip.conf" };
    for (size_t i = 0; i < ARRAY_LEN(hidden); i++)
        CHECK(find(&r.m, MOUNT_EMPTY, at(home, hidden[i])), "%s is not hidden", hidden[i]);
    /* ~/.local/bin stays writable; its entries are links */
    CHECK(find(&r.m, MOUNT_TMPFS, at(home, ".local/bin")), ".local/bin");
    CHECK(!find(&r.m, MOUNT_BIND, at(home, ".local/bin")), ".local/bin is read-only");
    static const char *const links[] = { "ruff", "black", "alias", "script", "sys" };
    static const char *const none[] = { "bad1", "bad2", "bad3" };
    for (size_t i = 0; i < ARRAY_LEN(links); i++) {
        AUTOFREE char *p = str_printf("%s/.local/bin/%s", home, links[i]);
        CHECK(find(&r.m, MOUNT_LINK, p), "%s is missing", links[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(none); i++) {
        AUTOFREE char *p = str_printf("%s/.local/bin/%s", home, none[i]);
        CHECK(!find(&r.m, MOUNT_LINK, p), "%s came in", none[i]);
    }
    CHECK_STR(strv_getenv(&r.env, "TERM"), "xterm");
    CHECK_STR(strv_getenv(&r.env, "LC_ALL"), "C");
    CHECK(!strv_getenv(&r.env, "LC_TOKEN"), "what ssh hands on under a made-up name came in");
    CHECK_STR(strv_getenv(&r.env, "PYENV_ROOT"), at(home, ".pyenv"));
    CHECK_STR(strv_getenv(&r.env, "RUSTUP_HOME"), at(home, ".rustup"));
    CHECK_STR(strv_getenv(&r.env, "NVM_DIR"), at(home, ".nvm"));
    CHECK_STR(strv_getenv(&r.env, "GOPATH"), at(home, "go"));
    CHECK_STR(strv_getenv(&r.env, "GOROOT"), "/usr");
    static const char *const never[] = { "AWS_SECRET_ACCESS_KEY",
                                         "LD_PRELOAD",
                                         "PYTHONPATH",
                                         "CARGO_HOME",
                                         "TERMX",
                                         "LCX",
                                         "TZ",
                                         "JAVA_HOME",
                                         "HOME" };
    for (size_t i = 0; i < ARRAY_LEN(never); i++)
        CHECK(!strv_getenv(&r.env, never[i]), "%s was passed", never[i]);
}

static void named(void)
{
    CLEANUP(result_free_p) struct result r = { 0 }, s = { 0 }, v = { 0 };
    AUTOFREE char *venv = str_printf("VIRTUAL_ENV=%s/venvs/v", home);
    AUTOFREE char *java = str_printf("JAVA_HOME=%s/jdk/", home);
    AUTOFREE char *bad = str_printf("RUSTUP_HOME=%s", home);
    AUTOFREE char *pv = str_printf("VIRTUAL_ENV=%s/.venv", project);
    AUTOFREE char *cfg =
        str_printf("version = 3.12\nhome = %s/.local/share/uv/python/cp312/bin\n", home);
    AUTOFREE char *evil = str_printf("home = %s/.ssh\n", home);

    search(&r, home, "H/venvs/v/bin:/bin", (const char *[]){ venv, java, bad, NULL });
    CHECK(find(&r.m, MOUNT_BIND, at(home, "venvs/v")), "the virtual environment");
    CHECK(find(&r.m, MOUNT_BIND, at(home, "jdk")), "JAVA_HOME");
    CHECK_STR(strv_getenv(&r.env, "VIRTUAL_ENV"), at(home, "venvs/v"));
    CHECK_STR(strv_getenv(&r.env, "JAVA_HOME"), at(home, "jdk"));
    CHECK(!strv_getenv(&r.env, "RUSTUP_HOME"), "RUSTUP_HOME");

    put(project, ".venv/pyvenv.cfg", cfg);
    search(&s, home, "/bin", NULL);
    CHECK(find(&s.m, MOUNT_BIND, at(home, ".local/share/uv/python")), "the venv's interpreter");
    put(project, ".venv/pyvenv.cfg", evil);
    search(&v, at(base, "elsewhere"), "P/.venv/bin:H/.local/bin:/bin",
           (const char *[]){ pv, NULL });
    CHECK(!find(&v.m, MOUNT_BIND, at(home, ".ssh")), ".ssh by pyvenv.cfg");
    CHECK_STR(strv_getenv(&v.env, "VIRTUAL_ENV"), at(project, ".venv"));
    CHECK(find(&v.m, MOUNT_BIND, at(home, ".local/bin")), "another HOME inside: a plain bind");
}

static void linked_home(void)
{
    CLEANUP(result_free_p) struct result r = { 0 };
    AUTOFREE char *link = str_printf("%s/h", base), *path = NULL, *dst = NULL;
    AUTOSTRV struct strv env = { 0 };

    linkto(home, base, "h");
    path = str_printf("PATH=%s/.pyenv/shims:%s/.ssh:/bin", link, link);
    strv_add(&env, path);
    struct host_tools_in in = { &env, link, link, NULL };
    CHECK(host_tools(&in, &r.m, &r.env, NULL) == 0, "host_tools");
    dst = str_printf("%s/.pyenv", link);
    const struct plan_mount *b = find(&r.m, MOUNT_BIND, dst);
    CHECK(b && strcmp(b->src, at(home, ".pyenv")) == 0, "own path");
    CHECK(find(&r.m, MOUNT_BIND, at(home, ".pyenv")), "real path");
    CHECK(!strstr(strv_getenv(&r.env, "PATH"), ".ssh"), ".ssh");
}

static void odd_homes(void)
{
    static const char *const homes[] = { "/",   "", "relative", "/home", "/usr", "/nonexistent",
                                         "/etc" };
    for (size_t i = 0; i < ARRAY_LEN(homes); i++) {
        CLEANUP(result_free_p) struct result r = { 0 };
        AUTOSTRV struct strv env = { 0 };
        strv_add(&env, "PATH=/etc/ssl:/var/lib:/root/.pyenv/bin:/usr/bin:/home/x/bin");
        struct host_tools_in in = { &env, homes[i], "/home/user", NULL };
        CHECK(host_tools(&in, &r.m, &r.env, NULL) == 0, "%s", homes[i]);
        CHECK(r.m.n == 0, "home '%s' brings %zu things", homes[i], r.m.n);
        CHECK_STR(strv_getenv(&r.env, "PATH"), "/usr/bin:/home/user/.local/bin");
    }
}

static void system_dirs(void)
{
    AUTOFREE char *root = str_printf("%s/sys", base);
    CLEANUP(plan_mounts_free_p) struct plan_mounts m = { 0 };
    AUTOSTRV struct strv o = { 0 }, all = { 0 };

    put(root, "usr/bin/x", "x");
    put(root, "usr/etc/npmrc", "CANARY");
    put(root, "usr/local/etc/real", "CANARY");
    linkto("real", root, "usr/local/etc/npmrc");
    linkto("/home/x/npmrc", root, "usr/etc/pip.conf");
    put(root, "opt/app/.env", "CANARY");
    put(root, "opt/app/bin/x", "x");
    put(root, "lib/x", "x"); /* not merged */
    put(root, "var/lib/dpkg/status", "x");
    linkto("usr/bin", root, "bin");
    linkto("/home/x", root, "sbin");
    linkto("/home/x", root, "lib64");
    CHECK(host_system_mounts_at(root, "/home/me", false, &m, NULL) == 0, "mounts");
    CHECK(find(&m, MOUNT_BIND, "/usr") && find(&m, MOUNT_BIND, "/lib"), "trees");
    CHECK(find(&m, MOUNT_BIND, "/var/lib/dpkg") && !find(&m, MOUNT_BIND, "/var/lib/apt"), "dpkg");
    CHECK(find(&m, MOUNT_LINK, "/bin") && strcmp(find(&m, MOUNT_LINK, "/bin")->src, "usr/bin") == 0,
          "/bin");
    CHECK(!find(&m, MOUNT_LINK, "/sbin") && !find(&m, MOUNT_LINK, "/lib64"), "links that lead out");
    CHECK(find(&m, MOUNT_EMPTY, "/usr/etc/npmrc") && find(&m, MOUNT_EMPTY, "/opt/app/.env"),
          "hidden");
    CHECK(find(&m, MOUNT_EMPTY, "/usr/local/etc/real"), "what a link to a secret leads to");
    CHECK(find(&m, MOUNT_TMPFS, "/tmp") && find(&m, MOUNT_TMPFS, "/home/me"), "writable");
    static const char *const odd[] = { "/", "/dev", "/bin", "/proc/self", "/usr/games", "x" };
    for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
        CLEANUP(plan_mounts_free_p) struct plan_mounts h = { 0 };
        CHECK(host_system_mounts_at(root, odd[i], true, &h, NULL) == 0, "%s", odd[i]);
        CHECK(!find(&h, MOUNT_TMPFS, odd[i]), "home %s", odd[i]);
    }
    for (size_t i = 0; i < m.n; i++)
        CHECK(m.v[i].kind != MOUNT_BIND || m.v[i].ro, "%s is writable", m.v[i].dst);

    AUTOFREE char *line =
        str_printf("Num       RefCount Protocol Flags    Type St Inode Path\n"
                   "0000000000000000: 00000003 00000000 00000000 0001 03  1056\n"
                   "0000000000000000: 00000002 00000000 00010000 0001 01  1 /run/x.sock\n"
                   "0000000000000000: 00000002 00000000 00010000 0001 01  1 @/usr/abstract\n"
                   "0000000000000000: 00000002 00000000 00010000 0001 01  1 /tmp/other\n"
                   "0000000000000000: 00000002 00000000 00010000 0001 01  1 %s/opt/app/a b.sock\n",
                   root);
    put(base, "unix", line);
    CHECK(host_socket_trees_in(at(base, "unix"), &m, &o, NULL) == 0, "sockets");
    CHECK(o.n == 1 && strcmp(o.v[0], "/opt") == 0, "%zu trees", o.n);
    CHECK(host_socket_trees_in(at(base, "none"), &m, &all, NULL) == 0, "no table");
    CHECK(strv_has(&all, "/usr") && strv_has(&all, "/opt"), "no table: all of them");
}

static void submounts(void)
{
    CLEANUP(plan_mounts_free_p) struct plan_mounts m = { 0 };
    static const char table[] =
        "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
        "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        "30 27 254:1 / /usr/local rw,relatime - ext4 /dev/vdb rw\n"
        "31 27 0:21 / /opt/chroot/proc rw - proc proc rw\n"
        "32 27 0:22 / /opt/a\\040b/sys rw - sysfs sysfs rw\n"
        "33 27 254:0 /home/x/data /opt/data rw - ext4 /dev/vda rw\n"
        "34 27 254:0 /usr/share/x /opt/again rw - ext4 /dev/vda rw\n"
        "35 27 0:40 / /opt/ram rw - tmpfs tmpfs rw\n"
        "36 27 0:41 / /opt/share rw - fuse.sshfs u@h:/ rw\n"
        "37 27 0:42 / /optional rw - tmpfs tmpfs rw\n"
        "38 27 0:43 / /home/u/.pyenv/versions rw master:3 propagate_from:2 - tmpfs tmpfs rw\n"
        "39 27 254:2 / /srv rw - ext4 /dev/vdc rw\n"
        "40 27 254:2 /k /usr/share/k rw - ext4 /dev/vdc rw\n"
        "broken\n";
    static const char *const hidden[] = { "/opt/chroot/proc", "/opt/a b/sys",
                                          "/opt/data",        "/opt/ram",
                                          "/opt/share",       "/home/me/.pyenv/versions",
                                          "/usr/share/k" };

    put(base, "mountinfo", table);
    plan_mounts_add(&m, MOUNT_BIND, "/usr", "/usr", true);
    plan_mounts_add(&m, MOUNT_BIND, "/opt", "/opt", true);
    plan_mounts_add(&m, MOUNT_BIND, "/home/u/.pyenv", "/home/me/.pyenv", true);
    CHECK(host_hide_submounts_in(at(base, "mountinfo"), &m, NULL) == 0, "mountinfo");
    for (size_t i = 0; i < ARRAY_LEN(hidden); i++)
        CHECK(find(&m, MOUNT_EMPTY, hidden[i]), "%s is not hidden", hidden[i]);
    CHECK(m.n == 3 + ARRAY_LEN(hidden), "%zu mounts", m.n);
    CHECK(host_hide_submounts_in(at(base, "none"), &m, NULL) < 0, "no table");
}

int main(void)
{
    umask(022);
    if (!mkdtemp(base))
        return 1;
    home = str_dup(at(base, "home/me"));
    project = str_dup(at(home, "work/p"));
    make_home();
    paths();
    places();
    named();
    linked_home();
    odd_homes();
    system_dirs();
    submounts();
    fs_remove_tree(AT_FDCWD, base, NULL);
    free(home);
    free(project);
    return check_done();
}
