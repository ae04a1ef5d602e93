"""start, stop, restart, refresh, status, ls, inspect, rm, prune, and what goes wrong with them."""
import json
import os
import select
import shutil
import subprocess

import pytest

from helpers import BIN, MODE, ROOT, read, tree, wait_for, write
from life import NAMING, life, one_line  # noqa: F401


def test_start_is_idempotent(life):
    first = life.start()
    assert first["created"] and not first["was_running"] and first["name"] == "proj-1"
    again = life("up", "--json").ok().json
    assert again["id"] == first["id"] and again["was_running"] and not again["created"]
    assert "proj-1 is running" in life("start").ok().out
    assert list(life.ls()) == ["proj-1"]


def test_found_from_anywhere_in_the_project(life):
    life.petri.file("a/b/c/x", "1\n")
    first = life.start()
    below = os.path.join(life.project, "a/b/c")
    assert life("start", "--json", cwd=below).ok().json["id"] == first["id"]
    assert life.out("echo w > from-here; cat x", cwd=below) in ("1\n", "")  # where it starts is exec's business
    assert life("status", "--json", cwd=below).ok().json["id"] == first["id"]
    assert life("status", "--json", "proj-1", cwd="/").ok().json["id"] == first["id"]
    assert life("status", "--json", first["id"], cwd="/").ok().json["id"] == first["id"]
    other = life.petri.path("home", "other")
    os.mkdir(other)
    one_line(life("status", cwd=other), "no sandbox for", "petri start")


def test_by_the_beginning_of_its_id(life):
    first, second = life.start(), life.start("other")
    short = first["id"][:6]
    if second["id"].startswith(short):
        short = first["id"]
    assert life("status", "--json", short).ok().json["id"] == first["id"]
    life("snapshot", short).ok()
    life("stop", short).ok()
    one_line(life("stop", "zzzz"), "no sandbox 'zzzz'")
    one_line(life("stop", "othre"), "did you mean 'other'")
    assert life.start("beef")["created"]  # a new name is a name


def test_the_others_are_named_where_the_own_is_gone(life):
    life.start()
    life.start("one")
    life("rm", "-f", "proj-1").ok()
    for cmd in ("status", "stop", "refresh", "snapshot"):
        one_line(life(cmd), "others: name one of one", "petri start")


def test_start_says_what_holds(life):
    r = life("start").ok()
    loose = [n for n in ("memory", "cpus", "pids") if life.status()["limits"][n + "_enforced"] == "none"]
    assert "network " in r.out and ("2G" in r.out) == ("memory" not in loose) and ("2 cpus" in r.out) == ("cpus" not in loose)
    assert r.err == "" and (r.talk != "") == bool(loose) and ", ".join(loose) in r.talk
    assert life.start()["limits"]["memory"] == 2 << 30
    one_line(life("start", "--hide", "x"), "--hide x", "started without", "petri restart")


def test_status_names_the_first_changes(life):
    life.start()
    life.sh("mkdir .vscode; echo {} > .vscode/tasks.json; for i in 1 2 3 4 5 6 7 8 9; do echo $i > f$i; done; echo x >> README").ok()
    r = life("status").ok()
    assert "  A .vscode/tasks.json   ! editor" in r.out and "  M README" in r.out and "and 3 more" in r.out
    assert [c["kind"] for c in life.status()["changes"]["first"]].count("added") == 7


def test_first_exec_makes_it(life):
    assert life.out("echo made") == "made\n"
    assert [s["own"] for s in life.ls().values()] == [True]


def test_named_ones_are_their_own(life):
    own = life.start()
    a, b = life.start("one"), life.start("--name", "two")
    assert len({a["id"], b["id"], own["id"]}) == 3 and life.start()["id"] == own["id"]
    life.sh("echo 1 > f; echo 1 > ~/g", box="one").ok()
    assert life.sh("cat f", box="two").rc != 0 and life.sh("cat ~/g", box="two").rc != 0 and life.sh("cat f").rc != 0
    assert life.start("one")["id"] == a["id"]
    life("stop", "one", "two").ok()
    assert {n: s["state"] for n, s in life.ls().items()} == {"one": "stopped", "two": "stopped", "proj-1": "running"}


