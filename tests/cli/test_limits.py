"""Limits: enforced, or refused with a reason; never silently absent."""
import os
import re
import subprocess
import threading
import time

import pytest

from helpers import CAN_LIMIT, CGROUP_V2, descendants, place, read, wait_for


@pytest.fixture
def probe(petri, probes):
    """Puts a probe program into the project."""
    def put(name):
        place(probes, name, petri.project)
        return f"./{name}"
    return put


def number(pattern, text):
    m = re.search(pattern, text)
    assert m, text
    return int(m.group(1))


@pytest.mark.cgroups
def test_memory(petri, probe):
    r = petri.run("-m", "64M", "--", probe("hog"), "300").ok(137)
    assert "STARTED" in r.out and "GOT" not in r.out
    assert "memory" in r.talk, r  # petri says why it died
    petri.run("-m", "64M", "--", "./hog", "20").ok()


@pytest.mark.tmpfs
@pytest.mark.cgroups
def test_memory_of_files_counts_too(petri):
    """/tmp and /dev/shm are memory: they can't be used to get around the limit."""
    for where in ("/tmp", "/dev/shm"):
        r = petri.sh(f"dd if=/dev/zero of={where}/x bs=1M count=300 2>/dev/null; "
                     f"stat -c %s {where}/x", "-m", "64M")
        assert r.rc == 137 or int(r.out or 0) <= 64 << 20, r


@pytest.mark.cgroups
def test_memory_kills_only_the_sandbox(petri, probe):
    probe("hog")
    other = petri.start("--", "sh", "-c", "echo ready; read x; exit 4", stdin=subprocess.PIPE)
    assert other.stdout.readline() == b"ready\n"
    petri.run("-m", "64M", "--", "./hog", "300").ok(137)
    other.communicate(b"\n", timeout=10)
    assert other.returncode == 4


@pytest.mark.cgroups
def test_cpus(petri):
    """Half a cpu: at most about half of the wall time is used by a loop that would take all of it."""
    r = petri.run("--cpus", "0.5", "--", "python3", "-c",
                  "import time\nt = time.monotonic()\nc = time.process_time()\n"
                  "while time.monotonic() - t < 1.5: pass\n"
                  "print((time.process_time() - c) / (time.monotonic() - t))").ok()
    assert 0 < float(r.out) < 0.75, r


@pytest.mark.cgroups
def test_limits_are_visible_in_the_cgroup(petri):
    """What was asked for is what the kernel was told (seen from outside, by the process)."""
    p = petri.start("-m", "100M", "--pids-limit", "50", "--", "sh", "-c", "echo ready; sleep 300")
    assert p.stdout.readline() == b"ready\n"
    pid = wait_for(lambda: [x for x, n in descendants().items() if n.startswith("sleep")])[0]
    groups = dict(x.split(":", 2)[1:] for x in read(f"/proc/{pid}/cgroup").decode().split())
    if CGROUP_V2:
        top = "/sys/fs/cgroup" + groups[""]
        assert read(top + "/memory.max").strip() == str(100 << 20).encode()
        assert 50 <= int(read(top + "/pids.max")) <= 52
    else:
        mem = "/sys/fs/cgroup/memory" + groups["memory"]
        assert int(read(mem + "/memory.limit_in_bytes")) == 100 << 20
        with open("/sys/fs/cgroup/pids" + groups["pids"] + "/pids.max") as f:
            assert 50 <= int(f.read()) <= 52  # petri-init has to live too
    p.kill()
    p.wait()


def test_pids(petri, probe):
    r = petri.run("--pids-limit", "32", "--", probe("forks"), "200")
    if r.rc == 125 and not CAN_LIMIT:
        assert "pids" in r.talk and re.search("cgroup|subuid|root", r.talk), r
        return
    assert 10 <= number(r"FORKED (\d+)", r.ok().out) <= 32, r


def test_default_pids(petri, probe):
    r = petri.run("--", probe("forks"), "3000").ok()
    assert 200 <= number(r"FORKED (\d+)", r.out) <= 256, r


