"""What the tests of the command line share: starting petri, looking for what it left behind."""
import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import pty
import pwd
import re
import select
import shutil
import stat
import struct
import subprocess
import termios
import time

BIN = os.environ.get("PETRI_TEST_BIN") or shutil.which("petri") or "petri"
WEAK = os.environ.get("PETRI_TEST_WEAK", "")
UID = os.getuid()
ROOT = UID == 0
CANARY = "CANARY-c0ffee"
# How much longer everything takes where the machine is emulated.
SLOW = float(os.environ.get("PETRI_TEST_SLOW") or (10 if os.environ.get("PETRI_TEST_VM") else 1))
HERE = os.path.dirname(os.path.abspath(__file__))


def patience(seconds):
    """How long to wait for what must happen: on a busy machine a second is nothing. What would happen by
    itself in this time (the end of a sleep) proves nothing."""
    return max(seconds * SLOW, 60)


def place(probes, name, project):
    """Puts a probe into a project: a link where the kernel allows it, as it does not for others' files."""
    src, dst = os.path.join(probes, name), os.path.join(project, name)
    try:
        os.link(src, dst)
    except OSError:
        shutil.copy(src, dst)


def _has_subuid():
    names = {str(UID), pwd.getpwuid(UID).pw_name}
    with contextlib.suppress(OSError), open("/etc/subuid") as f:
        return any(line.split(":")[0] in names for line in f) and bool(shutil.which("newuidmap"))
    return False


# The three ways ids are mapped: root's own range, subuid ranges, a single id.
MODE = "root" if ROOT else "sub" if _has_subuid() else "single"
# An ordinary user's tmpfs can hold an overlay's changes since Linux 6.6; before, petri watches a directory.
WATCHED = not ROOT and tuple(int(x) for x in re.findall(r"\d+", os.uname().release)[:2]) < (6, 6)
CGROUP_V2 = os.path.exists("/sys/fs/cgroup/cgroup.controllers")


def _can_limit():
    """Whether cgroups can be had here: root always, others on v2 with a user manager."""
    if ROOT:
        return True
    return CGROUP_V2 and os.path.exists(f"/run/user/{UID}/bus")


CAN_LIMIT = _can_limit()
SECRETS = [
    ".ssh/id_rsa", ".ssh/id_ed25519", ".ssh/config", ".aws/credentials", ".gnupg/secring.gpg",
    ".kube/config", ".docker/config.json", ".config/gh/hosts.yml", ".config/gcloud/token",
    ".azure/token", ".netrc", ".git-credentials", ".npmrc", ".pypirc", ".cargo/credentials.toml",
    ".password-store/x.gpg", ".bash_history",
]


class Result:
    """A finished petri: `out` is the command's, `talk` petri's own lines, `err` the rest of stderr."""

    def __init__(self, argv, rc, out, err, seconds):
        self.argv, self.rc, self.outb, self.errb, self.seconds = argv, rc, out, err, seconds
        self.out = out.decode("utf-8", "replace")
        lines = err.decode("utf-8", "replace").splitlines(keepends=True)
        self.talk = "".join(x for x in lines if x.startswith("petri:"))
        self.err = "".join(x for x in lines if not x.startswith("petri:"))

    def __repr__(self):
        return (f"$ {' '.join(map(str, self.argv))}\nrc={self.rc} ({self.seconds:.2f} s)\n"
                f"stdout: {self.out[:3000]}\nstderr: {self.err[:2000]}\npetri: {self.talk[:2000]}")

    def ok(self, rc=0):
        assert self.rc == rc, f"expected status {rc}\n{self!r}"
        return self

    @property
    def json(self):
        return json.loads(self.outb)


class Process(subprocess.Popen):
    """Popen that is patient."""

    def wait(self, timeout=None):
        return super().wait(timeout and patience(timeout))

    def communicate(self, input=None, timeout=None):
        return super().communicate(input, timeout and patience(timeout))


