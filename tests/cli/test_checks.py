"""The isolation checks: a probe in a real sandbox must find nothing, and the same probe in a sandbox
with one wall taken down (petri-weak, PETRI_WEAKEN=word) must be caught, or the check proves nothing.
Every probe prints STARTED first, so that a sandbox that never ran can't pass for a safe one.
"""
import contextlib
import os
import re
import socket
import subprocess
from dataclasses import dataclass, field
from typing import Callable

import pytest

from helpers import (BIN, CANARY, CGROUP_V2, MODE, WEAK, Leaks, descendants, place, read, store_left, tree,
                     write)


@dataclass
class Row:
    name: str
    script: str
    check: Callable                   # check(result, world): AssertionError = not isolated
    weaken: list = field(default_factory=list)  # each of these must be caught
    flags: tuple = ()
    modes: tuple = ("root", "sub", "single")
    weak_modes: tuple = ("root", "sub", "single")  # where the kernel alone would not stop it
    weak_flags: tuple = None          # a weaker sandbox by flags instead of by the switch
    probes: tuple = ()
    setup: Callable = None            # a context manager, setup(petri)


def out_lacks(pattern):
    def check(r, _):
        assert not re.search(pattern, r.out, re.M), r
    return check


def out_has(pattern):
    def check(r, _):
        assert re.search(pattern, r.out, re.M), r
    return check


def fails(r, _):
    assert r.rc != 0, r


def status(rc):
    def check(r, _):
        assert r.rc == rc, r
    return check


def at_most(pattern, limit):
    def check(r, _):
        m = re.search(pattern, r.out)
        assert m and int(m.group(1)) <= limit, r
    return check


# --- what needs a counterpart outside --------------------------------------------------------

@contextlib.contextmanager
def listeners(petri):
    """A TCP server on the host's loopback and an abstract socket: who gets through reads CANARY."""
    tcp, unix = socket.socket(), socket.socket(socket.AF_UNIX)
    tcp.bind(("127.0.0.1", 0))
    unix.bind(f"\0petri-canary-{os.getpid()}")
    for s in (tcp, unix):
        s.listen(4)
    petri.file("port", str(tcp.getsockname()[1]))
    petri.file("name", f"petri-canary-{os.getpid()}")
    with tcp, unix:
        yield


@contextlib.contextmanager
def setuid_helpers(petri):
    """A setuid-root program and one with file capabilities, in somebody's project: root's files are
    root's inside too."""
    os.chown(petri.project, 1500, 1500)
    for name in ("suid", "fcap"):
        p = os.path.join(petri.project, name)
        write(p, read(os.path.join(petri.project, "whoami")), 0o755)
        os.chown(p, 0, 0)
        if name == "suid":
            os.chmod(p, 0o6755)
        else:  # cap_sys_admin, cap_dac_override = ep
            os.setxattr(p, "security.capability",
                        (0x02000001).to_bytes(4, "little") + (1 << 21 | 1 << 1).to_bytes(4, "little") +
                        bytes(12))
    yield


@contextlib.contextmanager
def first_sandbox(petri):
    """A sandbox that writes everywhere it can, before the one that looks."""
    where = "/tmp/petri-m ~/petri-m /workspace/petri-m /var/tmp/petri-m /dev/shm/petri-m /etc/petri-m"
    args = ["--", "sh", "-c", f"for f in {where}; do echo x >$f; done 2>/dev/null; echo STARTED"]
    try:
        petri.run(*args, **petri.weak_kw).ok()
        yield
    finally:
        for d in ("/tmp", "/var/tmp", "/dev/shm"):
            with contextlib.suppress(OSError):
                os.unlink(d + "/petri-m")


@contextlib.contextmanager
def hashed(petri):
    for i in range(20):
        petri.file(f"d/f{i}", str(i))
    petri.before = tree(petri.project)
    yield


def same_tree(r, petri):
    assert tree(petri.project) == petri.before


def host_lines():
    """Lines of the host's /etc that must not be inside: secrets, identities, other people's ids."""
    found = []
    for name in ("shadow", "gshadow", "subuid", "machine-id", "fstab"):
        with contextlib.suppress(OSError):
            found += [x for x in read(f"/etc/{name}").decode().splitlines()
                      if len(x) > 8 and not x.startswith("#") and x not in made_by_petri()]
    return found


def made_by_petri():
    """Entries petri's own shadow and gshadow may well share with the host's: locked accounts."""
    return {x for name in ("shadow", "gshadow") if os.access(f"/etc/{name}", os.R_OK)
            for x in read(f"/etc/{name}").decode().splitlines() if name == "gshadow" or ":*:" in x}