def test_flags_that_differ(life):
    life.start("-e", "A=one", "--idle-timeout", "1h")
    assert life.start("-e", "A=one")["was_running"]
    r = one_line(life("start", "-e", "A=two", "--idle-timeout", "2h", "--lifetime", "9h"), "petri restart", "A=two",
                 "A=one", "--idle-timeout 2h", "1h", "--lifetime 9h")
    assert r.rc == 1 and life.out("echo $A") == "one\n"
    life.sh("echo kept > f").ok()
    life("restart", "-e", "A=two").ok()
    assert life.out("echo $A; cat f") == "two\nkept\n"
    assert life.status()["idle_timeout_ms"] == 3600000
    life("stop").ok()
    life.start("-e", "A=three")  # a stopped one takes them
    assert life.out("echo $A") == "three\n"


def test_restart_with_nonsense_changes_nothing(life):
    life.start()
    pid = life.keeper()
    for flags in (("-m", "banana"), ("--image", "no-such-image"), ("--lifetime", "x"), ("--idle-timeout", "-1"),
                  ("-v", "/nonexistent:/x"), ("--workspace-mode", "magic")):
        one_line(life("restart", *flags))
        assert life.keeper() == pid, flags
    one_line(life("restart", "nosuch"), "no sandbox 'nosuch'", "petri ls")


@pytest.mark.no_cgroups
def test_restart_with_limits_that_can_not_be_had(life):
    life.start()
    pid = life.keeper()
    for flags in (("-m", "1G"), ("--cpus", "1")):
        one_line(life("restart", *flags), "can't be enforced").ok(1)
        assert life.keeper() == pid, flags


@pytest.mark.cgroups
def test_restart_with_limits(life):
    life.start()
    pid = life.keeper()
    life("restart", "-m", "300M").ok()
    assert life.keeper() != pid


def test_files_survive_stop_and_start(life):
    before = tree(life.project)
    life.start()
    life.sh("echo 1 > f; echo 2 > ~/g; echo 3 > /tmp/h; mkdir -m 700 d; echo 4 > d/i; chmod 0 d; rm README").ok()
    assert "proj-1 stopped" in life("stop").ok().out
    assert one_line(life("stop"), "was stopped already", "petri start").rc == 1
    r = life("stop", "--json").ok(1)
    assert r.json["error"]["code"] == "stopped"
    r = one_line(life("exec", "--", "true"), "is stopped", "petri start")
    assert r.rc == 125
    life.start()
    assert life.out("cat f ~/g /tmp/h; chmod 700 d; cat d/i; ls README || true") == "1\n2\n3\n4\n"
    life("restart").ok()
    assert life.out("cat f ~/g /tmp/h") == "1\n2\n3\n"
    assert tree(life.project) == before


def test_user_zero(life):
    """What it does to the system stays, too."""
    life.start("-u", "0", "root")
    life.sh("touch /usr/x && echo e > /etc/e && echo r > /root/r && rm /usr/bin/env", box="root").ok()
    check = "test -f /usr/x && cat /etc/e /root/r && ! test -e /usr/bin/env && id -u"
    life("restart", "root").ok()
    assert life.out(check, box="root") == "e\nr\n0\n"
    snap = life.snap("root")
    life.sh("rm /usr/x; echo other > /etc/e; ln -s bash /usr/bin/env", box="root").ok()
    [fork] = life.fork("root")
    assert life.out("cat /etc/e; readlink /usr/bin/env; test -e /usr/x || echo gone", box=fork) == "other\nbash\ngone\n"
    life("rollback", "root", snap).ok()
    assert life.out(check, box="root") == "e\nr\n0\n"
    assert os.path.exists("/usr/bin/env") and not os.path.exists("/usr/x")


def test_refresh_shows_what_the_host_changed(life):
    life.petri.file("a", "old\n")
    life.petri.file("gone", "x\n")
    life.start()
    life.sh("cat a gone; echo mine > b").ok()
    write(os.path.join(life.project, ".a"), "new\n")
    os.rename(os.path.join(life.project, ".a"), os.path.join(life.project, "a"))
    os.unlink(os.path.join(life.project, "gone"))
    life.petri.file("more", "more\n")
    life.petri.file("b", "the host's\n")
    life("refresh").ok()
    assert life.out("cat a more b; ls gone || true") == "new\nmore\nmine\n"
    p = life.begin("exec", "--", "sh", "-c", "echo up; sleep 300")
    assert p.stdout.readline() == b"up\n"
    r = one_line(life("refresh"), "processes run in the sandbox", "petri restart")
    p.kill()
    p.wait()
    wait_for(lambda: life("refresh").rc == 0, what="refresh once nothing runs")
    life("stop").ok()
    one_line(life("refresh"), "is stopped", "petri start")