class Petri:
    """One test's own world: a home with secrets, a project in it, petri's store."""

    def __init__(self, base, store=None):
        self.base = str(base)
        self.home = self.path("home")
        self.project = self.path("home", "proj")
        self.store = store or self.path("store")
        for name in SECRETS:
            write(os.path.join(self.home, name), f"{CANARY} {name}\n", 0o600)
        os.makedirs(self.project)
        write(os.path.join(self.project, "README"), "a project\n")
        write(os.path.join(self.project, "petri.json"), "{}\n")
        me = pwd.getpwuid(UID).pw_name
        self.env = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": self.home, "USER": me, "LOGNAME": me, "LANG": "C.UTF-8", "TERM": "xterm",
            "PETRI_HOME": self.store, "MY_SECRET_TOKEN": CANARY,
            "AWS_SECRET_ACCESS_KEY": CANARY, "GITHUB_TOKEN": CANARY,
        }
        self.started = []
        self.allow_kept = False

    def own_store(self, kept=False):
        """A store of this test's own, empty; `kept`: sandboxes may stay in it."""
        self.store = self.env["PETRI_HOME"] = self.path("store")
        self.allow_kept = kept

    def path(self, *parts):
        return os.path.join(self.base, *parts)

    def file(self, name, text="", mode=0o644):
        """A file in the project."""
        return write(os.path.join(self.project, name), text, mode)

    def _environ(self, env, weak):
        full = dict(self.env)
        if weak:
            full["PETRI_WEAKEN"] = weak
        for k, v in (env or {}).items():
            if v is None:
                full.pop(k, None)
            else:
                full[k] = v
        return full

    def start(self, *args, env=None, cwd=None, weak=None, sub="run", **kw):
        """petri in the background; the caller waits for it."""
        argv = [WEAK if weak is not None else BIN] + ([sub] if sub else []) + [str(a) for a in args]
        kw.setdefault("stdin", subprocess.DEVNULL)
        kw.setdefault("stdout", subprocess.PIPE)
        kw.setdefault("stderr", subprocess.PIPE)
        p = Process(argv, env=self._environ(env, weak), cwd=cwd or self.project, **kw)
        self.started.append(p)
        return p

    def run(self, *args, input=None, timeout=60, **kw):
        """petri run ARGS..., to its end."""
        if input is not None:
            kw["stdin"] = subprocess.PIPE
        t = time.monotonic()
        p = self.start(*args, **kw)
        try:
            out, err = p.communicate(input.encode() if isinstance(input, str) else input, timeout)
        except subprocess.TimeoutExpired:
            p.kill()
            out, err = p.communicate()
            raise AssertionError(f"no end after {timeout} s\n"
                                 f"{Result(p.args, None, out, err, timeout)!r}")
        return Result(p.args, p.returncode, out or b"", err or b"", time.monotonic() - t)

    def sh(self, script, *flags, **kw):
        """petri run FLAGS -- sh -c SCRIPT."""
        return self.run(*flags, "--", "sh", "-c", script, **kw)

    def bash(self, script, *flags, **kw):
        return self.run(*flags, "--", "bash", "-c", script, **kw)

    def json(self, *args, rc=None, **kw):
        r = self.run("--json", *args, **kw)
        if rc is not None:
            r.ok(rc)
        return r.json

    def close(self):
        for p in self.started:
            if p.poll() is None:
                p.kill()
            p.wait()
            for f in (p.stdin, p.stdout, p.stderr):
                if f:
                    with contextlib.suppress(OSError):
                        f.close()


