"""What the benchmark needs on disk and in /etc/passwd, and its removal.

Everything lies in one directory below /var/tmp (a real file system, readable for every user);
accounts are made only where they are missing, and only those are removed again.
"""
import os
import pwd
import shutil
import signal
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = ("timeit", "probe", "cgmove", "netload")


class Fail(Exception):
    """One line for the user: what is wrong and what to do."""


def sh(*argv, **kw):
    p = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kw)
    if p.returncode:
        raise Fail("%s: exit %d: %s" % (" ".join(argv[:6]), p.returncode,
                                        (p.stderr or p.stdout).strip()[-400:]))
    return p.stdout


class User:
    """An identity that samples run under; None of the ids set means: as started."""

    def __init__(self, name):
        pw = pwd.getpwnam(name) if name else pwd.getpwuid(os.geteuid())
        self.name, self.uid, self.gid, self.home = pw.pw_name, pw.pw_uid, pw.pw_gid, pw.pw_dir

    def env(self):
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name,
                "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}

    def run(self, argv, cwd, **kw):
        """Like subprocess.run, as this user."""
        ids = {} if self.uid == os.geteuid() else {
            "user": self.uid, "group": self.gid, "extra_groups": []}
        return subprocess.run(argv, cwd=cwd, env=self.env(), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, **ids, **kw)


