/* The copy of /etc: what comes in from a made-up, hostile one, what never does, and when it is
 * made again. Every secret holds the word CANARY; no byte of the copy may. */
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#include "base/fs.h"
#include "image/host/etc_priv.h"
#include "tests/unit/check.h"

static char base[] = "/tmp/petri-host-etc-XXXXXX";
static char root[64], layers[64];

#define OK(c) CHECK(c, "as root? %d", geteuid() == 0)

static char *at(const char *dir, const char *path)
{
    static char buf[4][PATH_MAX];
    static int i;
    i = (i + 1) % 4;
    snprintf(buf[i], PATH_MAX, "%s/%s", dir, path);
    return buf[i];
}

/* Writes ROOT/PATH with a mode; makes the directories in front of it. */
static void put(const char *path, mode_t mode, const char *text)
{
    AUTOFREE char *full = str_dup(at(root, path));
    char *slash = strrchr(full, '/');
    *slash = '\0';
    fs_mkdirs(full, 0755, NULL);
    *slash = '/';
    unlink(full);
    int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || fs_write_all(fd, text, strlen(text)) < 0 || fchmod(fd, mode) < 0) {
        perror(full);
        exit(1);
    }
    close(fd);
}

static void linkto(const char *text, const char *path)
{
    if (symlink(text, at(root, path)) < 0) {
        perror(path);
        exit(1);
    }
}

static bool has(const char *dir, const char *path)
{
    return fs_exists(at(dir, path));
}

static bool holds(const char *dir, const char *path, const char *what)
{
    AUTOFREE char *text = NULL;
    return fs_read(AT_FDCWD, at(dir, path), 1 << 20, &text, NULL, NULL) == 0 && strstr(text, what);
}

static int canary(const char *path, const struct stat *st, int type, struct FTW *f)
{
    AUTOFREE char *text = NULL;
    size_t n = 0;
    (void)f;
    if (strstr(path, "CANARY") ||
        (type == FTW_SL && (text = fs_readlink(AT_FDCWD, path)) && strstr(text, "CANARY"))) {
        fprintf(stderr, "a secret came in: %s\n", path);
        check_failed++;
    } else if (S_ISREG(st->st_mode)) {
        if (fs_read(AT_FDCWD, path, 64 << 20, &text, &n, NULL) == 0 &&
            memmem(text, n, "CANARY", 6)) {
            fprintf(stderr, "a secret came in: %s\n", path);
            check_failed++;
        }
    } else if (!S_ISDIR(st->st_mode) && !S_ISLNK(st->st_mode)) {
        fprintf(stderr, "neither file, link nor directory: %s\n", path);
        check_failed++;
    }
    return 0;
}

static void hostile_names(void)
{
    put("etc/shadow", 0640, "root:$6$CANARY:1::::::\n");
    put("etc/profile.d/group-only.sh", 0640, "CANARY\n");
    put("etc/profile.d/own-only.sh", 0600, "CANARY\n");
    put("etc/profile.d/closed/in.sh", 0644, "CANARY\n");
    chmod(at(root, "etc/profile.d/closed"), 0750);
    put("etc/environment", 0644, "K=CANARY\n");
    put("etc/unlisted.conf", 0644, "CANARY\n");
    put("etc/npmrc", 0644, "//r/:_authToken=CANARY\n");
    put("etc/krb5.conf", 0644, "CANARY\n");
    put("etc/NetworkManager/x", 0644, "CANARY\n");
    put("etc/ssl/private/k.pem", 0644, "CANARY\n");
    put("etc/ssl/certs/server.key", 0644, "CANARY\n");
    put("etc/ssh/ssh_host_rsa_key", 0644, "CANARY\n");
    put("etc/ssh/ssh_config.d/id_rsa", 0644, "CANARY\n");
    put("etc/apt/auth.conf", 0644, "machine x login y password CANARY\n");
    put("etc/apt/auth.conf.d/90x.conf", 0644, "CANARY\n");
    put("etc/skel/.netrc", 0644, "CANARY\n");
    put("etc/skel/.ssh/known", 0644, "CANARY\n");
    put("etc/profile.d/new\nline.sh", 0644, "CANARY\n");
    put("etc/profile.d/esc\033CANARY.sh", 0644, "x\n");
    mkfifo(at(root, "etc/profile.d/fifo.sh"), 0644);
    chmod(at(root, "etc/profile.d/fifo.sh"), 0644);
    (void)!mknod(at(root, "etc/profile.d/dev.sh"), S_IFCHR | 0666, makedev(1, 5));
    struct sockaddr_un sa = { .sun_family = AF_UNIX };
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(sa.sun_path, sizeof sa.sun_path, "%s", at(root, "etc/profile.d/sock.sh"));
    OK(bind(s, (struct sockaddr *)&sa, sizeof sa) == 0);
    close(s);
    AUTOSTR struct str deep = STR_INIT;
    str_add(&deep, "etc/skel");
    for (int i = 0; i < 20; i++)
        str_add(&deep, "/d");
    str_add(&deep, "/CANARY");
    put(deep.p, 0644, "x");
    put("etc/magic", 0644, "CANARY");
    OK(truncate(at(root, "etc/magic"), 5 << 20) == 0); /* larger than a file may be */
}