def no_host_lines(r, _):
    lines = host_lines()
    assert lines, "this machine has nothing to hide in /etc: the check is void"
    assert not [x for x in lines if x in r.out], r


def zero_caps(r, _):
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        m = re.search(rf"{name}:\s*([0-9a-f]+)", r.out)
        assert m and int(m.group(1), 16) == 0, (name, r)
    assert re.search(r"NoNewPrivs:\s*1", r.out) and re.search(r"Seccomp:\s*2", r.out), r


def own_namespaces(r, _):
    seen = dict(x.split(":", 1) for x in r.out.split() if ":[" in x)
    assert set(seen) == {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"}, r
    for kind, ident in seen.items():
        assert os.readlink(f"/proc/self/ns/{kind}") != f"{kind}:{ident}", (kind, r)


def all_mounts_tame(r, _):
    """nosuid everywhere, nodev everywhere but on the device nodes in /dev. The runtime's masks, empty
    and read-only, have nothing on them."""
    rows = [x.split() for x in r.out.splitlines() if re.match(r"\d+ \d+ \d+:\d+ ", x)]
    assert len(rows) > 5, r
    for row in rows:
        opts = row[5].split(",")
        if row[4].startswith(("/proc/", "/sys/")) and opts[0] == "ro" and (
                row[3] == "/null"):
            continue
        assert "nosuid" in opts, row
        assert "nodev" in opts or row[4].startswith("/dev"), row


def disk_is_full(r, _):
    """The kernel says so; or, where only the keeper watches a directory, petri ended the sandbox."""
    assert re.search("No space|quota", r.out) or (r.rc == 137 and "disk limit was reached" in r.talk), r


def no_sleep_left(r, _):
    assert r.rc == 124, r
    assert not [n for n in descendants().values() if "sleep" in n]


# user 0 where there is one to be had
USER_0 = () if MODE == "single" else ("-u", "0")
RANGES = ("root", "sub")

CONNECT = ("python3 -c \"import socket\n"
           "n = open('name').read()\n"
           "s = socket.socket(socket.AF_UNIX)\n"
           "try: s.connect(chr(0) + n); print('CONNECTED')\n"
           "except OSError as e: print('refused')\n\"; grep -c petri-canary- /proc/net/unix")

# what no device file is needed for
BLOCK_DEVICES = os.path.isdir("/sys/devices/virtual/block") and os.listdir("/sys/devices/virtual/block")

# 1 is the one limit at which the kernel starts no dump program of the host's; a number's upper half, which
# the kernel does not read, makes no difference
CORE_LIMIT = ("python3 -c \"import ctypes, resource as r\n"
              "def lower(nr, *a): ctypes.CDLL(None).syscall(nr, *map(ctypes.c_long, a), (ctypes.c_long * 2)(), 0)\n"
              "r.setrlimit(r.RLIMIT_CORE, (0, 0))\n"
              "lower(NR, 0, r.RLIMIT_CORE | 1 << 32)\n"
              "r.setrlimit(r.RLIMIT_NOFILE, (50, 60))\n"
              "print('CORE', r.getrlimit(r.RLIMIT_CORE), 'FILES', r.getrlimit(r.RLIMIT_NOFILE))\"")
CORE_LIMIT = CORE_LIMIT.replace("NR", {"x86_64": "302", "aarch64": "261"}[os.uname().machine])

ROWS = [
    Row("F01", "cat $OUTER/.ssh/id_rsa $OUTER/.aws/credentials $OUTER/.gnupg/* $OUTER/.kube/config "
        "$OUTER/.docker/config.json $OUTER/.config/gh/hosts.yml /etc/shadow 2>&1",
        out_lacks(CANARY), ["hide"], flags=("--workspace", "HOME")),
    Row("F01-other-project", "cat $OUTER/.ssh/id_rsa $OUTER/.aws/credentials; ls -A $OUTER",
        out_lacks(rf"{CANARY}|\.ssh"), weak_flags=("-v", "HOME/other:OUTER/.ssh")),
    Row("F01-etc", "cat /etc/shadow /etc/gshadow /etc/subuid /etc/machine-id /etc/fstab 2>&1",
        no_host_lines, ["etc"], flags=USER_0),
    Row("F02", "(env; tr '\\0' '\\n' </proc/1/environ; tr '\\0' '\\n' </proc/self/environ) 2>/dev/null",
        out_lacks(CANARY), ["env"]),
    Row("F04", "cat /proc/kcore /proc/keys /proc/key-users /proc/timer_list /proc/latency_stats "
        "/proc/sched_debug 2>/dev/null | wc -c; ls -A /proc/acpi /proc/scsi /sys/firmware 2>/dev/null | grep -v :",
        out_has(r"\ASTARTED\n0\n*\Z"), ["masks"]),
    # of all processes of the machine, and open to be written by everybody
    Row("F04-everybody", "cat /proc/locks /proc/pressure/* 2>/dev/null; find /proc/pressure /proc/locks -type f 2>/dev/null; true",
        out_has(r"\ASTARTED\n\n*\Z"), ["masks"]),
    # the names of files that the host has in its loop devices
    Row("F04-block", "ls -A /sys/devices/virtual/block /sys/devices/virtual/dmi 2>/dev/null | grep -v :; "
        "cat /sys/block/*/loop/backing_file 2>/dev/null; true", out_has(r"\ASTARTED\n\n*\Z"),
        ["masks"] if BLOCK_DEVICES else []),
    Row("F07", "mknod /tmp/b b 8 0; mknod /tmp/m c 1 1; ls /tmp/b /tmp/m", fails,
        ["userns,caps,seccomp"], flags=USER_0, weak_modes=("root",)),
    Row("N01", "tail -n +3 /proc/net/dev | grep -vc ' lo:'", out_has(r"^0$"), ["net"],
        flags=("--network", "none")),
    Row("N02", "timeout 30 bash -c 'exec 3<>/dev/tcp/127.0.0.1/'$(cat port)", fails, ["net"],
        setup=listeners),
    Row("N02-none", "timeout 30 bash -c 'exec 3<>/dev/tcp/127.0.0.1/'$(cat port)", fails, ["net"],
        flags=("--network", "none"), setup=listeners),
    Row("N11", CONNECT, out_lacks(r"CONNECTED|^[1-9]"), ["net"], setup=listeners),
    Row("P01", "grep -E '^(Cap...|NoNewPrivs|Seccomp):' /proc/self/status", zero_caps,
        ["caps", "nnp", "seccomp"]),
    Row("P02", "unshare -U true || unshare -m true || unshare -n true", fails, ["seccomp"]),
    Row("P02-own", "readlink /proc/self/ns/user /proc/self/ns/mnt /proc/self/ns/pid /proc/self/ns/net "
        "/proc/self/ns/ipc /proc/self/ns/uts /proc/self/ns/cgroup", own_namespaces, ["net"]),
    Row("P03", "mount -t tmpfs x /mnt || mount --bind / /mnt || umount /proc", fails,
        ["caps,seccomp"], flags=USER_0, weak_modes=RANGES),
    Row("P04", "./syscalls", out_lacks("^OPEN"), ["seccomp"], probes=("syscalls",)),
    Row("P04-user-0", "./syscalls", out_lacks("^OPEN"), ["seccomp"], flags=USER_0,
        probes=("syscalls",)),
    # opened for writing, never written: a wall that is down must not hurt the host
    Row("P07", "for f in /proc/sys/kernel/core_pattern /proc/sysrq-trigger /sys/kernel/uevent_helper "
        "/proc/sys/kernel/modprobe /proc/sys/vm/drop_caches /proc/sys/net/ipv4/ip_forward "
        "/proc/sys/kernel/msgmax /proc/irq/0/smp_affinity; do (: >>$f) 2>/dev/null && echo WROTE $f; done; true",
        out_lacks("WROTE"), ["masks"], flags=USER_0, weak_modes=RANGES),
    Row("P07-core", CORE_LIMIT, out_has(r"^CORE \(1, 1\) FILES \(50, 60\)$"), ["seccomp"]),
    Row("P08", "find /sys/fs/cgroup -name release_agent -writable 2>/dev/null; "
        "mkdir /sys/fs/cgroup/x 2>/dev/null && echo MADE; mkdir /sys/fs/cgroup/memory/x 2>/dev/null && echo MADE; "
        "find /sys -writable -type f 2>/dev/null | head -3; true",
        out_has(r"\ASTARTED\n\Z"), [] if CGROUP_V2 else ["cgroupfs"], flags=USER_0, weak_modes=("root",)),
    # the kernel itself guards a namespace's PID 1; the probe keeps it that way
    Row("P09", "kill -STOP 1; kill -9 1; kill -SEGV 1; kill -TERM 1; kill -INT 1; sleep 0.2; echo alive",
        out_has("alive")),
    Row("P09-limits", "prlimit --pid 1 --nofile=0:0 2>&1 && echo LIMITED; sleep 0.1; echo alive",
        lambda r, w: (out_has("alive")(r, w), out_lacks("LIMITED")(r, w)), ["seccomp"],
        weak_modes=("single", "sub")),
    Row("P09-priority", "python3 -c \"import os\nos.setpriority(os.PRIO_USER, 0, 19)\" 2>&1 | tail -1; "
        "cut -d ' ' -f 19 /proc/1/stat", out_has(r"^0$"), ["seccomp"], weak_modes=("single",)),
    Row("P09-memory", "P=/proc/${WHO:-1}; cat $P/maps $P/environ 2>/dev/null | wc -c; "
        "ls $P/fd 2>/dev/null | wc -l; readlink $P/exe; true", out_has(r"\ASTARTED\n0\n0\n*\Z"),
        weak_flags=("-e", "WHO=self")),
    Row("P12", "./suid; ./fcap", lambda r, w: (out_lacks("euid=0|egid=0")(r, w),
                                               out_lacks(r"CapEff:\s*0*[1-9a-f]")(r, w)),
        ["nosuid,nnp"], probes=("whoami",), setup=setuid_helpers, modes=("root",)),
    Row("P12-mounts", "cat /proc/self/mountinfo", all_mounts_tame, ["nosuid"]),
    Row("P14", "trap '' TERM; setsid sleep 4 & sleep 4; sleep 1", no_sleep_left, ["timeout"],
        flags=("--timeout", "2")),
    Row("R01", "./forks 3000", at_most(r"FORKED (\d+)", 256), ["limits"], probes=("forks",)),
    Row("R02", "./hog 300", status(137), ["limits"], flags=("-m", "64M"), probes=("hog",),
        modes=("root", "sub", "single") if CGROUP_V2 else ("root",)),
    Row("R04", "dd if=/dev/zero of=/workspace/x bs=1M count=64 2>&1", disk_is_full,
        ["limits"], flags=("--disk", "16M")),
    Row("R05", "./files 100000 /workspace", disk_is_full, ["limits"],
        flags=("--disk", "16M"), probes=("files",)),
    Row("R07", "yes | head -c 20M", lambda r, w: out_has("truncated")(
        type(r)(r.argv, r.rc, r.outb[-300:] + r.errb[-300:], b"", 0), w), ["output"],
        flags=("--max-output", "1M")),
    Row("R08", "./orphans 5000", out_has("ORPHANED 5000 ZOMBIES 0"), probes=("orphans",)),
    Row("S01", "ls -A /tmp ~ /workspace /var/tmp /dev/shm /etc", out_lacks("petri-m$"), ["tmp"],
        setup=first_sandbox),
    Row("S02", "cd /workspace && for f in $(find . -type f); do echo x >>$f; done; rm -rf ./*; true",
        same_tree, weak_flags=("--workspace-mode", "bind"), setup=hashed),
]
HERE = [r for r in ROWS if MODE in r.modes and (r.name != "F01-etc" or host_lines())]
CONTROLS = ([(r, w) for r in HERE if MODE in r.weak_modes for w in r.weaken] +
            [(r, None) for r in HERE if r.weak_flags])


def probe(petri, probes, row, weak=None, more=()):
    for name in row.probes:
        place(probes, name, petri.project)
    petri.weak_kw = {"weak": weak} if weak else {}
    put = {"HOME": petri.home, "HOME/other:OUTER/.ssh": f"{petri.base}/other:{petri.home}/.ssh"}
    flags = [put.get(f, f) for f in (*row.flags, *more)]
    script = "echo STARTED; " + row.script.replace("$OUTER", petri.home)
    with (row.setup or contextlib.nullcontext)(petri):
        r = petri.bash(script, *flags, timeout=60, **petri.weak_kw)
        assert r.out.startswith("STARTED\n"), f"the probe did not run\n{r!r}"
        row.check(r, petri)
    return r


@pytest.mark.parametrize("row", HERE, ids=lambda r: r.name)
def test_check(petri, probes, row):
    probe(petri, probes, row)


@pytest.mark.skipif(not WEAK, reason="PETRI_TEST_WEAK names no weakened petri")
@pytest.mark.parametrize("row,weak", CONTROLS, ids=lambda x: getattr(x, "name", str(x)))
def test_control(petri, probes, row, weak):
    """The same probe where the wall is down: it runs, and its check fails."""
    write(petri.path("other", "id_rsa"), CANARY)
    more = row.weak_flags or ()
    try:
        r = probe(petri, probes, row, weak, more)
    except AssertionError as e:
        assert "the probe did not run" not in str(e), e
        return
    pytest.fail(f"{row.name} did not notice that '{weak or more}' is down\n{r!r}")


def test_control_of_zombies(probes):
    """R08's probe under a PID 1 that reaps nobody."""
    r = subprocess.run(["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc",
                        f"{probes}/lazyinit", f"{probes}/orphans", "50", "3"], capture_output=True, text=True)
    assert r.stdout == "STARTED\nORPHANED 50 ZOMBIES 50\n", r


def test_weakening_is_not_in_the_real_program(petri):
    """The switch exists in the test build only."""
    assert b"PETRI_WEAKEN" not in read(BIN)
    r = petri.sh("grep Seccomp: /proc/self/status", env={"PETRI_WEAKEN": "seccomp,caps,nnp,userns"}).ok()
    assert re.search(r"Seccomp:\s*2", r.out)


DEVICES = ("null", "zero", "full", "random", "urandom", "tty")


def devices():
    return {d: (st.st_uid, st.st_gid, st.st_mode) for d in DEVICES
            for st in [os.stat(f"/dev/{d}")]}


@pytest.mark.parametrize("user", ["own", "0"] if USER_0 else ["own"])
def test_host_devices_stay_the_hosts(petri, user):
    """The device nodes inside are the host's own: nobody in there may own or change them (the probe
    sets the mode they have)."""
    before = devices()
    flags = () if user == "own" else ("-u", user)
    r = petri.sh("for d in " + " ".join(DEVICES) + "; do chmod 666 /dev/$d 2>/dev/null && echo CHANGED $d; "
                 "test -O /dev/$d && echo OWNS $d; done; true", *flags).ok()
    assert devices() == before, "petri changed the host's device nodes"
    assert r.out == "", r


# --- S03 and the leak check itself -----------------------------------------------------------

def test_leak_check_sees_a_process(leakcheck):
    p = subprocess.Popen(["sh", "-c", "setsid sleep 300 & echo $!"], stdout=subprocess.PIPE)
    pid = int(p.stdout.readline())
    p.wait()
    p.stdout.close()
    left = leakcheck.left(0.3)
    os.kill(pid, 9)
    assert str(pid) in str(left), left


@pytest.mark.root
def test_leak_check_sees_mounts_cgroups_and_files(leakcheck, workdir):
    d, g = os.path.join(workdir, "leak"), "/sys/fs/cgroup/petri-leak-check"
    if not CGROUP_V2:
        g = "/sys/fs/cgroup/pids/petri-leak-check"
    os.makedirs(d)
    subprocess.run(["mount", "-t", "tmpfs", "none", d], check=True)
    os.mkdir(g)
    write("/tmp/petri-leak-check", "")
    left = leakcheck.left(0.3)
    subprocess.run(["umount", d], check=True)
    os.rmdir(g)
    os.unlink("/tmp/petri-leak-check")
    assert {"mounts", "cgroups", "files"} <= set(left), left


@pytest.mark.parametrize("how", ["ends", "fails", "times-out", "is-killed"])
def test_nothing_is_left(petri, how):
    """S03 for a one-shot run: processes, mounts, cgroups, namespaces, files, whichever way it ends."""
    leaks = Leaks(deep=True)
    if how == "is-killed":
        p = petri.start("--", "sh", "-c", "setsid sleep 300 & echo ready; sleep 300")
        assert p.stdout.readline() == b"ready\n"
        p.kill()
        p.wait()
        petri.run("--", "true").ok()
    else:
        petri.sh({"ends": "setsid sleep 300 & true", "fails": "setsid sleep 300 & exit 3",
                  "times-out": "setsid sleep 300 & sleep 300"}[how], "--timeout", "1")
    left = leaks.left()
    assert not left, left
    assert not store_left(petri.store)


# --- A02 -------------------------------------------------------------------------------------

NAMES = ["../x", "..", ".", "/abs", "a/b", "-rf", "--", "", "x" * 4096, "ünï", "a b", "a\nb", "a\0b"[:1] + "\t",
         "\x1b[31m", "*", "$(id)", "x" * 300, "‮", ".hidden"]


@pytest.mark.parametrize("name", NAMES, ids=[f"{i}" for i in range(len(NAMES))])
def test_names_that_are_refused(petri, name):
    """A02: what becomes a path component must be a plain name."""
    r = petri.run(f"--name={name}", "--", "echo", "ran").ok(125)
    assert "ran" not in r.out and len(r.talk.splitlines()) == 1 and len(r.talk) < 1000, r
    assert "\x1b" not in r.talk and "\u202e" not in r.talk, "hostile text reaches the terminal"


def test_names_that_are_taken(petri):
    for name in ("a", "shop-1", "my_box.2", "A" * 60):
        petri.run("--name", name, "--", "true").ok()