def test_pids_are_counted_per_sandbox(petri, probe):
    """Two sandboxes of one user don't take each other's share."""
    probe("forks")
    a = petri.start("--", "sh", "-c", "for i in $(seq 150); do sleep 300 & done; echo ready; sleep 300")
    assert a.stdout.readline() == b"ready\n"
    r = petri.run("--", "./forks", "150").ok()
    a.kill()
    a.wait()
    assert number(r"FORKED (\d+)", r.out) == 150


@pytest.mark.tmpfs
def test_disk(petri):
    r = petri.sh("dd if=/dev/zero of=x bs=1M count=64 2>&1; stat -c %s x", "--disk", "16M").ok()
    assert "No space" in r.out or "quota" in r.out, r
    assert int(r.out.split()[-1]) <= 16 << 20
    assert not os.path.exists(os.path.join(petri.project, "x"))


@pytest.mark.tmpfs
def test_disk_everywhere(petri):
    """Home, /tmp and the workspace are all bounded; /dev/shm is memory and has its own bound."""
    for where in ("~", "/tmp", "/workspace", "/var/tmp", "/run", "/dev/shm", "/dev"):
        r = petri.sh(f"cd {where} && dd if=/dev/zero of=x bs=1M count=128 2>/dev/null; stat -c %s x",
                     "--disk", "16M")
        most = 64 << 20 if where == "/dev/shm" else 16 << 20
        assert int(r.out.strip() or 0) <= most, (where, r)


@pytest.mark.tmpfs
def test_disk_then_room_again(petri):
    petri.sh("dd if=/dev/zero of=x bs=1M count=64 2>/dev/null; rm x; echo fits >y", "--disk", "16M").ok()


@pytest.mark.root
def test_disk_beyond_memory_is_a_loop(petri):
    r = petri.sh("dd if=/dev/zero of=x bs=1M count=128 2>&1; stat -c %s x", "-m", "64M", "--disk", "48M").ok()
    assert "No space" in r.out and int(r.out.split()[-1]) <= 48 << 20, r
    j = petri.json("-m", "64M", "--disk", "48M", "--", "true", rc=0)
    assert j["limits"]["disk"] == {"value": 48 << 20, "enforced": "loop"}, j["limits"]


@pytest.mark.user
def test_disk_beyond_memory_is_watched(petri):
    """Nothing in the kernel stops it, so petri does: the sandbox ends."""
    j = petri.json("--disk", "1100M", "--", "sh", "-c", "fallocate -l 1300M x; echo STARTED; sleep 300", rc=137)
    assert j["limits"]["disk"]["enforced"] == "watched" and {"type": "disk"} in j["events"], j
    assert j["stdout"] == "STARTED\n"


@pytest.mark.tmpfs
def test_disk_copy_up_counts(petri):
    petri.file("big", b"x" * (32 << 20))
    r = petri.sh("echo more >>big; echo $?", "--disk", "16M")
    assert r.out.strip() != "0", r


@pytest.mark.tmpfs
def test_inodes(petri, probe):
    """Empty files run out as well: each costs kernel memory, so a small disk has few of them."""
    r = petri.run("--disk", "16M", "--", probe("files"), "100000", "/workspace").ok()
    assert "No space" in r.out or "quota" in r.out, r


@pytest.mark.tmpfs
def test_default_inodes(petri):
    r = petri.sh("for d in . ~ /tmp /dev/shm; do stat -f -c %c $d; done").ok()
    assert all(0 < int(n) <= 1000000 for n in r.out.split()), r


def test_open_files(petri):
    soft, hard = petri.sh("ulimit -Sn; ulimit -Hn").ok().out.split()
    assert int(hard) <= 65536 and int(soft) <= int(hard)


def test_no_core_dumps(petri):
    assert petri.sh("ulimit -Hc").ok().out.strip() == "0"
    petri.sh("ulimit -c unlimited 2>/dev/null; kill -SEGV $$").ok(139)


