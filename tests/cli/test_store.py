"""The store of sandboxes: petri fsck, long chains of layers, and copies of what is in use."""
import json
import os

from helpers import SLOW, read, wait_for, write
from life import life  # noqa: F401


def fsck(life, *flags, rc=0):
    return life("fsck", "--json", *flags).ok(rc).json


def record(life, box="proj-1"):
    with open(os.path.join(life.petri.store, "sandboxes", life.ls()[box]["id"], "state.json")) as f:
        return json.load(f)


def test_a_busy_life_leaves_a_whole_store(life):
    life.start()
    life.sh("echo 1 > a; mkdir d; echo 2 > d/f").ok()
    first = life.snap("-m", "first")
    life.sh("rm a; echo 3 > d/f").ok()
    life.fork("-n", "3")
    life("rollback", first).ok()
    assert life.out("cat a d/f") == "1\n2\n"
    life("stop", "proj-1").ok()
    life.fork("--name", "late", "proj-1")
    life("rm", "-f", "late").ok()
    life("snapshot", "rm", "proj-1", first).ok()
    wait_for(lambda: life("fsck").rc == 0, what="a whole store")
    assert life("fsck").ok().out == ""
    assert fsck(life)["sandboxes"] == 4
    life.clear()
    assert fsck(life)["layers"] == 0


def test_fsck_finds_what_is_wrong(life):
    life.start()
    life.sh("echo 1 > a").ok()
    life.snap()
    store, name = life.petri.store, "0123456789abcdef"
    layer = os.path.join(store, "changes", name)
    os.makedirs(os.path.join(layer, "w0"))
    os.symlink("000000000000", os.path.join(store, "names", "dead"))
    got = fsck(life, rc=1)
    assert not got["ok"] and {p["code"] for p in got["problems"]} == {"garbage"} and len(got["problems"]) == 2
    lines = life("fsck").ok(1).out.splitlines()
    assert len(lines) == 2 and any(x.startswith(layer + ": ") for x in lines)
    assert fsck(life, "--repair")["ok"] and not os.path.exists(layer) and life("fsck").ok().out == ""
    assert life.out("cat a") == "1\n"
    used = os.path.join(store, "changes", record(life)["chain"][0])
    os.rename(used, used + "-away")
    got = fsck(life, "--repair", rc=1)
    assert {p["code"] for p in got["problems"]} == {"layer", "unknown"}
    assert not any(p["removed"] for p in got["problems"]) and os.path.isdir(used + "-away")
    os.rename(used + "-away", used)
    assert fsck(life)["ok"]
    assert life("fsck", "word").rc == 2 and life("fsck", "--nonsense").rc == 2