def test_status(life):
    life.start("--idle-timeout", "90m", "--lifetime", "2h")
    life.sh("head -c 3000000 /dev/zero > big").ok()
    s = life.status()
    want = {"id", "name", "state", "image", "runtime", "project", "workspace_mode", "network", "snapshots", "keeper_pid",
            "init_pid", "uptime_ms", "cpu_seconds", "memory", "pids", "disk", "limits", "idle_timeout_ms",
            "lifetime_ms", "events", "jobs", "changes"}
    assert want <= set(s), want - set(s)
    assert (s["state"], s["image"], s["runtime"], s["network"]["policy"]) == ("running", "host", "crun", "limited")
    assert s["project"] == life.project and s["workspace_mode"] == "overlay"
    assert 3000000 <= s["disk"] < 4000000 and 1 <= s["pids"] <= 3 and s["memory"] > 0
    assert s["idle_timeout_ms"] == 90 * 60000 and s["lifetime_ms"] == 7200000
    text = life("status").ok().out
    assert "proj-1  running" in text and "image host" in text
    assert ("of any" if s["limits"]["memory_enforced"] == "none" else "of 2G") in text
    life("stop").ok()
    s = life.status()
    assert s["state"] == "stopped" and "keeper_pid" not in s
    assert "proj-1  stopped" in life("status").ok().out


def test_ls_and_inspect(life):
    life.start()
    life.start("--label", "k=v", "one")
    assert life("ls").ok().out.splitlines()[0].split() == ["ID", "NAME", "STATE", "AGE", "IMAGE", "PROJECT"]
    assert life("ls", "-q").ok().out == life("ps", "-q").ok().out
    s = life.ls()["one"]
    assert s["labels"] == ["k=v"] and s["state"] == "running" and s["project"] == life.project and not s["own"]
    assert s["id"] in life("ls", "-q").ok().out.split() and life.ls()["proj-1"]["own"]
    i = life("inspect", "one").ok().json
    assert i["id"] == s["id"] and i["running"]["keeper_pid"] > 0 and i["schema"] == 2
    life("stop", "one").ok()
    assert life("inspect", "one").ok().json["running"] is None


def test_rm_and_prune(life):
    for n in ("a", "b", "c", "d"):
        life.start(n)
    one_line(life("rm", "a"), "'a' is running", "petri stop a", "petri rm -f a")
    assert life.status("a")["state"] == "running"
    life("stop", "a", "b").ok()
    life("rm", "a").ok()
    one_line(life("rm", "a"), "no sandbox 'a'", "petri ls")
    life("rm", "-f", "c").ok()
    assert sorted(life.ls()) == ["b", "d"]
    one_line(life("prune"), "-f")
    assert life("prune", "-f", "--json").ok().json == {"removed": 1}
    assert sorted(life.ls()) == ["d"]
    r = life("rm", "-f", "nosuch", "d")  # what can be done is done
    assert r.rc == 1 and "nosuch" in r.talk and not life.ls() and not life.rest()


@pytest.mark.parametrize("name", ["../x", "-rf", "", "a" * 4096, "ünï", "a b", ".", "..", "a/b", "a\nb", "\x1b[2J",
                                  "a" * 64, "x:y"], ids=lambda n: repr(n[:6]) + str(len(n)))
def test_bad_names(life, name):
    for words in NAMING:
        r = one_line(life(words[0], *words[1:], "--", name))
        assert r.rc in (1, 2) and "\x1b" not in r.talk
    one_line(life("exec", name, "--", "true")).ok(125)
    one_line(life("rollback", "--", name, "s1"))
    one_line(life("start", "--name", name))
    assert not life.ls() and not life.rest()


def test_unknown_names(life):
    for words in NAMING:
        if words != ("start",):
            one_line(life(*words, "nosuch"), "no sandbox 'nosuch'").ok(1)
            r = life(*words, "--json", "nosuch") if words[0] != "logs" else None
            assert r is None or r.ok(1).json["error"]["code"] == "not_found", r
    assert not life.rest()
    life.start()
    for r in (life("rollback", "s7"), life("rollback", "proj-1", "../s7"), life("snapshot", "rm", "s7"),
              life("snapshot", "rm", "a" * 4096), life("rollback", "")):
        one_line(r, "no snapshot", "petri snapshot ls").ok(1)
    for words in (("fork", "-n", "0"), ("fork", "-n", "x"), ("fork", "-n", "-1"), ("fork", "-n", "9" * 30), ("rollback",),
                  ("fork", "-n", "2", "--name", "x"), ("fork", "--name", "../x"), ("snapshot", "rm"), ("wait",),
                  ("kill", "-s", "FOO", "1")):
        one_line(life(*words)).ok(2)
    assert list(life.ls()) == ["proj-1"]


