"""A world for the network tests, in namespaces of their own, with nothing of the real network in it.

    sandbox ... gateway --- "host" --- veth --- "world"

"host" is where petri runs: a network namespace whose own services are canaries, and a mount namespace
whose /etc/resolv.conf names the world's DNS server. "world" has public-looking addresses (documentation
ranges, which petri does not refuse) and the servers of netservers.py, each with a log of its own.

What each kind of user needs for that (MODE of helpers.py):
  root    unshare(NEWNET|NEWNS); no user namespace.
  single  a user namespace that maps the user to itself; petri inside maps the same single id again.
  sub     two user namespaces. The outer one, A, has the user as its 0 and the subordinate ids after it; the
          inner one, B, gives all of them their own numbers back. newuidmap is setuid to an id that A does
          not have, so the bit is void in there: first in PATH stand copies of newuidmap and newgidmap with
          file capabilities that count in A and below. petri itself runs with no capability, as outside.

Whoever enters keeps its pid and its parent: nsenter only.
"""
import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))

HOST, HOST6, ROUTER, ROUTER6 = "198.51.100.2", "2001:db8:ff::2", "198.51.100.1", "2001:db8:ff::1"
HOST_PRIVATE = "10.9.8.7"     # the host's address in the intranet
ALLOWED, OTHER, EVIL = "203.0.113.10", "203.0.113.20", "203.0.113.30"
CLOSED, SILENT = "203.0.113.99", "203.0.113.98"  # nothing listens; nobody answers at all
DNS, PROXY, SSH, GIT = "203.0.113.53", "203.0.113.80", "203.0.113.22", "203.0.113.40"
STUB = "127.0.0.53"           # a resolver of the host's own, as systemd-resolved has one
INTRANET, METADATA = "10.9.8.1", "169.254.169.254"
ALLOWED6, EVIL6 = "2001:db8:1::10", "2001:db8:1::30"
WORLD = [ALLOWED, OTHER, EVIL, CLOSED, DNS, PROXY, SSH, GIT, INTRANET, METADATA]
WORLD6 = [ALLOWED6, EVIL6]
HP = 8099                     # a service of the host's that is not on port 80 or 443

NEWNS, NEWUSER, NEWNET = 0x20000, 0x10000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
libc = ctypes.CDLL(None, use_errno=True)


def call(name, *args):
    if getattr(libc, name)(*args) < 0:
        n = ctypes.get_errno()
        raise OSError(n, f"{name}: {os.strerror(n)}")


def bind(src, dst):
    call("mount", src.encode(), os.path.realpath(dst).encode(), None, MS_BIND, None)


def put(path, text):
    with open(path, "w") as f:
        f.write(text)


def ambient():
    """Everything this process may do in its user namespace its children may do, too."""
    head, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    call("capget", head, data)
    data[2], data[5] = data[1], data[4]
    call("capset", head, data)
    for cap in range(41):
        libc.prctl(47, 2, cap, 0, 0)  # PR_CAP_AMBIENT_RAISE; a capability the kernel lacks is no loss


def die_with_parent():
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)


def fork(child):
    """A child that runs `child`, which never returns."""
    pid = os.fork()
    if pid:
        return pid
    try:
        die_with_parent()
        child()
    except BaseException as e:
        print(f"nethosts: {e!r}", file=sys.stderr, flush=True)
    os._exit(1)


class Step:
    """One process tells another that it may go on."""

    def __init__(self):
        self.r, self.w = os.pipe()

    def go(self):
        os.write(self.w, b"x")

    def wait(self):
        assert os.read(self.r, 1), "the other side is gone"


# --- user namespaces -------------------------------------------------------------------------------

def subordinate(name, uid, file):
    with open(file) as f:
        for who, first, n in (line.strip().split(":") for line in f if line.count(":") == 2):
            if who in (name, str(uid)):
                return int(first), int(n)
    raise RuntimeError(f"no ids for {name} in {file}")


def outer_userns(ids):
    """A: 0 is this user, 1... are its subordinate ids."""
    asked = Step()
    me = os.getpid()

    def helper():
        asked.wait()
        for prog, own, (first, n) in (("newuidmap", os.getuid(), ids[0]), ("newgidmap", os.getgid(), ids[1])):
            subprocess.run([prog, str(me), "0", str(own), "1", "1", str(first), str(n)], check=True)
        os._exit(0)
    pid = fork(helper)
    call("unshare", NEWUSER)
    asked.go()
    assert os.waitpid(pid, 0)[1] == 0, "newuidmap failed"


def capable_copy(prog, cap, directory):
    """A copy of a program with a file capability, which the kernel ties to the owner of namespace A."""
    dst = shutil.copy(shutil.which(prog), os.path.join(directory, prog))
    os.chmod(dst, 0o755)
    os.setxattr(dst, "security.capability", (0x02000001).to_bytes(4, "little") +
                (1 << cap).to_bytes(4, "little") + bytes(12))


def inner_userns(uid, gid, ids, go_on):
    """B: everyone has the number that they have outside. `go_on` runs in there."""
    made, mapped = Step(), Step()

    def inside():
        call("unshare", NEWUSER)
        made.go()
        mapped.wait()
        go_on()
        os._exit(0)
    pid = fork(inside)
    made.wait()
    for file, own, (first, n) in (("uid_map", uid, ids[0]), ("gid_map", gid, ids[1])):
        put(f"/proc/{pid}/{file}", f"{own} 0 1\n{first} 1 {n}\n")
    mapped.go()
    os.waitpid(pid, 0)


def single_userns():
    uid, gid = os.getuid(), os.getgid()
    call("unshare", NEWUSER)
    put("/proc/self/setgroups", "deny")
    put("/proc/self/uid_map", f"{uid} {uid} 1\n")
    put("/proc/self/gid_map", f"{gid} {gid} 1\n")