static void hostile_links(void)
{
    put("root/secret", 0644, "CANARY\n");
    linkto("/root/CANARY", "etc/profile.d/a.sh");
    linkto("../../root/CANARY", "etc/profile.d/b.sh");
    linkto("../../../../../../root/CANARY", "etc/profile.d/c.sh");
    linkto("/usr/../home/CANARY", "etc/profile.d/d.sh");
    linkto("/run/CANARY", "etc/profile.d/e.sh");
    linkto("/var/lib/CANARY", "etc/profile.d/f.sh");
    linkto("/usrCANARY/x", "etc/profile.d/g.sh");
    linkto("/proc/self/CANARY", "etc/profile.d/h.sh");
    linkto("loop2.sh", "etc/profile.d/loop1.sh");
    linkto("loop1.sh", "etc/profile.d/loop2.sh");
    linkto(".", "etc/profile.d/self");
    linkto("/usr/share/zoneinfo/UTC", "etc/localtime");
    linkto("../usr/lib/os-release", "etc/os-release");
    linkto("/usr/bin/gcc", "etc/alternatives/cc");
    linkto("/root/pam", "etc/vim"); /* a listed name that is a link elsewhere */
}

static void hostile_contents(void)
{
    put("etc/profile.d/token.sh", 0644, "export GITHUB_TOKEN=CANARY12\n");
    put("etc/profile.d/quoted.sh", 0644, "if x; then\n  export DB_PASSWORD=\"CANARY12\"\nfi\n");
    put("etc/profile.d/aws.sh", 0644, "AWS_SECRET_ACCESS_KEY = CANARY12\n");
    put("etc/profile.d/json.sh", 0644, "{\"auth_token\": \"CANARY12\"}\n");
    put("etc/profile.d/header.sh", 0644, "x='Authorization: Basic CANARY12'\n");
    put("etc/profile.d/good.sh", 0755, "export TOKEN=$OTHER PATH=/x # password: ask\n");
    put("etc/pip.conf", 0644,
        "[global]\nindex-url = https://u:CANARY@pypi.example/simple\nt = 1\n");
    put("etc/apt/sources.list.d/a.sources", 0644,
        "Types: deb\nURIs: https://CANARY:CANARY@deb.example/d https://CANARY@b.example/\n");
    put("etc/apt/sources.list.d/b.list", 0644, "deb http://u:CANARY/x@deb.example/d s main\n");
    put("etc/apt/sources.list.d/c.list", 0644, "deb http://deb.example:80/d s main\n");
    put("etc/apt/apt.conf.d/proxy", 0644, "Acquire::http::Proxy \"http://p:CANARY@proxy:3128\";\n");
    put("etc/ssl/certs/both.pem", 0644,
        "-----BEGIN CERTIFICATE-----\nx\n-----BEGIN RSA PRIVATE KEY-----\nCANARY\n");
    put("etc/ssl/certs/pgp.asc", 0644, "-----BEGIN PGP PRIVATE KEY BLOCK-----\nCANARY\n");
    put("etc/ssl/certs/good.pem", 0644, "-----BEGIN CERTIFICATE-----\nx\n");
    put("etc/maven/settings.xml", 0644,
        "<settings><!-- <password>example</password> --><password>CANARY</password></settings>\n");
    put("etc/gitconfig", 0644,
        "[user]\n\tname = keep\n[credential \"https://x\"]\n\thelper = CANARY\n"
        "[include]\n\tpath = /root/CANARY\n[includeIf \"x\"] path = CANARY\n"
        "[credential.https://y] username = CANARY\n"
        "[url \"https://u:CANARY@git.example/\"]\n\tinsteadOf = x:\n"
        "[http]\n\textraHeader = A: \\\n CANARY\n\tsslVerify = true\n\tproxy = http://u:CANARY@p/\n"
        "[sendemail] smtppass = CANARY\n[core]\n\taskPass = CANARY\n\tautocrlf = input\n");
}

