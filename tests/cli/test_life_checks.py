"""The isolation checks' rows about sandboxes that live: S, A, P and R."""
import os
import re
import subprocess
import threading

import pytest

from helpers import SLOW, Leaks, Tty, place, tree, wait_for
from life import life  # noqa: F401


def answers(life, box=None):
    """A sandbox that was maltreated still is one."""
    assert wait_for(lambda: life.sh("echo alive", box=box).out, what="an answer") == "alive\n"


def test_s01_no_sandbox_sees_what_another_wrote(life):
    for flags, places in (((), "/tmp ~ ."), (("-u", "0"), "/tmp /etc /root /usr . ~")):
        a, b, c = ("a", "b", "c") if flags else ("d", "e", "f")
        life.start(*flags, a)
        life.start(*flags, b)
        life.sh(f"for d in {places}; do echo m > $d/petri-s01 || exit 9; done", box=a).ok()
        life.start(*flags, c)
        for other in (b, c):
            assert life.out(f"for d in {places}; do ls -A $d/petri-s01 2>/dev/null; done; echo end", box=other) == "end\n"
    assert not any(os.path.exists(f"{d}/petri-s01") for d in ("/tmp", "/etc", "/root", "/usr", life.project, life.petri.home))


def test_s02_the_project_stays(life):
    for i in range(20):
        life.petri.file(f"d{i % 3}/f{i}", f"{i}\n")
    os.symlink("README", os.path.join(life.project, "link"))
    os.link(os.path.join(life.project, "README"), os.path.join(life.project, "hard"))
    before = tree(life.project)
    life.start()
    life.sh("find . -type f -exec sh -c 'echo x >> \"$1\"; chmod 777 \"$1\"; touch -d @1 \"$1\"' _ {} \\; ; "
            "find /workspace -mindepth 1 -delete; ls -A; mkdir d0; echo n > README").ok()
    life.snap()
    life.fork()
    life("rollback", "s1").ok()
    life("rm", "-f", *life.ls()).ok()
    assert tree(life.project) == before


def test_s03_nothing_is_left(life):
    life.start("warm")  # what petri prepares once is there now
    life("rm", "-f", "warm").ok()
    leaks = Leaks(deep=True)
    life.start()
    life.sh("setsid sleep 300 & mkdir -m 0 closed; echo 1 > ~/f").ok()
    life("exec", "-d", "--", "sleep", "300").ok()
    life.fork("-n", "2")
    life.snap()
    life("rm", "-f", *life.ls()).ok()
    assert not life.rest()
    left = leaks.left(2)
    assert not left, left


def test_a04_terminals_see_no_tricks(life):
    """The clipboard is not the sandbox's; with --raw-terminal it is."""
    life.start()
    evil = r"printf 'a\033]52;c;QUJD\ab\n'"
    for flags in ((), ("-T",)):
        t = Tty(life.petri, *flags, "--", "sh", "-c", evil, sub="exec")
        assert t.wait() == 0 and b"a" in t.seen and b"\x1b]52" not in t.seen, (flags, t.seen)
        assert t.restored()
        t.close()
    t = Tty(life.petri, "--raw-terminal", "--", "sh", "-c", evil, sub="exec")
    assert t.wait() == 0 and b"\x1b]52;c;QUJD" in t.seen
    t.close()
    life("exec", "-d", "--", "sh", "-c", evil).ok()
    life("wait", "1").ok()
    for words in (("logs",), ("jobs",), ("status",), ("ls",)):
        t = Tty(life.petri, *words[1:], sub=words[0])
        assert t.wait() == 0 and b"\x1b]52" not in t.seen, (words, t.seen)
        t.close()