# --- the two network namespaces --------------------------------------------------------------------

def ip(*lines):
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True,
                   stdout=subprocess.DEVNULL)


def world_side(directory, linked):
    call("unshare", NEWNET)
    linked[0].go()
    linked[1].wait()
    ip("link set lo up", "link set down0 up", f"addr add {ROUTER}/24 dev down0",
       f"addr add {ROUTER6}/64 dev down0 nodad",
       *(f"addr add {a}/32 dev lo" for a in WORLD), *(f"addr add {a}/128 dev lo nodad" for a in WORLD6))
    serve("world", directory)


def serve(side, directory):
    os.execv(sys.executable, [sys.executable, "-B", os.path.join(HERE, "netservers.py"), side, directory])


def host_side(directory):
    call("unshare", NEWNS | NEWNET)
    call("mount", None, b"/", None, MS_REC | MS_PRIVATE, None)
    ambient()
    bind(os.path.join(directory, "resolv.conf"), "/etc/resolv.conf")
    linked = Step(), Step()
    pid = fork(lambda: world_side(directory, linked))
    linked[0].wait()
    ip("link set lo up", f"link add up0 type veth peer name down0 netns {pid}", "link set up0 up",
       f"addr add {HOST}/24 dev up0", f"addr add {HOST_PRIVATE}/32 dev up0", f"addr add {HOST6}/64 dev up0 nodad",
       f"route add default via {ROUTER}", f"route add ::/0 via {ROUTER6}")
    linked[1].go()
    with contextlib.suppress(OSError):
        put("/proc/sys/net/core/somaxconn", "4096")
    put(os.path.join(directory, "holder"), f"{os.getpid()} {pid}")
    serve("host", directory)


def hold(directory, mode):
    """Never returns: ends when its standard input does."""
    uid, gid = os.getuid(), os.getgid()
    if mode == "sub":
        import pwd
        name = pwd.getpwuid(uid).pw_name
        ids = subordinate(name, uid, "/etc/subuid"), subordinate(name, uid, "/etc/subgid")
        outer_userns(ids)
        capable_copy("newuidmap", 7, os.path.join(directory, "bin"))
        capable_copy("newgidmap", 6, os.path.join(directory, "bin"))
        inner_userns(uid, gid, ids, lambda: host_side(directory))
    else:
        if mode == "single":
            single_userns()
        host_side(directory)


# --- for the tests -----------------------------------------------------------------------------------

class World:
    """The namespaces and their servers."""

    def __init__(self, directory, mode, **popen):
        self.dir = directory
        for part in ("log", "bin"):
            os.makedirs(os.path.join(directory, part), exist_ok=True)
        self.programs = os.path.join(directory, "bin") + ":" if mode == "sub" else ""  # for the front of PATH
        put(os.path.join(directory, "resolv.conf"), f"nameserver {DNS}\noptions timeout:1 attempts:2\n")
        names = "DNS:allowed.test,DNS:*.allowed.test,DNS:other.test,DNS:v6only.test,DNS:both.test,DNS:evil.test"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-days", "3", "-subj", "/CN=petri test", "-addext", f"subjectAltName={names}",
                        "-keyout", self.path("key.pem"), "-out", self.path("cert.pem")],
                       check=True, capture_output=True)
        for user in {popen.get("user")} - {None}:
            for d, _, files in os.walk(directory):
                for p in [d, *(os.path.join(d, f) for f in files)]:
                    os.chown(p, user, popen["group"])
        self.p = subprocess.Popen([sys.executable, "-B", os.path.abspath(__file__), directory, mode],
                                  stdin=subprocess.PIPE, **popen)
        end = time.monotonic() + 60
        while not all(os.path.exists(self.path(f"ready-{side}")) for side in ("world", "host")):
            assert self.p.poll() is None, "the test's namespaces could not be made"
            assert time.monotonic() < end, "the test's servers do not come up"
            time.sleep(0.01)
        with open(self.path("holder")) as f:
            self.host_pid, self.world_pid = map(int, f.read().split())
        user = [] if mode == "root" else ["--user", "--preserve-credentials"]
        self.nsenter = ["nsenter", "-t", str(self.host_pid), *user, "--net", "--mount"]
        self.enter_world = ["nsenter", "-t", str(self.world_pid), *user, "--net", "--"]
        self.start = {}

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def mark(self):
        """What the servers saw until now is not this test's."""
        self.start = {n: os.path.getsize(self.path("log", n)) for n in os.listdir(self.path("log"))}

    def log(self, server, **want):
        """What a server saw since the mark: dicts that have these members."""
        try:
            with open(self.path("log", server), "rb") as f:
                f.seek(self.start.get(server, 0))
                lines = f.read().splitlines()
        except FileNotFoundError:
            lines = []
        found = [json.loads(x) for x in lines]
        return [x for x in found if all(x.get(k) == v for k, v in want.items())]

    def enter(self, cwd):
        """What goes before a command line that is to run where petri does."""
        return [*self.nsenter, f"--wdns={cwd}", "--"]

    def host(self, *argv, **kw):
        """A command in the host's namespaces."""
        return subprocess.run([*self.enter("/"), *argv], capture_output=True, text=True, timeout=120, **kw)

    def interfaces(self):
        """What the host has: a veth that was left would show."""
        r = self.host("cat", "/proc/net/dev")
        return {x.split(":")[0].strip() for x in r.stdout.splitlines() if ":" in x}

    def close(self):
        self.p.stdin.close()
        try:
            self.p.wait(10)
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.p.wait()


if __name__ == "__main__":
    die_with_parent()
    hold(*sys.argv[1:])
