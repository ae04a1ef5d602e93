"""petri fork: what a sandbox holds at this moment, in another one; each goes its own way."""
import os
import threading

import pytest

from helpers import MODE, ROOT, tree, wait_for
from life import life, one_line  # noqa: F401

SNAPSHOTS = 40  # of one that is never still

# Writes numbered files over and over, each complete before it gets its name and with a checksum in its last line;
# and one that is written in place, of lines that are all the same.
WRITER = r"""
i=0
while :; do
  i=$((i+1))
  { echo "round $i"; head -c 20000 /dev/urandom | base64; } > .t && sum=$(md5sum < .t) && echo "$sum" >> .t &&
    mv .t f$((i % 5)) && echo "$i" > .n && mv .n n && cp n ~/.n && mv ~/.n ~/n || exit 9
done
"""
CHECK = r"""
for f in f0 f1 f2 f3 f4; do
  [ -e $f ] || continue
  [ "$(head -n -1 $f | md5sum)" = "$(tail -n 1 $f)" ] || { echo "torn: $f"; exit 1; }
done
n=$(cat n); h=$(cat ~/n)
[ $((n - h)) -ge 0 ] && [ $((n - h)) -le 1 ] && [ "$(head -n 1 f$((n % 5)))" = "round $n" ] || {
  [ "$(head -n 1 f$(((n + 1) % 5)))" = "round $((n + 1))" ] || { echo "apart: $n $h $(head -n 1 -q f?)"; exit 1; }; }
echo $n
"""


def test_fork_of_an_idle_one(life):
    life.petri.file("d/a", "project\n")
    before = tree(life.project)
    life.start()
    life.sh("echo 1 > f; echo 2 > ~/g; echo 3 > /tmp/h; rm d/a; mkdir -p e/f; ln -s nowhere l; chmod 4 f").ok()
    r = life("fork", "--json").ok().json
    [fork] = [f["name"] for f in r["forks"]]
    assert r["paused_ms"] == 0 and fork == "proj-1-1"
    assert life.out("stat -c %a f; chmod 644 f; cat f ~/g /tmp/h; readlink l; ls d; ls e", box=fork) == \
        "4\n1\n2\n3\nnowhere\nf\n"
    assert life.ls()[fork]["parent"] == life.ls()["proj-1"]["id"] and not life.ls()[fork]["own"]
    assert tree(life.project) == before


def test_independent_in_both_directions(life):
    life.start()
    life.sh("echo old > f; echo old > ~/f; echo old > gone; mkdir d; echo 1 > d/x").ok()
    [fork] = life.fork("--name", "other")
    assert fork == "other"
    life.sh("echo source > f; echo source > ~/f; rm gone; echo s > only-source; rm -r d").ok()
    assert life.out("cat f ~/f gone d/x; ls only-source || true", box=fork) == "old\nold\nold\n1\n"
    life.sh("echo fork > f; echo fork > ~/f; echo f > only-fork; echo 2 > d/x", box=fork).ok()
    assert life.out("cat f ~/f; ls only-fork gone d || true") == "source\nsource\n"
    for name in (None, fork):
        life("restart", *([name] if name else [])).ok()
    assert life.out("cat f ~/f") == "source\nsource\n"
    assert life.out("cat f ~/f d/x", box=fork) == "fork\nfork\n2\n"


def test_forks_of_forks(life):
    life.start()
    name = "proj-1"
    for i in range(8):
        life.sh(f"echo {i} >> log; echo {i} > f{i}", box=name).ok()
        [name] = life.fork(name)
    assert life.out("cat log; ls f?", box=name) == "".join(f"{i}\n" for i in range(8)) + "".join(f"f{i}\n" for i in range(8))
    life("rm", "-f", *[n for n in life.ls() if n != name]).ok()  # the layers of the others stay as long as they are needed
    assert life.out("cat log", box=name) == "".join(f"{i}\n" for i in range(8))
    life("restart", name).ok()
    assert life.out("cat log", box=name) == "".join(f"{i}\n" for i in range(8))


def test_a_byte_written_just_before(life):
    """... is there, what is written just after is not. The first thing that runs in the fork looks."""
    life.start()
    for i in range(10):
        life.sh(f"printf {i} > f; printf {i} > ~/f").ok()
        [fork] = life.fork()
        life.sh("printf x > f; printf x > ~/f").ok()
        assert life.out("cat f ~/f", box=fork) == f"{i}{i}"


def test_exec_during_forks_loses_nothing(life):
    """Each command that petri exec says was run has run, once, on the source; one that it says was not, has not."""
    life.start()
    life.sh("true").ok()
    stop, done, bad = threading.Event(), [], []

    def work():
        while not stop.is_set():
            r = life.sh(f"echo {len(done)} >> log")
            (done if r.rc == 0 else bad).append(r)

    t = threading.Thread(target=work)
    t.start()
    try:
        names = [life.fork()[0] for _ in range(8)]
    finally:
        stop.set()
        t.join()
    assert all(r.rc == 125 and "meanwhile" in r.talk for r in bad), bad
    assert life.out("cat log").splitlines() == [str(i) for i in range(len(done))]
    for n in names:
        got = life.out("cat log 2>/dev/null || true", box=n).splitlines()
        assert got == [str(i) for i in range(len(got))]