def test_namespace_allowance(petri):
    """Inside, every /proc/sys/user/max_* is small: one sandbox can't use up its user's share."""
    r = petri.sh("for f in /proc/sys/user/max_*; do echo $(basename $f) $(cat $f); done").ok()
    rows = dict(x.split() for x in r.out.splitlines())
    outside = {n: int(read(f"/proc/sys/user/{n}")) for n in rows}
    assert rows
    for name, value in rows.items():
        assert int(value) < outside[name] or outside[name] <= 128, (name, value, outside[name])
    assert int(rows["max_user_namespaces"]) == 0, rows


@pytest.mark.no_cgroups
@pytest.mark.parametrize("flags", [["-m", "64M"], ["--cpus", "1"], ["--memory", "1G"]])
def test_asked_for_and_impossible_is_refused(petri, flags):
    before = os.path.exists(petri.store)
    r = petri.run(*flags, "--", "echo", "ran").ok(125)
    assert "ran" not in r.out
    assert "cgroup" in r.talk and len(r.talk.splitlines()) == 1, r
    assert re.search(r"root|v2|delegat|systemd|petri doctor|without|leave", r.talk), r  # the remedy
    assert before or not os.path.exists(os.path.join(petri.store, "sandboxes")) or not os.listdir(
        os.path.join(petri.store, "sandboxes"))


@pytest.mark.no_cgroups
def test_defaults_that_do_not_hold_are_said_once(petri):
    first = petri.run("--", "true").ok()
    lines = [x for x in first.talk.splitlines() if "memory" in x]
    assert len(lines) == 1, first
    again = petri.run("--", "true").ok()
    assert len([x for x in again.talk.splitlines() if "memory" in x]) <= 1


@pytest.mark.root
def test_limits_beyond_the_machine(petri):
    """More than there is is no mistake of the user's, an absurd value is."""
    petri.run("-m", "1T", "--", "true", timeout=20)
    petri.run("--cpus", "64", "--", "true").ok()


@pytest.mark.cgroups
def test_too_small_to_start(petri):
    """A limit nothing can start with is an error of one line, not a hang."""
    r = petri.run("-m", "1k", "--", "true", timeout=20)
    assert r.rc in (125, 137) and len(r.talk.splitlines()) <= 3, r
    r = petri.run("--pids-limit", "1", "--", "true", timeout=20)
    assert r.rc in (0, 125), r


# --- output ----------------------------------------------------------------------------------

def test_output_is_cut_and_marked(petri):
    r = petri.sh("yes | head -c 100000; echo tail >&2; exit 3", "--max-output", "1000").ok(3)
    assert 1000 <= len(r.outb) < 1200 and r.outb.startswith(b"y\n" * 500), len(r.outb)
    assert "truncated" in r.talk or "truncated" in r.out, r
    assert "tail" in r.err


def test_output_caps_each_stream(petri):
    r = petri.sh("yes | head -c 100000 >&2; echo fine", "--max-output", "1000").ok()
    assert r.out == "fine\n" and len(r.errb) < 1500


def peak_of(p):
    """Reads petri's stdout to the end; its largest resident size in KiB, and what it wrote."""
    peak, sink = 0, []
    t = threading.Thread(target=lambda: sink.append(p.stdout.read()))
    t.start()
    while p.poll() is None:
        m = re.search(rb"VmHWM:\s+(\d+) kB", read(f"/proc/{p.pid}/status"))
        peak = max(peak, int(m.group(1))) if m else peak
        time.sleep(0.02)
    t.join(60)
    return peak, sink[0]


@pytest.mark.parametrize("flags", [(), ("--json",)], ids=["plain", "json"])
def test_flood_does_not_grow_petri(petri, flags):
    """The command runs to its end, drained, while petri stays small."""
    p = petri.start(*flags, "--max-output", "1M", "--", "sh", "-c", "yes | head -c 300M; exit 3")
    peak, out = peak_of(p)
    assert p.returncode == 3 and 0 < peak < 64 << 10, (p.returncode, peak)
    assert len(out) < 2 << 20


def test_flood_of_json_at_the_default_cap(petri):
    """10 MiB of bytes that are not text, kept and encoded: still bounded."""
    p = petri.start("--json", "--", "head", "-c", "100M", "/dev/urandom")
    peak, _ = peak_of(p)
    assert p.returncode == 0 and peak < 160 << 10, peak