def test_p09_pid_1_cannot_be_hurt(life):
    life.start()
    life.start("-u", "0", "root")
    for box in (None, "root"):
        r = life.sh("for s in STOP KILL SEGV TERM INT HUP ABRT; do kill -$s 1; done; kill -KILL -1; echo alive", box=box)
        assert "alive" in r.out or r.rc in (125, 137), r  # who else has this user's id is gone, too
        answers(life, box)
        pid = life.status(*([box] if box else []))["init_pid"]
        life.sh("prlimit --pid 1 --nofile=0:0; prlimit --pid 1 --nproc=0:0; prlimit --pid 1 --cpu=0:1; renice 19 1; "
                "chrt -i -p 0 1; true", box=box)
        answers(life, box)
        assert life.status(*([box] if box else []))["init_pid"] == pid


def test_p14_timeout_ends_all(life):
    life.start()
    r = life.sh("trap '' TERM; setsid sh -c 'trap \"\" TERM HUP; sleep 999' & sleep 999", "--timeout", "2")
    assert r.rc == 124 and r.seconds < 4 + 10 * SLOW
    wait_for(lambda: "sleep 999" not in life.out("ps axo args"), what="the end of what it started")


def test_client_gone_ends_all(life):
    life.start()
    p = life.begin("exec", "--", "sh", "-c", "trap '' TERM HUP; setsid sleep 999 & echo up; sleep 999")
    assert p.stdout.readline() == b"up\n"
    p.kill()
    wait_for(lambda: "sleep 999" not in life.out("ps axo args"), what="the end of what it started")


def test_background_goes_on(life):
    life.start()
    life.sh("(sleep 999 > /dev/null 2>&1 &) ; echo started").ok()
    assert "sleep 999" in life.out("ps axo args")


def test_r01_fork_bomb(life):
    life.start("--pids-limit", "100", "bomb")
    life.start("other")
    p = life.begin("exec", "bomb", "--", "bash", "-c", ":(){ :|:& };:; sleep 300", stderr=subprocess.DEVNULL)
    wait_for(lambda: life.status("bomb")["pids"] > 60, what="the bomb")
    answers(life, "other")
    r = life("rm", "-f", "bomb").ok()
    assert r.seconds < 5 + 10 * SLOW
    p.wait(30)


@pytest.mark.cgroups
def test_r02_memory(life, probes):
    place(probes, "hog", life.project)
    life.start("-m", "64M")
    r = life("exec", "--", "./hog", "300")
    assert r.rc == 137 and "out of memory" in r.talk and "petri restart --memory" in r.talk, r
    answers(life)
    r = life("exec", "--json", "--", "sh", "-c", "tail /dev/zero; exit 3")
    assert r.rc == 3 and [e["type"] for e in r.json["events"]] == ["oom"], r
    r = life("exec", "--json", "--", "sh", "-c", "kill -9 $$")
    assert r.rc == 137 and r.json["events"] == [], "an older event is not this command's"
    wait_for(lambda: "oom" in life.status()["events"], what="the event")


WRITERS = {
    "file": "dd if=/dev/zero of=x bs=1M count=64",
    "home": "dd if=/dev/zero of=$HOME/x bs=1M count=64",
    "many": "i=0; while [ $i -lt 64 ]; do i=$((i+1)); head -c 1M /dev/zero > /tmp/x$i || exit 1; done",
    "closed": "mkdir d; chmod 311 d; dd if=/dev/zero of=d/x bs=1M count=64",
}


@pytest.mark.parametrize("how", WRITERS)
def test_r04_disk(life, how):
    """Beyond the limit the writer ends; the sandbox answers, and goes on once there is room."""
    life.start("--disk", "32M")
    r = life.sh(f"{WRITERS[how]}; sleep 300", timeout=60)
    assert r.rc == 137 and "no space left" in r.talk and "petri restart --disk" in r.talk, r
    answers(life)
    wait_for(lambda: "disk" in life.status()["events"], what="the event")
    assert life.status()["disk"] > 32 << 20
    wait_for(lambda: life.sh("chmod 700 d 2>/dev/null; rm -rf x d ~/x /tmp/x*").rc == 0, what="room")
    life("restart").ok()
    assert life.out("sleep 1; echo 1 > f && cat f") == "1\n"


