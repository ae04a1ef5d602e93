"""Was the sandbox real? What each sample's probe said, and what its cgroups say from outside.

Seccomp, no_new_privs, capabilities and namespaces are proved by every timed sample itself: its
command is the probe. Limits can't be seen from inside, so the same command line is run again, held
for a moment between the rounds, and its cgroups are read from outside.
"""
import os
import time

from others import TAG
from scratch import Fail

NAMESPACES = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")
HOST_NS = {n: os.readlink("/proc/self/ns/" + n).partition(":")[2] for n in NAMESPACES}
WALLS = ("seccomp", "nnp", "no caps") + NAMESPACES
V1_FILES = {"memory": ("memory", "memory.limit_in_bytes"), "pids": ("pids", "pids.max"),
            "cpu": ("cpu", "cpu.cfs_quota_us")}
V2_FILES = {"memory": "memory.max", "pids": "pids.max", "cpu": "cpu.max"}


def walls(line):
    """Which walls stood, from one line of the probe."""
    kv = dict(w.split("=", 1) for w in line.split() if "=" in w)
    up = [n for n in NAMESPACES if kv.get(n) and kv[n] != HOST_NS[n]]
    if kv.get("seccomp") == "2":
        up.append("seccomp")
    if kv.get("nnp") == "1":
        up.append("nnp")
    if kv.get("capeff") and int(kv["capeff"], 16) == 0:
        up.append("no caps")
    return [w for w in WALLS if w in up]


def find_held(name):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/comm" % pid, encoding="ascii") as f:
                if f.read() != "probe\n":
                    continue
            with open("/proc/%s/cmdline" % pid, "rb") as f:
                if f.read().split(b"\0")[1:3] == [b"hold", (TAG + name).encode()]:
                    return pid
        except OSError:
            pass
    return None


def read_limit(path):
    try:
        with open(path, encoding="ascii") as f:
            words = f.read().split()
    except OSError:
        return None
    if not words or words[0] in ("max", "-1") or int(words[0]) > 1 << 60:
        return None
    return int(words[0])


def limits_of(pid):
    """The limits of a process's own cgroups, by name; none for what is not limited."""
    found = {}
    with open("/proc/%s/cgroup" % pid, encoding="ascii") as f:
        lines = [x.rstrip("\n").split(":", 2) for x in f]
    for _, controllers, path in lines:
        for name, (ctrl, leaf) in V1_FILES.items():
            if ctrl in controllers.split(","):
                found.setdefault(name, read_limit("/sys/fs/cgroup/%s%s/%s" % (ctrl, path, leaf)))
        if not controllers:
            for name, leaf in V2_FILES.items():
                value = read_limit("/sys/fs/cgroup%s/%s" % (path, leaf))
                if value:
                    found[name] = value
    return {k: v for k, v in found.items() if v}


def held_limits(case):
    """Runs the case once more, held, and reads the limits of its probe."""
    p = case.start_held()
    found = None
    while p.poll() is None:
        pid = find_held(case.name)
        if pid:
            try:
                found = limits_of(pid)
                break
            except OSError:
                pass
        time.sleep(0.01)
    _, err = p.communicate()
    if p.returncode or found is None:
        raise Fail("%s: the held run failed (exit %d): %s" % (case.name, p.returncode,
                                                            err.strip()[-300:]))
    return found


def v1():
    return os.path.isdir("/sys/fs/cgroup/pids")


def wanted_limits(user):
    """What petri's defaults must be enforced as; an ordinary user has no cgroup on v1."""
    if user.uid and v1():
        return {}
    return {"memory": 2 << 30, "pids": 256, "cpu": 200000}