def write(path, text="", mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(text.encode() if isinstance(text, str) else text)
    os.chmod(path, mode)
    return path


def read(path):
    with open(path, "rb") as f:
        return f.read()


def wait_for(cond, seconds=60, what="it"):
    """Polls until cond() is true; its value."""
    end = time.monotonic() + patience(seconds)
    while True:
        v = cond()
        if v:
            return v
        assert time.monotonic() < end, f"{what() if callable(what) else what} did not happen within {seconds} s"
        time.sleep(0.01)


def tree(top):
    """Everything about a tree that must not change: path -> attributes and content."""
    seen = {}
    for dirpath, dirs, files in os.walk(top):
        for name in dirs + files + ["."]:
            p = os.path.normpath(os.path.join(dirpath, name))
            st = os.lstat(p)
            what = ""
            if stat.S_ISREG(st.st_mode):
                what = hashlib.sha256(read(p)).hexdigest()
            elif stat.S_ISLNK(st.st_mode):
                what = os.readlink(p)
            xattrs = tuple(sorted(os.listxattr(p, follow_symlinks=False)))
            seen[os.path.relpath(p, top)] = (st.st_ino, st.st_mode, st.st_uid, st.st_gid,
                                             st.st_nlink, st.st_size, st.st_mtime_ns,
                                             st.st_ctime_ns, what, xattrs)
    return seen


def listing(top):
    """The names below a directory, a missing one included."""
    return sorted(os.path.relpath(os.path.join(d, n), top)
                  for d, dirs, files in os.walk(top) for n in dirs + files)


# --- what is left behind ---------------------------------------------------------------------

def become_subreaper():
    """Orphans of our tests come to us, so that `our processes` is simply `our descendants`."""
    ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)


def processes():
    """pid -> (ppid, state, name)"""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/stat", "rb") as f:
                data = f.read().decode("utf-8", "replace")
            name, rest = data.split("(", 1)[1].rsplit(") ", 1)
            state, ppid = rest.split()[:2]
            found[int(pid)] = (int(ppid), state, name)
    return found


def descendants(pid=None):
    """Processes below pid (default: this one), zombies of ours reaped on the way."""
    table = processes()
    top = pid or os.getpid()
    below, found = {}, {}
    for p, (ppid, _, _) in table.items():
        below.setdefault(ppid, []).append(p)
    queue = list(below.get(top, []))
    while queue:
        p = queue.pop()
        queue += below.get(p, [])
        if table[p][1] == "Z" and table[p][0] == os.getpid():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(p, os.WNOHANG)
            continue
        found[p] = f"{table[p][2]} ({table[p][1]})"
    return found


OURS = r"petri-cli-|/run/petri|share/petri|/var/lib/petri"


def mounts():
    with open("/proc/self/mountinfo") as f:
        return {" ".join(line.split()[2:]) for line in f if re.search(OURS + "| petri ", line)}


def cgroups():
    """Our control groups whose keeper is no more: they are named after its pid, and the namespace that
    has this pid, which may not be ours to judge."""
    found, here = set(), str(os.stat("/proc/self/ns/pid").st_ino)
    for top, dirs, _ in os.walk("/sys/fs/cgroup"):
        for d in dirs:
            p = os.path.join(top, d)
            keeper = re.search(r"petri-[0-9a-f]+\.(\d+)\.\d+\.(\d+)", p)
            if "petri" not in d or d.startswith("petri-bench"):
                continue
            if keeper and (keeper.group(2) != here or os.path.exists(f"/proc/{keeper.group(1)}")):
                continue
            with contextlib.suppress(OSError):
                if os.stat(p).st_uid == UID:
                    found.add(p)
    return found


def loops():
    found = set()
    for name in os.listdir("/sys/block"):
        with contextlib.suppress(OSError):
            file = read(f"/sys/block/{name}/loop/backing_file").decode("utf-8", "replace").strip()
            if re.search(OURS + r"|\(deleted\)$", file):
                found.add((name, file))
    return found


def namespaces():
    """Ids of the namespaces that our processes, or an orphan of petri's, are in (whose process it is
    matters: others on this machine make namespaces too). Those that we are in ourselves are nobody's leak."""
    kinds = ("mnt", "net", "user", "pid", "ipc", "uts", "cgroup")
    found = set()
    ours = set(descendants())
    for pid, (ppid, _, name) in processes().items():
        if pid in ours or ("petri" in name and ppid == 1):
            for kind in kinds:
                with contextlib.suppress(OSError):
                    found.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
    return found - {os.readlink(f"/proc/self/ns/{kind}") for kind in kinds}


def strays():
    """Our files in shared places, but for petri's own run directory and what tests are kept in."""
    found = set()
    for d in ("/tmp", "/dev/shm", "/var/tmp", "/run/netns"):
        for n in os.listdir(d) if os.path.isdir(d) else ():
            with contextlib.suppress(OSError):
                p = os.path.join(d, n)
                if (n.startswith((".petri", "petri-leak", "petri-m", "petri-run", f"petri-{UID}."))
                        or d in ("/dev/shm", "/run/netns")) and os.lstat(p).st_uid == UID:
                    found.add(p)
    return found