class Scratch:
    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="petri-bench-", dir="/var/tmp")
        os.chmod(self.dir, 0o755)
        self.made_users = []
        self.at_end = []
        self.stores = None
        self.cgroup_parent = ""  # where runtimes put theirs, for go_ahead()

    def go_ahead(self):
        """On a busy machine: a cpu cgroup for us and the peers that gets most of the time."""
        top = "/sys/fs/cgroup/cpu"
        if os.geteuid() or not os.path.exists(top + "/cpu.shares"):
            raise Fail("--ahead needs root and cgroup v1")
        with open("/proc/self/cgroup", encoding="ascii") as f:
            mine = [x.rstrip("\n").split(":", 2) for x in f]
        home = next(path for _, names, path in mine if "cpu" in names.split(","))
        self.cgroup_parent = "/petri-bench-%d" % os.getpid()
        os.mkdir(top + self.cgroup_parent)
        put(top + self.cgroup_parent + "/cpu.shares", "262144")
        put(top + self.cgroup_parent + "/cgroup.procs", "0")
        self.at_end.insert(0, lambda: put(top + home + "/cgroup.procs", "0"))

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def close(self):
        for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(s, signal.SIG_IGN)
        for f in reversed(self.at_end):
            f()
        for name in self.made_users:
            subprocess.run(["userdel", "-r", name], stderr=subprocess.DEVNULL, check=False)
        subprocess.run(["rm", "-rf", "--one-file-system", self.dir], check=False)

    def build_tools(self):
        cc = os.environ.get("CC", "cc")
        for name in TOOLS:
            sh(cc, "-O2", "-Wall", "-Wextra", "-D_GNU_SOURCE", "-static", "-o", self.path(name),
               os.path.join(HERE, name + ".c"))

    def store(self):
        """Where stores of sandboxes lie. An ext4 without a journal looks at every inode that was removed
        in the last minutes before it makes one, so that figures would tell of earlier samples: there
        it is an image with a journal."""
        if self.stores:
            return self.stores
        self.stores = self.dir
        if os.geteuid() == 0 and no_journal(self.dir):
            img, top = self.path("store.img"), self.path("store")
            os.mkdir(top)
            sh("truncate", "-s", "16G", img)
            sh("mkfs.ext4", "-q", "-F", img)
            sh("mount", "-o", "loop", img, top)
            self.at_end.append(lambda: subprocess.run(["umount", top], check=False))
            self.stores = top
        return self.stores

    def build_client(self, lib):
        """The client of libpetri, beside a copy of the library."""
        so = os.path.join(os.path.dirname(lib), "bench-client")
        sh(os.environ.get("CC", "cc"), "-O2", "-Wall", "-Wextra", "-D_GNU_SOURCE", "-I",
           os.path.join(HERE, "../../runtime/client"), "-o", so, os.path.join(HERE, "client.c"),
           lib, "-Wl,-rpath,$ORIGIN")
        return so

    def user(self, name, subuid):
        try:
            pwd.getpwnam(name)
        except KeyError:
            sh("useradd", "-m", "-s", "/bin/sh", name)
            self.made_users.append(name)
            if not subuid:
                for f in ("/etc/subuid", "/etc/subgid"):
                    drop_lines(f, name + ":")
        return User(name)

    def project(self, files, owner):
        """A directory with so many small files, 100 per directory, and the programs on top."""
        top = self.path("%s-%d" % (owner.name, files))
        if os.path.isdir(top):
            return top
        os.mkdir(top)
        for i in range(files):
            if i % 100 == 0:
                sub = os.path.join(top, "d%03d" % (i // 10000), "s%03d" % (i // 100 % 100))
                os.makedirs(sub)
            fd = os.open(os.path.join(sub, "f%02d.txt" % (i % 100)),
                         os.O_CREAT | os.O_WRONLY, 0o644)
            os.write(fd, b"file %d\n" % (i % 97))
            os.close(fd)
        with open(os.path.join(top, "secret"), "w", encoding="ascii") as f:
            f.write("not for the sandbox\n")
        shutil.copy(self.path("probe"), top)
        shutil.copy(self.path("timeit"), top)
        chown_tree(top, owner)
        return top

    def git(self, top, owner):
        for argv in (["init", "-q"], ["config", "user.email", "bench@localhost"],
                     ["config", "user.name", "bench"], ["config", "gc.auto", "0"],
                     ["add", "-A"], ["commit", "-q", "-m", "all"], ["status", "--porcelain"]):
            p = owner.run(["git", *argv], top)
            if p.returncode:
                raise Fail("git %s in '%s': %s" % (argv[0], top, p.stderr.strip()[-300:]))

    def c_project(self, name, files, owner):
        top = self.path(name)
        os.mkdir(top)
        body = "".join(C_FUNCTION % {"n": "%(n)d", "k": k} for k in range(12))
        for n in range(files):
            with open(os.path.join(top, "m%02d.c" % n), "w", encoding="ascii") as f:
                f.write(C_HEAD + body.replace("%(n)d", str(n)))
        with open(os.path.join(top, "main.c"), "w", encoding="ascii") as f:
            f.write("int main(void) { return 0; }\n")
        with open(os.path.join(top, "Makefile"), "w", encoding="ascii") as f:
            f.write("CFLAGS = -O1\nobj = $(patsubst %.c,%.o,$(wildcard *.c))\n"
                    "all: prog\nprog: $(obj)\n\t$(CC) -o $@ $^\n"
                    "clean:\n\trm -f *.o prog\n")
        shutil.copy(self.path("timeit"), top)
        chown_tree(top, owner)
        return top


C_HEAD = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <sys/types.h>\n"
C_FUNCTION = """
static int step_%(k)d(const char *s, int n)
{
    char buf[256];
    int sum = 0;
    for (int i = 0; i < n && s[i]; i++)
        sum += (s[i] * %(k)d) ^ i;
    snprintf(buf, sizeof(buf), "%%d:%%s", sum, s);
    return (int)strlen(buf) + sum;
}
int call_%(n)s_%(k)d(const char *s) { return step_%(k)d(s, %(k)d); }
"""


def chown_tree(top, owner):
    if owner.uid == os.geteuid():
        return
    for d, _, files in os.walk(top):
        os.chown(d, owner.uid, owner.gid)
        for f in files:
            os.lchown(os.path.join(d, f), owner.uid, owner.gid)


def no_journal(path):
    """True on an ext4 that is known to have none."""
    dev = os.stat(path).st_dev
    try:
        name = os.path.basename(os.readlink("/sys/dev/block/%d:%d" % (os.major(dev), os.minor(dev))))
        with open("/sys/fs/ext4/%s/journal_task" % name, encoding="ascii") as f:
            return f.read().strip() == "<none>"
    except OSError:
        return False


def put(path, text):
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


def drop_lines(path, start):
    try:
        with open(path, encoding="utf-8") as f:
            lines = f.readlines()
    except FileNotFoundError:
        return
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(x for x in lines if not x.startswith(start))
