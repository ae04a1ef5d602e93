"""Any process of petri's dies at any moment: what ran is gone, the next command finds all in order."""
import contextlib
import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest

from helpers import BIN, SLOW, descendants, tree, wait_for
from life import life, one_line  # noqa: F401

KILLS = int(os.environ.get("PETRI_TEST_KILLS", "2000" if os.environ.get("PETRI_SOAK") else "30"))


def seeded():
    seed = int(os.environ.get("PETRI_TEST_SEED", random.SystemRandom().randrange(1 << 30)))
    print(f"PETRI_TEST_SEED={seed}")
    return random.Random(seed)


def running(life):
    """A sandbox at work: a command with a client, one in the background, a job."""
    life.start()
    life.sh("echo kept > f; echo kept > ~/f; (setsid sleep 999 > /dev/null 2>&1 &)").ok()
    life("exec", "-d", "--", "sleep", "999").ok()
    p = life.begin("exec", "--", "sh", "-c", "echo up; sleep 999")
    assert p.stdout.readline() == b"up\n"
    return p


@pytest.mark.parametrize("victim", ["keeper", "launcher", "init"])
def test_killed(life, victim):
    """Its processes end by themselves, soon; the project is untouched, the sandbox's files are there."""
    before, others = tree(life.project), set(descendants())
    p = running(life)
    pid = life.status()["init_pid"] if victim == "init" else getattr(life, victim)()
    at = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    assert p.wait(20) != 0
    wait_for(lambda: not set(descendants()) - others, what="the end of all processes")
    assert time.monotonic() - at < 2 + 10 * SLOW
    assert life.status()["state"] == "stopped" and life("ls").ok()
    one_line(life("exec", "--", "true"), "is stopped", "petri start")
    one_line(life("stop"), "was stopped already")
    life.start()
    assert life.out("cat f ~/f; ps axo args | grep -c '[s]leep' || true") == "kept\nkept\n0\n"
    assert tree(life.project) == before