def test_a_record_that_cannot_be_read_keeps_every_layer(life):
    life.start()
    life.sh("echo 1 > a").ok()
    life("stop").ok()
    path = os.path.join(life.petri.store, "sandboxes", life.ls()["proj-1"]["id"], "state.json")
    good = read(path)
    layers = sorted(os.listdir(os.path.join(life.petri.store, "changes")))
    write(path, good[:len(good) // 2])
    assert {p["code"] for p in fsck(life, "--repair", rc=1)["problems"]} == {"record"}
    life("prune", "-f")
    assert sorted(os.listdir(os.path.join(life.petri.store, "changes"))) == layers
    write(path, good)
    life.start()
    assert life.out("cat a") == "1\n"


def test_a_hundred_snapshots_and_more(life):
    """Chains are made shorter on the way; no snapshot, fork or rollback shows it."""
    many = 110 if SLOW == 1 else 20  # an emulated machine would take minutes
    life.petri.file("kept", "of the project\n")
    life.petri.file("gone", "of the project\n")
    life.petri.file("dir/old", "of the project\n")
    life.start()
    look = "cat n; ls; ls dir; cat dir/*; stat -c '%a %y' dir n; ls ~; cat ~/x"
    step = ("echo {0} >> n; echo {0} > f{0}; rm -f f$(({0}-3)); rm -rf dir; mkdir -m 7$(({0}%8))5 dir; "
            "echo {0} > dir/new; rm -f gone; echo {0} > ~/x")
    views, snaps = {}, []
    for i in range(1, many + 1):
        life.sh(step.format(i)).ok()
        if i in (1, 2, 30, 58, 59, 60, 100, 101, 102, many):
            views[i] = life.out(look)
        snaps.append(life.snap("-m", f"number {i}"))
    life("restart").ok()  # while one runs, twice as many are fine
    r = record(life)
    chains = [r["chain"]] + [s["chain"] for s in r["snapshots"]]
    assert len(r["snapshots"]) == many and max(map(len, chains)) <= 101, [len(c) for c in chains]
    assert len(r["chain"]) < many or many <= 100
    shown = life("snapshot", "ls", "--json").ok().json
    assert [s["id"] for s in shown] == snaps and shown[17]["message"] == "number 18"
    assert life.out(look) == views[many]
    fork, = life.fork("--name", "copy")
    assert life.out(look, box=fork) == views[many]
    for i in views:
        life("rollback", snaps[i - 1]).ok()
        assert life.out(look) == views[i], i
    wait_for(lambda: life("fsck").rc == 0, what="a whole store")


# A line a time, each by one write; the numbers say whether one is missing.
WRITER = "i=0; while :; do i=$((i+1)); echo line-$i >> log; echo $i > last; done"


def test_fork_of_a_busy_sandbox_is_one_moment(life):
    life.start()
    life.sh("mkdir -m 000 shut; ln -s nowhere link; echo x > one; ln one two; rm README").ok()
    life("exec", "-d", "--", "sh", "-c", WRITER).ok()
    wait_for(lambda: life.sh("test -s log").rc == 0, what="the writer")
    sizes = []
    for i in range(3):
        r = life("fork", "--json", "--name", f"moment-{i}").ok()
        assert r.json["paused_ms"] < 5000
        log = life.out("cat log", box=f"moment-{i}")
        lines = log.splitlines()
        assert log.endswith("\n") and lines == [f"line-{k}" for k in range(1, len(lines) + 1)]
        assert life.out("cat log", box=f"moment-{i}") == log  # what the source writes now is not seen
        last = life.out("cat last", box=f"moment-{i}").strip()
        assert not last or int(last) in (len(lines), len(lines) - 1), (last, len(lines))  # empty: just opened
        seen = life.out("stat -c '%a %h %s' shut one; readlink link; ls", box=f"moment-{i}").splitlines()
        assert seen[0].startswith("0 ") and seen[1:3] == ["644 2 2", "nowhere"] and "README" not in seen, seen
        assert life.out("stat -c %i one two | sort -u | wc -l", box=f"moment-{i}") == "1\n"
        sizes.append(len(lines))
        wait_for(lambda: int(life.out("wc -l < log")) > sizes[-1], what="the writer after the thaw")
    assert sizes == sorted(set(sizes))
    wait_for(lambda: life("fsck").rc == 0, what="a whole store")


def test_what_was_stopped_stays_stopped(life):
    """A pause by signals must not wake what somebody stopped."""
    life.start()
    life("exec", "-d", "--", "sh", "-c", "echo $$ > pid; kill -STOP $$; echo woken > woken").ok()
    life("exec", "-d", "--", "sleep", "1000").ok()
    state = "sed -n 's/^State:.\\(.\\).*/\\1/p' /proc/$(cat pid)/status"
    wait_for(lambda: life.sh(state).out == "T\n", what="the stop")
    life.fork("--name", "other")
    assert life.out(state) == "T\n" and life.sh("cat woken").rc != 0
    life.sh("kill -CONT $(cat pid)").ok()
    wait_for(lambda: life.sh("cat woken").out == "woken\n", what="its end")