static void accounts(void)
{
    put("etc/passwd", 0644,
        "root:x:0:0:root:/root:/bin/bash\n_apt:x:42:65534::/nonexistent:/usr/sbin/nologin\n"
        "www-data:HASH:33:33:www:/var/www:/usr/sbin/nologin\nnobody:x:65534:65534::/n:/bin/false\n"
        "CANARY:x:1000:1000:CANARY,,,:/home/CANARY:/bin/bash\nbroken:x:7\n+CANARY::::::\n"
        "evil:x:0x1:1::/:/bin/sh\nneg:x:-1:1::/:/bin/sh\n");
    put("etc/group", 0644,
        "root:x:0:\nsudo:x:27:CANARY,www-data,me\nshadow:x:42:\nusers:x:100:CANARY\n"
        "CANARY:x:1000:\nnogroup:x:65534:\n");
}

static char *copy(const struct host_user *u)
{
    struct err *e = NULL;
    char *dir = NULL;
    if (host_etc_at(root, layers, u, &dir, &e) < 0) {
        AUTOFREE char *text = err_text(e);
        fprintf(stderr, "host_etc: %s\n", text);
        err_free(e);
        exit(1);
    }
    return dir;
}

static const struct host_user me = { "me", 1500, 1500, "/home/me", "/bin/bash", false };

static void contents(const char *d)
{
    static const char *const in[] = {
        "localtime",          "os-release",         "alternatives/cc",
        "profile.d/good.sh",  "ssl/certs/good.pem", "apt/sources.list.d/c.list",
        "profile.d/loop1.sh", "profile.d/self",     "mtab",
    };
    static const char *const out[] = {
        "profile.d/a.sh",
        "profile.d/fifo.sh",
        "profile.d/dev.sh",
        "profile.d/sock.sh",
        "magic",
        "profile.d/closed",
        "unlisted.conf",
        "environment",
        "vim",
        "skel/.ssh",
        "NetworkManager",
        "profile.d/token.sh",
        "profile.d/quoted.sh",
        "profile.d/aws.sh",
        "profile.d/json.sh",
        "apt/sources.list.d/b.list",
        "ssl/certs/both.pem",
        "ssl/private",
        "maven/settings.xml",
        "apt/auth.conf.d",
        "init.d",
        "npmrc",
    };
    for (size_t i = 0; i < ARRAY_LEN(in); i++)
        if (!has(d, in[i])) {
            fprintf(stderr, "missing: %s\n", in[i]);
            check_failed++;
        }
    for (size_t i = 0; i < ARRAY_LEN(out); i++)
        if (has(d, out[i])) {
            fprintf(stderr, "should not be there: %s\n", out[i]);
            check_failed++;
        }
    nftw(d, canary, 16, FTW_PHYS);
    OK(holds(d, "apt/sources.list.d/a.sources",
             "URIs: https://deb.example/d https://b.example/\n"));
    OK(holds(d, "apt/apt.conf.d/proxy", "\"http://proxy:3128\""));
    OK(holds(d, "pip.conf", "https://pypi.example/simple\nt = 1"));
    OK(holds(d, "gitconfig", "name = keep") && holds(d, "gitconfig", "autocrlf = input"));
    OK(holds(d, "gitconfig", "sslVerify") && holds(d, "gitconfig", "checkStat = minimal"));
    OK(holds(d, "passwd", "me:x:1500:1500:me:/home/me:/bin/bash\n"));
    OK(holds(d, "passwd", "nobody:x:65534") && holds(d, "passwd", "www-data:x:33:33:"));
    OK(!holds(d, "passwd", "evil") && !holds(d, "passwd", "broken") && !holds(d, "passwd", "neg"));
    OK(holds(d, "group", "sudo:x:27:www-data\n") && holds(d, "group", "me:x:1500:\n"));
    OK(holds(d, "shadow", "root:*:") && !holds(d, "shadow", "$6$"));
    OK(holds(d, "hosts", "localhost") && holds(d, "hostname", HOST_ETC_HOSTNAME));
    struct stat st;
    OK(stat(at(d, "machine-id"), &st) == 0 && st.st_size == 0);
    OK(lstat(at(d, "resolv.conf"), &st) == 0 && S_ISREG(st.st_mode));
    OK(stat(at(d, "profile.d/good.sh"), &st) == 0 && (st.st_mode & 07777) == 0755);
    OK(stat(at(d, "pip.conf"), &st) == 0 && (st.st_mode & 07777) == 0644);
    OK(stat(at(d, "shadow"), &st) == 0 && (st.st_mode & 07777) == 0640);
    OK(stat(d, &st) == 0 && (st.st_mode & 07777) == 0755 && st.st_uid == geteuid());
}