def test_r08_orphans(life, probes):
    place(probes, "orphans", life.project)
    life.start()
    assert "ORPHANED 5000 ZOMBIES 0" in life("exec", "--", "./orphans", "5000").ok().out
    assert int(life.out("ps axo stat | grep -c Z || true")) == 0
    assert life.status()["pids"] <= 3


# --- A06: several at once -------------------------------------------------------------------------

ROUNDS = 1000 if os.environ.get("PETRI_SOAK") else 12


def at_once(life, *commands, rounds=ROUNDS):
    """Each command over and over in a thread of its own; what they said."""
    said = {c: [] for c in commands}

    def work(c):
        for _ in range(rounds):
            said[c].append(life(*c))
            if c[0] == "fork" and said[c][-1].rc == 0:  # an ordinary user can't have as many as there are rounds
                said[c].append(life("rm", "-f", said[c][-1].out.strip()))

    threads = [threading.Thread(target=work, args=(c,)) for c in commands]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return said


def no_surprise(said):
    """Done, or one line that says busy, gone, or stopped."""
    for c, results in said.items():
        for r in results:
            assert r.rc == 0 or (r.talk.count("\n") == 1 and re.search(
                r"another petri|try again|is running|no sandbox|is stopped|taken by|no snapshot|meanwhile|is gone|neither a sandbox|stopped already|nothing to promote|without an answer", r.talk)), r


def test_a06_start_and_rm(life):
    said = at_once(life, ("start", "x"), ("start", "x", "-q"), ("rm", "-f", "x"))
    no_surprise(said)
    assert any(r.rc == 0 for r in said["start", "x"])
    life.whole()
    life.start("x")
    assert list(life.ls()) == ["x"] and life.out("echo ok", box="x") == "ok\n"


def test_a06_everything(life):
    life.start("x")
    life.sh("echo mine > f", box="x").ok()
    said = at_once(life, ("start", "x"), ("stop", "x"), ("snapshot", "x"), ("fork", "x"), ("exec", "x", "--", "sh", "-c", "cat f"),
                   rounds=max(ROUNDS // 2, 5))
    no_surprise(said)
    assert all(r.out == "mine\n" for r in said["exec", "x", "--", "sh", "-c", "cat f"] if r.rc == 0)
    life.start("x")
    assert life.out("cat f", box="x") == "mine\n"
    taken = [r.out.strip() for r in said["snapshot", "x"] if r.rc == 0]
    assert [s["id"] for s in life("snapshot", "ls", "--json", "x").ok().json] == taken  # none lost, none twice
    life.whole()


def test_a06_promote(life):
    """One makes, one changes, two promote, one removes the same sandbox: each is done or says why not."""
    write = ("exec", "x", "--", "sh", "-c", "for i in 1 2 3; do cat /proc/sys/kernel/random/uuid > f$i; done")
    said = at_once(life, ("start", "x"), write, ("promote", "-y", "--on-conflict", "ours", "x"),
                   ("promote", "-y", "--on-conflict=ours", "x"), ("rm", "-f", "x"))
    no_surprise(said)
    life.whole()
    assert not [n for n in os.listdir(life.project) if n.startswith(".petri-")]
    life("rm", "-f", "x")
    life.start("x")
    life(*write).ok()
    assert life("promote", "-y", "x").ok().out.startswith("applied 3 files")
    life("undo").ok()
    life.whole()


def test_a06_first_use(life):
    """Several agents in a new project: all get the same sandbox."""
    ps = [life.begin("exec", "--", "sh", "-c", "echo $SANDBOX_ID; echo 1 >> seen") for _ in range(4)]
    ids = set()
    for p in ps:
        out, err = p.communicate(timeout=60)
        assert p.returncode == 0, err
        ids.add(out)
    assert len(ids) == 1 and len(life.ls()) == 1
    assert life.out("wc -l < seen").strip() == "4"
