"""Sandboxes whose petri dies: killed at any system call that changes something, out of room, errors of the disk.

M09: afterwards every sandbox is there as a whole or not at all, what it wrote is what it wrote, the project is
untouched, and the next command works. A fair sample here; everything with PETRI_SOAK=1.
"""
import os
import random
import re
import shutil
import subprocess

import pytest

import helpers
from helpers import descendants, patience, processes, tree, wait_for
from life import life  # noqa: F401

SOAK = bool(os.environ.get("PETRI_SOAK"))
SAMPLE = 10**9 if SOAK else 7
# Calls after which something is different, on the disk or for another process.
CHANGING = ("write", "fsync", "rename", "renameat", "renameat2", "symlink", "symlinkat", "unlink", "unlinkat", "mkdir",
            "mkdirat", "link", "linkat", "connect", "sendmsg", "sendto", "flock", "clone", "openat")
SAVED, NOW, NEW = "saved\n", "now\n", "nothing yet"

pytestmark = pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")


# --- strace ----------------------------------------------------------------------------------------------

class Trace:
    """petri WORDS under strace. `follow`: its children as well, the keeper among them; `keeper`: not petri
    itself but this process, which is asked by it."""

    def __init__(self, life, words, *spec, follow=False, keeper=None):
        self.life, self.file = life, life.petri.path("trace")
        argv = ["strace", "-q", "-I2", "-o", self.file] + (["-f"] if follow else [])
        for s in spec:
            argv += ["-e", s]
        if os.path.exists(self.file):
            os.unlink(self.file)
        if keeper:
            self.on_keeper(argv + ["-p", str(keeper)], words, keeper)
        elif follow:
            self.followed(argv, words)
        else:
            self.result(subprocess.run(argv + [helpers.BIN, *words], **self.how(), timeout=patience(120)))

    def how(self):
        return {"cwd": self.life.project, "env": self.life.petri.env, "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}

    def result(self, p):
        if b"ptrace" in p.stderr:
            pytest.skip(f"strace does not work here: {p.stderr[:200]!r}")
        self.rc, self.out = p.returncode, p.stdout.decode()
        self.err = "".join(x for x in p.stderr.decode().splitlines(True) if not x.startswith("strace: "))

    def lines(self):
        with open(self.file, errors="replace") as f:
            return f.read().splitlines()

    def on_keeper(self, argv, words, keeper):
        s = subprocess.Popen(argv, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)

        def attached():
            with open(f"/proc/{keeper}/status") as f:
                return f"TracerPid:\t{s.pid}\n" in f.read() or s.poll() is not None
        wait_for(attached, what="strace")
        if s.poll() is not None:
            pytest.skip(f"strace can't attach here: {s.communicate()[1][:200]!r}")
        try:
            self.result(subprocess.run([helpers.BIN, *words], **self.how(), timeout=patience(120)))
        finally:
            s.terminate()  # it lets go of whom it watched
            s.communicate(timeout=patience(60))

    def followed(self, argv, words):
        """The keeper stays, and so would strace: it goes when petri has ended."""
        out = self.life.petri.path("trace.out")
        with open(out, "wb+") as f:
            s = subprocess.Popen(argv + [helpers.BIN, *words], **{**self.how(), "stdout": f, "stderr": f})

            def ended():
                lines = self.lines() if os.path.exists(self.file) else []
                first = lines[0].split()[0] if lines else "none"
                over = [re.match(rf"{first} +\+\+\+ (?:exited with (\d+)|killed)", x) for x in lines]
                return next(filter(None, over), None) or s.poll() is not None
            end = wait_for(ended, seconds=120, what="the end of petri")
            # Asked to go, strace would wait for a process that waits for its vfork()ed child, which strace holds; when
            # it is killed the kernel lets all of them go.
            rc = s.poll()
            s.kill()
            s.wait(patience(60))
            f.seek(0)
            rc = rc if end is True else int(end.group(1) or -9)
            self.result(subprocess.CompletedProcess(argv, rc, b"", f.read()))

    def calls(self):
        """(call, how many of this kind its process had made with it, its arguments), of all processes."""
        seen, found = {}, []
        for line in self.lines():
            m = re.match(r"(?:(\d+) +)?(\w+)\((.*)", line)
            if not m or m.group(2) not in CHANGING:
                continue
            key = m.group(1), m.group(2)
            seen[key] = seen.get(key, 0) + 1
            found.append((m.group(2), seen[key], m.group(3)))
        return found


def moments(trace, size=SAMPLE, only=CHANGING):
    """A sample of a trace's calls: openat where it makes something, as many kinds as possible."""
    every = sorted({(name, k) for name, k, args in trace.calls() if name in only and
                    (name != "openat" or "O_CREAT" in args) and not (name == "write" and args[:2] in ("1,", "2,"))})
    rest = random.Random(11)
    rest.shuffle(every)
    if len(every) <= size:
        return every
    first = [next(m for m in every if m[0] == name) for name in sorted({m[0] for m in every})]
    rest.shuffle(first)
    return (first + [m for m in every if m not in first])[:size]


# --- the world and what must hold -------------------------------------------------------------------------

class World:
    """A project, its own sandbox proj-1 with a snapshot s1, and the forks that come and go."""

    def __init__(self, life, running):
        self.life, self.running = life, running
        life.petri.file("kept", "of the project\n")
        self.before = tree(life.project)
        life.start()
        life.sh("echo saved > f; rm kept; mkdir d; echo in > d/in; echo home > ~/h").ok()
        self.sure_snapshot()
        life.sh("echo now > f; rm -r d").ok()
        self.ready()

    def sure_snapshot(self):
        assert self.life.snap() == "s1"

    def ready(self):
        """proj-1 alone, as it was made, and running or not as the test wants it."""
        if self.running:
            self.life.start()
            if self.content() != NOW:
                self.life.sh("echo now > f; rm -rf d").ok()
        else:
            if self.content() != NOW:
                self.life.start()
                self.life.sh("echo now > f; rm -rf d").ok()
            self.life("stop", "-q").ok()

    def content(self, name="proj-1"):
        """What is in f; everything else must fit to it."""
        self.life("start", "-q", name).ok()
        got = self.life.out("cat f; ls; ls d 2>/dev/null; cat ~/h; true", box=name)
        whole = {SAVED: "saved\nREADME\nd\nf\npetri.json\nin\nhome\n", NOW: "now\nREADME\nf\npetri.json\nhome\n",
                 NEW: "README\nkept\npetri.json\n"}
        assert got in whole.values(), (name, got)
        return next(k for k, v in whole.items() if v == got)

    def snapshots(self):
        return [s["id"] for s in self.life("snapshot", "ls", "--json", "proj-1").ok().json]

    def others(self):
        return sorted(set(self.life.ls()) - {"proj-1"})

    def remove(self, name):
        """One whose maker was killed may still be on its way."""
        wait_for(lambda: self.life("rm", "-f", name).rc == 0 or name not in self.life.ls(), what=f"the end of {name}")

    def holds(self, what, others):
        """After a death: all of it, for every sandbox that is there; one whose maker was killed may come any time."""
        self.life.whole()
        assert "proj-1" in self.life.ls(), what
        for name in self.others():
            assert self.content(name) == others, what
            self.remove(name)
        assert tree(self.life.project) == self.before, what
        snaps = self.snapshots()
        assert snaps[:1] == ["s1"] and len(set(snaps)) == len(snaps), (what, snaps)
        return self.content()

    def clean(self):
        # what is not locked yet has a minute for that; not here
        top = os.path.join(self.life.petri.store, "sandboxes")
        for name in os.listdir(top):
            if name.startswith(".new-"):
                os.utime(os.path.join(top, name), (1, 1))
        for name in self.others():
            self.remove(name)
        wait_for(lambda: self.life("fsck", "--repair").rc == 0 and self.life("fsck").rc == 0, what="a clean store")


def gone(pids, what):
    """What ran in a sandbox whose keeper died ends by itself."""
    wait_for(lambda: not set(pids) & {p for p, (_, s, _) in processes().items() if s != "Z"}, what=f"the end ({what})")


# name: the words, whether the sandbox runs, what f may say afterwards
CASES = {
    "fork": (("fork", "--name", "x"), True, {NOW}),
    "snapshot": (("snapshot",), True, {NOW}),
    "rollback": (("rollback", "s1"), True, {NOW, SAVED}),
    "stop": (("stop",), True, {NOW}),
    "start": (("start",), False, {NOW}),
    "new": (("start", "x"), False, {NOW}),
    "rm": (("rm", "-f", "x"), True, {NOW}),
    "fork-stopped": (("fork", "--name", "x"), False, {NOW}),
    "snapshot-stopped": (("snapshot",), False, {NOW}),
    "rollback-stopped": (("rollback", "s1"), False, {NOW, SAVED}),
}


class Rounds:
    """One command over and over, each time from the same beginning."""

    def __init__(self, life, case, who):
        self.words, running, self.allowed = CASES[case]
        self.case, self.who, self.world, self.life = case, who, World(life, running), life

    def once(self, *spec):
        self.world.ready()
        if self.case == "rm":
            self.life.fork("--name", "x")
        self.snaps = self.world.snapshots()
        box = ("x",) if self.case == "rm" else ()
        keeper = self.life.keeper(*box) if self.who == "keeper" else None
        self.pids = [keeper, *descendants(keeper)] if keeper else []
        return Trace(self.life, self.words, *spec, follow=self.who == "follow", keeper=keeper)

    def record(self):
        t = self.once(f"trace={','.join(CHANGING)}")
        assert t.rc == 0, t.err
        self.after()
        return t

    def after(self, what="the command itself"):
        """-> what is in f"""
        if self.pids and not os.path.exists(f"/proc/{self.pids[0]}"):
            gone(self.pids, what)
        got = self.world.holds(what, NEW if self.case == "new" else NOW)
        assert got in self.allowed, (what, got)
        return got


KILLS = [("client", c) for c in CASES] + [("follow", c) for c in ("fork", "start", "new")] + \
        [("keeper", c) for c in ("fork", "snapshot", "rollback", "stop", "rm")]


@pytest.mark.parametrize("who,case", KILLS, ids=lambda x: x)
def test_killed_at_any_call(life, who, case):
    """M09"""
    rounds = Rounds(life, case, who)
    for name, k in moments(rounds.record()):
        rounds.once(f"trace={name}", f"inject={name}:signal=KILL:when={k}")
        rounds.after((name, k))
    rounds.world.clean()


ERRORS = [("client", c) for c in ("new", "fork", "snapshot-stopped", "rollback-stopped", "fork-stopped")] + \
         [("keeper", c) for c in ("snapshot", "rollback", "fork")]


@pytest.mark.parametrize("who,case", ERRORS, ids=lambda x: x)
def test_errors_of_the_disk(life, who, case):
    """One line, nothing changed and the sandbox as good as before; or done, where the error did not matter."""
    rounds = Rounds(life, case, who)
    disk = ("write", "fsync", "rename", "renameat", "mkdir", "mkdirat", "symlink", "openat")
    for i, (name, k) in enumerate(moments(rounds.record(), SAMPLE, disk)):
        error = ("ENOSPC", "EIO")[i % 2]
        t = rounds.once(f"trace={name}", f"inject={name}:error={error}:when={k}")
        what = (name, k, error, t.rc, t.err)
        assert t.rc == 0 or (t.err.startswith("petri: ") and t.err.count("\n") == 1), what
        made, snaps = set(rounds.world.others()), rounds.world.snapshots()
        got = rounds.after(what)
        # a directory that can't be synced: the record is there already, and nobody knows for how long
        if t.rc and name != "fsync" and "the answer to stdout" not in t.err:
            assert not made and got == NOW and snaps == rounds.snaps, (what, made, got, snaps)
    rounds.world.clean()