static void other_users(void)
{
    struct host_user u = me;
    AUTOFREE char *mine = copy(&me), *sys = NULL, *zero = NULL, *bad = NULL;

    u = (struct host_user){ "www-data", 33, 33, "/srv/w", "/bin/sh", false };
    sys = copy(&u);
    OK(holds(sys, "passwd", "www-data:x:33:33:www-data:/srv/w:/bin/sh\n"));
    OK(!holds(sys, "passwd", ":/var/www:") && strcmp(sys, mine) != 0);
    u = (struct host_user){ "root", 0, 0, "/root", "/bin/bash", true };
    zero = copy(&u);
    OK(holds(zero, "passwd", "root:x:0:0:root:/root:/bin/bash\n"));
    OK(holds(zero, "apt/apt.conf.d/99zz-petri", "root") && has(zero, "init.d/x"));
    nftw(zero, canary, 16, FTW_PHYS);
    u = (struct host_user){ "a:b\nroot:x:0", 1234, 27, "rel:\n", "/bin/x:y", false };
    bad = copy(&u);
    OK(holds(bad, "passwd", "user:x:1234:27:user:/:/bin/sh\n"));
    OK(!holds(bad, "group", "user:"));
}

static void settle(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = 120000000 }, NULL);
}

/* When a new generation is made, and when not. */
static void generations(void)
{
    settle();
    AUTOFREE char *a = copy(&me), *a2 = copy(&me), *b = NULL, *c = NULL, *d = NULL, *f = NULL;
    OK(strcmp(a, a2) == 0);

    put("etc/irrelevant", 0644, "x"); /* /etc itself changes, nothing of what comes in */
    settle();
    b = copy(&me);
    OK(strcmp(a, b) == 0);

    int fd = open(at(root, "etc/profile.d/good.sh"), O_WRONLY | O_APPEND);
    OK(fs_write_all(fd, "# more\n", 7) == 0);
    close(fd);
    settle();
    c = copy(&me);
    OK(strcmp(a, c) != 0 && holds(c, "profile.d/good.sh", "# more"));
    OK(has(a, "profile.d/good.sh") && !holds(a, "profile.d/good.sh", "# more"));

    put("etc/ssl/certs/new.pem", 0644, "-----BEGIN CERTIFICATE-----\n");
    settle();
    d = copy(&me);
    OK(strcmp(c, d) != 0 && has(d, "ssl/certs/new.pem"));

    chmod(at(root, "etc/profile.d/good.sh"), 0600);
    settle();
    f = copy(&me);
    OK(strcmp(d, f) != 0 && !has(f, "profile.d/good.sh"));
    chmod(at(root, "etc/profile.d/good.sh"), 0755);
}