def interfaces():
    return set(os.listdir("/sys/class/net"))


class Leaks:
    """What the machine had before; `left()` is what it has more of now, after a fair wait.

    Others may use petri on this machine at the same time: only what stays counts.
    """
    LOOKS = {"mounts": mounts, "cgroups": cgroups, "loop devices": loops, "files": strays,
             "interfaces": interfaces}

    def __init__(self, deep=False):
        self.looks = dict(self.LOOKS)
        if deep:
            self.looks["namespaces"] = namespaces
        self.procs = set(descendants())
        self.before = {k: f() for k, f in self.looks.items()}

    def left(self, seconds=20.0):
        end = time.monotonic() + seconds * SLOW
        more = None
        while True:
            procs = {p: n for p, n in descendants().items() if p not in self.procs}
            now = {k: f() - self.before[k] for k, f in self.looks.items()}
            more = now if more is None else {k: now[k] & v for k, v in more.items()}
            rest = {k: sorted(map(str, v)) for k, v in more.items() if v}
            if procs:
                rest["processes"] = procs
            if not rest or time.monotonic() > end:
                return rest
            time.sleep(0.05)


def store_left(store, before=()):
    """What a store holds besides caches, locks and an empty mount point: sandboxes, temporary files,
    anything in the run directory."""
    found = set()
    for part in ("sandboxes", "run"):
        found |= {f"{part}/{n}" for n in listing(os.path.join(store, part)) if not n.endswith("lock")}
    found |= {n for n in os.listdir(store) if "tmp" in n} if os.path.isdir(store) else set()
    return sorted(found - set(before) - {"run/mnt"})


# --- terminals -------------------------------------------------------------------------------

class Tty:
    """petri on a terminal of its own, as a shell would start it."""

    def __init__(self, petri, *args, rows=24, cols=80, sub="run", **kw):
        self.master, self.slave = pty.openpty()
        self.resize(rows, cols)
        self.before = termios.tcgetattr(self.slave)
        self.seen = b""

        def own_terminal():
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        for stream in ("stdin", "stdout", "stderr"):
            kw.setdefault(stream, self.slave)
        self.p = petri.start(*args, sub=sub, start_new_session=True, preexec_fn=own_terminal, **kw)

    def resize(self, rows, cols):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def send(self, data):
        os.write(self.master, data)

    def pump(self, seconds):
        """Reads what is there within the time; False when nothing came."""
        r, _, _ = select.select([self.master], [], [], seconds)
        if not r:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError as e:
            if e.errno == errno.EIO:
                return False
            raise
        self.seen += data
        return bool(data)

    def expect(self, pattern, seconds=60):
        end = time.monotonic() + patience(seconds)
        while not re.search(pattern, self.seen):
            left = end - time.monotonic()
            assert left > 0, f"no {pattern!r} within {seconds} s in {self.seen!r}"
            if not self.pump(min(left, 0.1)) and self.p.poll() is not None and not self.pump(0.05):
                raise AssertionError(f"petri ended ({self.p.returncode}) before {pattern!r}: "
                                     f"{self.seen!r}")
        return self.seen

    def wait(self, seconds=60):
        """The end of petri and of its output: what the test itself writes to the terminal comes last."""
        end = time.monotonic() + patience(seconds)
        while self.p.poll() is None:
            assert time.monotonic() < end, f"petri did not end: {self.seen!r}"
            self.pump(0.02)
        while self.pump(0):
            pass
        last = b"--the test's own last words--"
        os.write(self.slave, last)
        while last not in self.seen:
            assert time.monotonic() < end, f"the terminal is stuck: {self.seen!r}"
            self.pump(0.1)
        self.seen = self.seen.replace(last, b"")
        return self.p.returncode

    def restored(self):
        return termios.tcgetattr(self.slave) == self.before

    def close(self):
        for fd in (self.master, self.slave):
            with contextlib.suppress(OSError):
                os.close(fd)