def test_copy_mode(life):
    """Nothing of what happens to the project later is seen, not even after a restart."""
    life.petri.file("a", "1\n")
    life.petri.file("d/b", "2\n")
    life.start("--workspace-mode", "copy")
    life.petri.file("a", "host\n")
    shutil.rmtree(os.path.join(life.project, "d"))
    assert life.out("cat a d/b; echo x > d/c; rm a") == "1\n2\n"
    life("restart").ok()
    assert life.out("cat d/b d/c; ls a || true") == "2\nx\n"
    [fork] = life.fork()
    snap = life.snap()
    life.sh("rm -r d").ok()
    assert life.out("cat d/b d/c", box=fork) == "2\nx\n"
    life("rollback", snap).ok()
    assert life.out("cat d/b d/c") == "2\nx\n"
    assert life.status()["workspace_mode"] == "copy" and read(os.path.join(life.project, "a")) == b"host\n"


def test_bind_mode(life):
    life.start("--workspace-mode", "bind")
    r = life.sh("echo in > f")
    if ROOT and r.rc:  # root's projects belong to nobody the sandbox could be
        assert "denied" in r.err
    else:
        r.ok()
        assert read(os.path.join(life.project, "f")) == b"in\n"
    life.petri.file("g", "host\n")
    assert life.out("cat g; echo h > ~/h") == "host\n"
    life("restart").ok()
    assert life.out("cat g ~/h") == "host\nh\n"


def test_read_only_and_hide(life):
    life.petri.file(".env", "SECRET\n")
    life.petri.file("d/key.pem", "SECRET\n")
    life.start("--hide", ".env", "--hide", "*/*.pem", "h")
    life.start("--read-only", "r")
    for _ in range(2):
        assert "SECRET" not in life.sh("cat .env d/key.pem /workspace/.env; grep -r SECRET . || true", box="h").out
        assert life.sh("echo x > f", box="r").rc != 0
        assert life.out("cat README; echo x > /tmp/f", box="r") == "a project\n"
        life("restart", "h").ok()
        life("restart", "r").ok()
    [fork] = life.fork("h")
    assert "SECRET" not in life.sh("cat .env d/key.pem; grep -r SECRET . || true", box=fork).out
    assert life.sh("echo x > f", box=life.fork("r")[0]).rc != 0


def test_project_moved(life):
    life.start()
    life.start("mine")
    life.sh("echo kept > f").ok()
    life("stop", "mine", "proj-1").ok()
    away = life.petri.path("home", "elsewhere")
    os.rename(life.project, away)
    for words in (("start", "mine"), ("fork", "mine"), ("start",)):
        one_line(life(*words, cwd=away), life.project)
    os.mkdir(life.project)
    for words in (("start", "mine"), ("fork", "mine")):
        one_line(life(*words), "not the directory", "petri rm").ok(1)
    assert sorted(life.ls()) == ["mine", "proj-1"]
    os.rmdir(life.project)
    os.rename(away, life.project)
    life.start()
    assert life.out("cat f") == "kept\n"


def test_rollback_without_the_project(life):
    """Refused before anything inside is ended."""
    life.start("rb")
    life.sh("echo one > v", box="rb").ok()
    snap = life.snap("rb")
    life.sh("echo two > v", box="rb").ok()
    pid, away = life.keeper("rb"), life.petri.path("home", "elsewhere")
    os.rename(life.project, away)
    one_line(life("rollback", "rb", snap, cwd=away), life.project).ok(1)
    os.mkdir(life.project)
    one_line(life("rollback", "rb", snap), "not the directory").ok(1)
    os.rmdir(life.project)
    os.rename(away, life.project)
    assert life.keeper("rb") == pid and life.out("cat v", box="rb") == "two\n"
    life("rollback", "rb", snap).ok()
    assert life.out("cat v", box="rb") == "one\n"