/* A damaged manifest or copy is made again; a hold keeps a generation from being swept. */
static void damage(void)
{
    settle();
    AUTOFREE char *a = copy(&me), *dir = str_dup(a), *b = NULL, *c = NULL;
    int fd = -1;
    *strrchr(dir, '/') = '\0';
    OK(host_etc_hold(a, &fd, NULL) == 0 && fd >= 0);
    close_p(&fd);
    for (int cut = 0; cut < 600; cut += 7) {
        AUTOFREE char *text = NULL, *again = NULL;
        size_t n;
        OK(fs_read(AT_FDCWD, at(dir, "manifest"), 1 << 20, &text, &n, NULL) == 0);
        text[(size_t)cut * n / 600] ^= 0x5a;
        OK(fs_write_atomic(AT_FDCWD, at(dir, "manifest"), text, n - (cut % 2) * (n / 3), 0600,
                           NULL) == 0);
        again = copy(&me);
        OK(has(again, "passwd"));
    }
    b = copy(&me);
    OK(fs_remove_tree(AT_FDCWD, b, NULL) == 0);
    OK(mkdir(at(dir, "tmp-77"), 0700) == 0);
    c = copy(&me);
    OK(has(c, "passwd") && has(c, "profile.d/good.sh"));
}

/* Replaced generations go after a day, unless somebody holds them. */
static void sweeping(void)
{
    settle();
    AUTOFREE char *a = copy(&me), *dir = str_dup(a), *b = NULL, *c = NULL;
    int hold = -1;

    *strrchr(dir, '/') = '\0';
    put("etc/profile.d/one.sh", 0644, "x\n");
    settle();
    b = copy(&me);
    put("etc/profile.d/two.sh", 0644, "x\n");
    settle();
    c = copy(&me);
    OK(strcmp(a, b) != 0 && strcmp(b, c) != 0 && has(a, "passwd") && has(b, "passwd"));
    AUTOCLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY);
    uint64_t current = strtoull(strrchr(c, '-') + 1, NULL, 10);
    OK(host_etc_hold(a, &hold, NULL) == 0);
    etc_sweep(fd, current, time(NULL) + 7200);
    OK(has(a, "passwd") && has(b, "passwd"));
    etc_sweep(fd, current, time(NULL) + 2 * 86400);
    OK(has(a, "passwd") && !fs_exists(b) && has(c, "passwd"));
    close_p(&hold);
    etc_sweep(fd, current, time(NULL) + 2 * 86400);
    OK(!fs_exists(a) && has(c, "passwd"));
}

static void parallel(void)
{
    enum { N = 6 };
    struct host_user u = me;
    pid_t pid[N];
    int pipefd[2];
    char names[N * 200] = "", first[200] = "";
    size_t got = 0;
    ssize_t r;

    u.name = "par";
    OK(pipe(pipefd) == 0);
    for (int i = 0; i < N; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            char line[200];
            AUTOFREE char *d = copy(&u);
            int n = snprintf(line, sizeof line, "%s\n", d);
            _exit(write(pipefd[1], line, (size_t)n) == n ? 0 : 1);
        }
    }
    close(pipefd[1]);
    while ((r = read(pipefd[0], names + got, sizeof names - 1 - got)) > 0)
        got += (size_t)r;
    close(pipefd[0]);
    for (int i = 0; i < N; i++) {
        int st;
        waitpid(pid[i], &st, 0);
        OK(st == 0);
    }
    sscanf(names, "%199s", first);
    int n = 0;
    for (char *save = NULL, *l = strtok_r(names, "\n", &save); l; l = strtok_r(NULL, "\n", &save))
        n += strcmp(l, first) == 0;
    OK(n == N);
}

int main(void)
{
    umask(022);
    if (!mkdtemp(base))
        return 1;
    snprintf(root, sizeof root, "%s/root", base);
    snprintf(layers, sizeof layers, "%s/layers", base);
    put("etc/init.d/x", 0755, "#!/bin/sh\n");
    fs_mkdirs(at(root, "etc/alternatives"), 0755, NULL);
    hostile_names();
    hostile_links();
    hostile_contents();
    accounts();
    umask(077); /* must not show in the copy */

    settle();
    AUTOFREE char *d = copy(&me);
    contents(d);
    other_users();
    generations();
    damage();
    settle();
    sweeping();
    parallel();
    fs_remove_tree(AT_FDCWD, base, NULL);
    return check_done();
}