@pytest.mark.parametrize("op", ["fork", "snapshot"])
def test_keeper_killed_while_it_stands_still(life, op):
    """Who is paused can't see that its keeper died; it ends all the same."""
    rnd, others = seeded(), set(descendants())
    life.start()
    life.sh("i=0; while [ $i -lt 300 ]; do i=$((i+1)); head -c 20000 /dev/zero > f$i; done").ok()
    for _ in range(max(4, KILLS // 10)):
        life.start()
        p = life.begin("exec", "--", "sh", "-c", "echo up; while :; do echo x > y; done")
        assert p.stdout.readline() == b"up\n"
        keeper = life.keeper()
        o = life.begin(op)
        time.sleep(rnd.uniform(0, 0.04) * SLOW)
        os.kill(keeper, signal.SIGKILL)
        o.communicate(timeout=60)
        p.kill()
        p.wait()
        forks = [s["name"] for s in life.ls().values() if s["name"] != "proj-1"]
        if forks:
            life("rm", "-f", *forks).ok()
        wait_for(lambda: not set(descendants()) - others, what="the end of all processes")
        life.start()
        assert life.out("ls | grep -c '^f[0-9]'") == "300\n"
        life.whole()


OPS = {
    "start": ("start", "x"), "fork": ("fork", "base"), "snapshot": ("snapshot", "base"), "rm": ("rm", "-f", "x"),
    "stop": ("stop", "x"), "restart": ("restart", "base"), "rollback": ("rollback", "base", "s1"), "forks": ("fork", "-n", "4", "base"),
}


def ok(r):
    return r if r.rc == 0 else None


def kill_new_keepers(known, rnd):
    """Some of petri's processes that were not there before."""
    for pid, name in descendants().items():
        if pid not in known and "petri" in name and rnd.random() < 0.5:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


@pytest.mark.parametrize("what", ["client", "client and keepers"])
def test_killed_in_the_middle(life, what):
    """A command is killed at a random moment: each sandbox exists or does not, works, and holds what it held."""
    rnd, before = seeded(), tree(life.project)
    life.start("base")
    life.sh("echo kept > f; echo kept > ~/f", box="base").ok()
    life.snap("base")
    for _ in range(KILLS // 2):
        op = rnd.choice(list(OPS))
        known = set(descendants())
        p = life.begin(*OPS[op], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rnd.uniform(0, 0.08) * SLOW)
        p.kill()
        p.wait()
        if what != "client":
            kill_new_keepers(known, rnd)
        life("ls").ok()
        # one whose init was just killed may not have noticed yet
        r = wait_for(lambda: life("start", "base").rc == 0 and ok(life.sh("cat f ~/f", box="base")), what=f"base after {op}")
        assert r.out == "kept\nkept\n", (op, r)
        if len(life.ls()) > 8:
            life("rm", "-f", *[n for n in life.ls() if n != "base"])
    for name, s in life.ls().items():
        if s["parent"]:
            r = wait_for(lambda: life("start", name).rc == 0 and ok(life.sh("cat f ~/f", box=name)), what=name)
            assert r.out == "kept\nkept\n", r
    life.whole()
    assert tree(life.project) == before


def test_machine_went_away(life):
    """All of it at once: as after a crash nothing runs, and the record is what was written last."""
    life.start()
    life.sh("echo 1 > f").ok()
    life.snap()
    life.sh("echo 2 > f").ok()
    life.fork("-n", "3")
    for pid in sorted(descendants(), reverse=True):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    wait_for(lambda: all(s["state"] == "stopped" for s in life.ls().values()), what="the end")
    assert len(life.ls()) == 4
    for n in life.ls():
        life.start(n)
        assert life.out("cat f", box=n) == "2\n"
    life("rollback", "s1").ok()
    assert life.out("cat f") == "1\n"
    life.whole()


def test_lost_sockets(life):
    """The run directory is cleared under a running sandbox (a logout does that): it can still be ended."""
    life.start()
    run = os.path.join(life.petri.store, "run", life.ls()["proj-1"]["id"])
    keeper = life.keeper()
    for n in os.listdir(run):
        os.unlink(os.path.join(run, n))
    r = life("stop")
    if r.rc:
        one_line(r)
        os.kill(keeper, signal.SIGTERM)
    wait_for(lambda: not os.path.exists(f"/proc/{keeper}") or keeper not in descendants(), what="the keeper's end")
    life.start()
    assert life.out("echo ok") == "ok\n"


def test_sigterm_of_the_keeper_is_a_stop(life):
    p = running(life)
    os.kill(life.keeper(), signal.SIGTERM)
    assert p.wait(30) != 0
    life.stopped()
    life.start()
    assert life.out("cat f") == "kept\n"


def test_broken_records(life):
    """A record that is not one: said so, nothing else stops working."""
    life.start("good")
    life.start("bad")
    life("stop", "bad").ok()
    path = os.path.join(life.petri.store, "sandboxes", life.ls()["bad"]["id"], "state.json")
    with open(path) as f:
        text = f.read()
    for broken in ("", "{", "[]", "null", text[:100], text.replace('"schema": 2', '"schema": 99'), text.replace(': "', ": 7"), "\0" * 500):
        with open(path, "w") as f:
            f.write(broken)
        for words in (("start", "bad"), ("status", "bad"), ("fork", "bad"), ("snapshot", "bad")):
            r = life(*words)
            assert r.rc in (1, 2) and r.talk.count("\n") == 1, (broken[:20], r)
        assert "good" in life.ls()
        assert life.out("echo ok", box="good") == "ok\n"
    with open(path, "w") as f:
        f.write(text)
    life.start("bad")


def hang_up(there):
    with contextlib.suppress(OSError):
        while True:
            there.accept()[0].close()


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_keeper_that_hangs_up(life):
    """It takes the call and ends before it hears the question: an answer for who asked, not a signal."""
    life.start()
    box = life.status()["id"]
    life("stop").ok()
    ctl, there = os.path.join(life.petri.store, "run", box), socket.socket(socket.AF_UNIX)
    os.makedirs(ctl, mode=0o700, exist_ok=True)
    with there:
        there.bind(os.path.join(ctl, "ctl"))
        there.listen(8)
        threading.Thread(target=hang_up, args=(there,), daemon=True).start()
        for words in (["status", "--json"], ["stop"], ["rm", "-f", box]):
            p = subprocess.run(["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=connect", "-e",
                                "inject=connect:delay_exit=200000", BIN, *words], cwd=life.project,
                               env=life.petri.env, capture_output=True, timeout=60)
            assert p.returncode == (words == ["stop"]), p  # which finds nothing to stop


def test_with_very_many_the_look_around_is_rare(life):
    """What the dead left goes with the next run; where more than a hundred run, with one in some seconds."""
    running, left = (os.path.join(life.petri.store, d) for d in ("running", "sandboxes/.new-left"))
    life.start()
    os.mkdir(left)
    life.petri.sh("true").ok()
    wait_for(lambda: not os.path.exists(left), what="it to be taken away")
    with contextlib.ExitStack() as held:
        for i in range(110):
            f = held.enter_context(open(os.path.join(running, f"{i:012x}"), "w", encoding="ascii"))
            fcntl.flock(f, fcntl.LOCK_EX)
        for age in (60, 0):
            with open(os.path.join(running, ".swept"), "w", encoding="ascii"):
                pass
            os.utime(os.path.join(running, ".swept"), (time.time() - age,) * 2)
            os.mkdir(left)
            life.petri.sh("true").ok()
            assert os.path.exists(left) == (age == 0)
        for i in range(110):
            os.unlink(os.path.join(running, f"{i:012x}"))
    life.petri.sh("true").ok()
    assert not os.path.exists(left)


def test_start_beside_one_that_fails(life):
    """Whoever waited for somebody else's start of the same sandbox makes it, where that one came to nothing."""
    for i in range(12):
        fails = subprocess.Popen([BIN, "start", "-q", "--startup-timeout", "1ms", f"x{i}"], cwd=life.project,
                                 env=life.petri.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.0015 * i)
        r = life("start", "-q", f"x{i}")
        fails.wait()
        assert r.rc == 0 or "other flags" in r.talk, r