def test_project_replaced_while_it_runs(life):
    """A snapshot and a refresh mount anew: never another directory under the old one's changes."""
    life.petri.file("a", "old\n")
    life.start("mine")
    life.sh("echo x > f", box="mine").ok()
    os.rename(life.project, life.petri.path("home", "elsewhere"))
    os.mkdir(life.project)
    life.petri.file("a", "another project\n")
    for words in (("snapshot", "mine"), ("refresh", "mine"), ("fork", "mine")):
        life(*words)
        wait_for(lambda: life.status("mine")["state"] == "stopped" or life.sh("true", box="mine").rc == 0)
        assert "another" not in life.sh("cat a", box="mine").out, words


def test_project_gone(life):
    life.start("mine")
    shutil.rmtree(life.project)
    home = life.petri.home
    assert life("exec", "mine", "--", "true", cwd=home).rc in (0, 125)
    life("stop", "mine", cwd=home).ok()
    one_line(life("start", "mine", cwd=home), life.project)
    life("rm", "mine", cwd=home).ok()
    os.mkdir(life.project)


def test_nothing_of_the_caller_is_kept(life):
    """A pipe that the caller happened to have open ends when the caller's part of it does."""
    r, w = os.pipe()
    p = subprocess.run([BIN, "start", "-q"], cwd=life.project, env=life.petri.env, pass_fds=[w], timeout=60)
    os.close(w)
    assert p.returncode == 0
    assert select.select([r], [], [], 10)[0] and os.read(r, 1) == b""
    os.close(r)
    assert os.readlink(f"/proc/{life.keeper()}/cwd") == "/"



# --- jobs, logs, events ---------------------------------------------------------------------------

def job(life, script, *flags):
    return life("exec", "-d", *flags, "--", "sh", "-c", script).ok().out.strip()


def test_jobs(life):
    life.start()
    a, b = job(life, "echo out; echo err >&2; exit 3"), job(life, "echo b; sleep 300")
    assert (a, b) == ("1", "2")
    assert life("wait", a).rc == 3
    listed = {j["job"]: j for j in life("jobs", "--json").ok().json}
    assert listed["1"]["state"] == "done" and listed["1"]["exit_code"] == 3 and listed["2"]["state"] == "running"
    assert listed["2"]["argv"] == ["sh", "-c", "echo b; sleep 300"] and listed["2"]["exit_code"] is None
    assert "running" in life("jobs").ok().out
    assert life("logs", a).ok().out == "out\nerr\n" and life("wait", "--json", "proj-1", a).json["exit_code"] == 3
    life("kill", b).ok()
    assert life("wait", b).rc == 143
    one_line(life("kill", b), "is over").ok(1)
    c = job(life, "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 300' & echo up; sleep 300; sleep 300")
    wait_for(lambda: "up" in life("logs", c).ok().out, what="the job's output")
    life("kill", c).ok()
    life("kill", "-s", "KILL", c).ok()
    assert life("wait", c).rc == 137
    wait_for(lambda: "sleep" not in life.out("ps ax"), what="the end of all that the job started")
    assert job(life, "exec nosuchcommand") == "4" and life("wait", "4").rc == 127
    assert life("exec", "-d", "--", "nosuchcommand").out.strip() in ("", "5")
    d = job(life, "sleep 300", "--timeout", "100ms")
    assert life("wait", d).rc == 124
    one_line(life("wait", "77"), "no job 77", "petri jobs").ok(1)
    one_line(life("kill", "77"), "no job 77").ok(1)
    one_line(life("logs", "77"), "no job 77").ok(1)


def test_jobs_and_the_end_of_the_sandbox(life):
    life.start()
    a = job(life, "echo first; sleep 300")
    p = life.begin("wait", a)
    wait_for(lambda: life("logs", a).ok().out == "first\n", what="the output")
    life("stop").ok()
    assert p.wait(20) != 0
    one_line(life("jobs"), "is stopped", "petri start").ok(1)
    assert life("logs", a).ok().out == "first\n"
    life.start()
    b = job(life, "echo second")
    assert b != a and life("wait", b).rc == 0
    assert life("logs").ok().out == "first\nsecond\n"  # no number twice, nothing overwritten


def test_long_answers_of_the_keeper(life):
    """A list of jobs that is longer than a socket's buffer arrives whole."""
    life.start()
    for _ in range(5):
        assert life("exec", "-d", "--", "true", *["x" * 100000]).rc == 0
    assert [len(j["argv"][1]) for j in life("jobs", "--json").ok().json] == [100000] * 5
    assert life.status()["jobs"] == 5