def test_processes_that_appear_meanwhile(life):
    """A pause comes about while commands begin and end all the time, from outside and by fork."""
    life.start()
    stop = threading.Event()

    def work():
        while not stop.is_set():
            life.sh("for i in 1 2 3; do /bin/true; done")

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    try:
        pauses = [life("snapshot", "--json").ok().json["paused_ms"] for _ in range(SNAPSHOTS)]
    finally:
        stop.set()
        for t in threads:
            t.join()
    assert max(pauses) < 10000, pauses


def test_fork_of_a_busy_one(life):
    """It stands still while it is copied: no file in the fork is torn, and it goes on afterwards."""
    life.start()
    p = life.begin("exec", "--", "sh", "-c", WRITER)
    wait_for(lambda: life.sh("cat n").rc == 0, what="the writer's first round")
    seen = 0
    for i in range(6):
        r = life("fork", "--json").ok().json
        assert r["paused_ms"] > 0 or i, r
        n = int(life.out(CHECK, box=r["forks"][0]["name"]))
        assert n >= seen
        seen = n
        if i == 2:
            snap = life.snap()
    wait_for(lambda: int(life.out("cat n")) > seen, what="the writer going on")
    assert p.poll() is None
    # a sandbox that was copied while it was at work goes back to a whole state, too
    life("rollback", snap).ok()
    assert p.wait(20) != 0
    assert int(life.out(CHECK)) <= seen
    for _ in range(2):
        life("restart").ok()
        life.out(CHECK)


def test_busy_with_odd_files(life):
    """Copied layers keep what overlays need: deletions, replaced directories; and modes, links, times, holes."""
    life.petri.file("gone", "x\n")
    life.petri.file("dir/a", "x\n")
    life.petri.file("dir/b", "x\n")
    life.petri.file("file", "x\n")
    life.start()
    life.sh("rm gone; rm -r dir; mkdir dir; echo new > dir/c; rm file; mkdir file; echo y > file/z; mkdir -m 0 closed; "
            "echo h > h1; ln h1 h2; truncate -s 100M holes; touch -d '2001-02-03 04:05:06.123456789' old; chmod 6 old; "
            "mkfifo pipe; ln -s /etc/passwd link; printf x > 'a\nb'; echo deep > ~/deep").ok()
    p = life.begin("exec", "--", "sleep", "300")
    wait_for(lambda: life.status()["pids"] > 1 or life("refresh").rc, what="the command")
    r = life("fork", "--json", "--name", "copied").ok().json
    p.kill()
    p.wait()
    check = ("ls -A; ls -A dir file; stat -c '%a %h %s %.9Y %F' closed h1 holes old pipe; readlink link; cat ~/deep; "
             "test h1 -ef h2 && echo same; du -k holes | cut -f1; cat dir/c file/z")
    want = life.out(check)
    assert life.out(check, box="copied") == want
    assert "gone" not in want and "same" in want and "981173106.123456789" in want
    life("restart", "copied").ok()
    assert life.out(check, box="copied") == want
    if r["paused_ms"] == 0:
        pytest.fail("it was not copied")


def test_fork_of_a_stopped_one(life):
    life.start("src")
    life.sh("echo 1 > f; echo 2 > ~/g", box="src").ok()
    life("stop", "src").ok()
    a, b = life.fork("src", "-n", "2")
    assert life.status("src")["state"] == "stopped"
    assert life.out("cat f ~/g", box=a) == life.out("cat f ~/g", box=b) == "1\n2\n"
    life.start("src")
    assert life.out("cat f ~/g; echo more > f", box="src") == "1\n2\n"
    assert life.out("cat f", box=b) == "1\n"


def test_many(life):
    life.start()
    life.sh("echo base > f").ok()
    names = life.fork("-n", "20")
    assert len(set(names)) == 20
    for i, n in enumerate(names):
        life.sh(f"echo {i} >> f", box=n).ok()
    for i, n in enumerate(names):
        assert life.out("cat f; echo $SANDBOX_NAME", box=n) == f"base\n{i}\n{n}\n"
    assert life.out("cat f") == "base\n"
    life("rm", "-f", *names).ok()
    assert list(life.ls()) == ["proj-1"]


def test_names(life):
    life.start("taken")
    one_line(life("fork", "--name", "taken"), "'taken' is taken", "petri rm taken").ok(1)
    long = "x" * 63
    life.start(long)
    [fork] = life.fork(long)
    assert life.sh("true", box=fork).rc == 0 and len(fork) <= 63
    assert life("fork", "--json", "--name", "taken").ok(1).json["error"]["code"] == "exists"
    assert sorted(life.ls()) == sorted(["taken", long, fork])


def test_forks_keep_flags(life):
    life.start("-e", "A=b", "--idle-timeout", "1h", "--label", "x=y", "--hide", "README")
    [fork] = life.fork()
    s = life.status(fork)
    assert s["idle_timeout_ms"] == 3600000 and life.ls()[fork]["labels"] == ["x=y"]
    assert life.out("echo $A; ls README || true", box=fork) == "b\n"
    assert life("start", "--json", fork, "-e", "A=b").ok().json["was_running"]


def test_fork_at_the_same_time(life):
    """Several processes fork one sandbox: each gets its own, none a name twice."""
    life.start()
    life.sh("echo 1 > f").ok()
    ps = [life.begin("fork", "-n", "2") for _ in range(4)]
    names = []
    for p in ps:
        out, err = p.communicate(timeout=60)
        assert p.returncode == 0, err
        names += out.decode().split()
    assert len(names) == len(set(names)) == 8 and len(life.ls()) == 9
    for n in names:
        assert life.out("cat f", box=n) == "1\n"