def test_logs_follow(life):
    life.start()
    a = job(life, "echo one; while ! test -e go; do sleep 0.05; done; echo two")
    p = life.begin("logs", "-f", a)
    assert p.stdout.readline() == b"one\n"
    life.sh("touch go").ok()
    assert p.stdout.readline() == b"two\n"
    assert p.wait(30) == 0  # its end is the end of what comes


def test_job_output_is_cut(life):
    life.start()
    a = job(life, "head -c 12000000 /dev/zero | tr '\\0' x; echo end")
    assert life("wait", a).rc == 0
    [j] = life("jobs", "--json").ok().json
    assert j["truncated"] and j["output_bytes"] == 12000004 and len(life("logs", a).ok().outb) == 10 << 20
    one_line(life("exec", "-d", "--max-output", "10", "--", "seq", "100"), "--max-output", "10M").ok(125)


def test_events(life):
    p = life.begin("events", "-f", "--json")
    life.start()
    life.sh("echo 1 > f").ok()
    life.snap()
    life.fork()
    ids = [s["id"] for s in life.ls().values()]
    life("promote", "-y").ok()
    life("undo").ok()
    life("redo").ok()
    life("rollback", "s1").ok()
    life("stop").ok()
    life("rm", "proj-1").ok()
    want = ["start", "snapshot", "start", "fork", "promote", "undo", "redo", "rollback", "stop", "rm"]
    seen = []
    while len(seen) < len(want):
        e = json.loads(p.stdout.readline())
        if e["id"] in ids:
            seen.append(e["event"])
    assert sorted(seen) == sorted(want)
    p.kill()
    text = life("events").ok().out
    assert all(w in text for w in want)
    one_line(life("events", "x")).ok(2)


# --- times ----------------------------------------------------------------------------------------

def test_idle_timeout(life):
    life.start("--idle-timeout", "1s", "idle")
    life.start("--no-keep-alive", "once")
    life.start("--idle-timeout", "1s", "busy")
    p = life.begin("exec", "busy", "--", "sh", "-c", "while :; do sleep 0.2; done")
    life.stopped("idle")
    life.stopped("once")
    assert life.status("busy")["state"] == "running" and p.poll() is None
    p.kill()
    p.wait()
    life.stopped("busy")
    assert life.out("echo again", box=life.start("once")["name"]) == "again\n"


def test_lifetime(life):
    life.start("--lifetime", "1s")
    p = life.begin("exec", "--", "sleep", "300")
    life.stopped()
    assert p.wait(20) != 0
    life.start()
    life.stopped()


@pytest.mark.parametrize("words,want", [
    (("stop", ""), {"proj-1", "bob"}), (("sh", "b"), {"bob"}), (("rollback", ""), {"s1"}), (("snap", "rm", ""), {"s1"}),
    (("diff", "--from", ""), {"s1"}), (("kill", ""), {"1"}), (("up", "--mem"), {"--memory"}),
])
def test_completion_knows_what_there_is(life, words, want):
    """Sandboxes, snapshots and jobs, also behind an alias."""
    life.start()
    life.start("bob")
    life.snap()
    life("exec", "-d", "--", "true").ok()
    script = ('source <("$PETRI" completion bash); compopt() { :; }; PATH="${PETRI%/*}:$PATH"; COMP_WORDS=("$@"); '
              'COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _petri; printf "%s\\n" "${COMPREPLY[@]}"')
    p = subprocess.run(["bash", "--norc", "-c", script, "_", "petri", *words], text=True, timeout=120, cwd=life.project,
                       env=dict(life.petri.env, PETRI=BIN), capture_output=True, check=False)
    assert p.stderr == "" and set(p.stdout.split()) == want


def test_what_was_written_just_before_is_no_drift(life):
    """The kernel's clock for files stands still for some milliseconds; who starts at once has no conflict for it."""
    f = os.path.join(life.project, "f")
    for i in range(8):
        write(f, f"{i}\n")
        life.start()
        life.sh("echo inside >> f").ok()
        life("promote", "-y").ok()
        assert read(f) == f"{i}\ninside\n".encode()
        life("rm", "-f", "proj-1").ok()


@pytest.mark.parametrize("mode", ["overlay", "copy"])
def test_what_is_written_just_after_is(life, mode):
    f = os.path.join(life.project, "f")
    for i in range(8):
        write(f, f"{i}\n")
        life.start("--workspace-mode", mode)
        write(f, "host\n")
        life.sh("echo inside > f").ok()
        assert life("promote", "-y").rc == 1 and read(f) == b"host\n"
        life("rm", "-f", "proj-1").ok()
