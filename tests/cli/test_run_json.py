"""petri run --json: one object that says what happened."""
import base64
import json
import os

import pytest

from helpers import CAN_LIMIT, SLOW, place, read

FIELDS = {
    "exit_code": (int, type(None)), "signal": (int, str, type(None)), "timed_out": bool, "events": list,
    "stdout": str, "stderr": str, "truncated": dict, "wall_ms": (int, float),
    "cpu_ms": (int, float), "peak_memory_bytes": (int, type(None)), "changes": dict, "limits": dict,
}


def kinds(r):
    """The events' words, whether they are bare or in objects."""
    return [e if isinstance(e, str) else e.get("type") or e.get("event") for e in r["events"]]


def test_fields(petri):
    r = petri.json("--", "sh", "-c", "echo out; echo err >&2; exit 3", rc=3)
    for name, types in FIELDS.items():
        assert name in r and isinstance(r[name], types), (name, r)
    assert r["exit_code"] == 3 and not r["signal"] and r["timed_out"] is False
    assert r["stdout"] == "out\n" and r["stderr"] == "err\n"
    assert r["truncated"] == {"stdout": False, "stderr": False} and r["events"] == []
    assert {k: r["changes"][k] for k in ("added", "modified", "deleted")} == {
        "added": 0, "modified": 0, "deleted": 0}


def test_one_object_on_stdout_and_nothing_of_the_commands_on_stderr(petri):
    r = petri.run("--json", "--", "sh", "-c", "echo out; echo err >&2").ok()
    assert r.outb.count(b"\n") == 1 and r.outb.endswith(b"}\n") and r.err == ""
    json.loads(r.outb)


def test_signal(petri):
    r = petri.json("--", "sh", "-c", "kill -TERM $$", rc=143)
    assert r["signal"] in (15, "TERM", "SIGTERM") and r["exit_code"] in (143, None), r


def test_timeout(petri):
    r = petri.json("--timeout", "2", "--", "sh", "-c", "echo before; sleep 300", rc=124)
    assert r["timed_out"] is True and "timeout" in kinds(r) and r["stdout"] == "before\n"
    assert r["exit_code"] in (124, None)


def test_bytes_that_are_not_utf8(petri):
    r = petri.json("--", "printf", r"a\377\000b\303", rc=0)
    assert base64.b64decode(r["stdout_base64"]) == b"a\xff\0b\xc3"
    assert "�" in r["stdout"] and "stderr_base64" not in r


def test_all_bytes_survive(petri):
    data = os.urandom(200000) + b"\xff"
    r = json.loads(petri.run("--json", "--", "sh", "-c", "cat; printf 'e\\377' >&2", input=data).ok().outb)
    assert base64.b64decode(r["stdout_base64"]) == data
    assert base64.b64decode(r["stderr_base64"]) == b"e\xff"


def test_text_is_text(petri):
    text = "grüße \U0001f600 \" \\ \t \x1b[31m \x7f\n\x00end"
    r = json.loads(petri.run("--json", "--", "cat", input=text.encode()).ok().outb)
    assert r["stdout"] == text and "stdout_base64" not in r


def test_a_character_cut_by_the_cap(petri):
    """The cap falls into the middle of a character: still one valid object, marked."""
    r = petri.json("--max-output", "10", "--", "printf", "123456789ä", rc=0)
    assert r["truncated"]["stdout"] is True and r["stdout"].startswith("123456789")


def test_truncated(petri):
    r = petri.json("--max-output", "1000", "--", "sh", "-c", "yes | head -c 100000; echo fine >&2", rc=0)
    assert r["truncated"]["stdout"] is True and "output_truncated" in kinds(r)
    assert r["stdout"].startswith("y\n" * 400) and len(r["stdout"]) < 1200, len(r["stdout"])
    assert r["stderr"] == "fine\n" and r["truncated"]["stderr"] is False


def test_default_cap(petri):
    r = petri.json("--", "sh", "-c", "yes | head -c 30M", rc=0)
    assert r["truncated"]["stdout"] is True and 10 << 20 <= len(r["stdout"]) < (10 << 20) + 200


def test_exactly_the_cap_is_not_truncated(petri):
    r = petri.json("--max-output", "1000", "--", "sh", "-c", "yes | head -c 1000", rc=0)
    assert r["truncated"]["stdout"] is False and len(r["stdout"]) == 1000 and r["events"] == []


def test_times(petri):
    r = petri.json("--", "sh", "-c", "sleep 0.4", rc=0)
    assert 400 <= r["wall_ms"] < 60000 * SLOW
    busy = petri.json("--", "sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done", rc=0)
    assert busy["cpu_ms"] > r["cpu_ms"] and busy["cpu_ms"] > 50, (busy["cpu_ms"], r["cpu_ms"])
    # a child's child counts, waited for or not
    deep = petri.json("--", "sh", "-c",
                      "sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'", rc=0)
    assert deep["cpu_ms"] > 50


def test_peak_memory(petri, probes):
    place(probes, "hog", petri.project)
    r = petri.json("--", "./hog", "100", rc=0)
    if r["peak_memory_bytes"] is None:
        assert not CAN_LIMIT, r
        return
    assert 100 << 20 <= r["peak_memory_bytes"] < 300 << 20, r


def test_changes(petri):
    for n in ("a", "b", "c", "dir/d", "dir/e"):
        petri.file(n, n)
    os.symlink("a", os.path.join(petri.project, "link"))
    r = petri.json("--", "sh", "-c",
                   "echo x >new1; mkdir nd; echo y >nd/new2; echo z >>a; rm b; rm -r dir; "
                   "touch c; rm link; ln -s b link; cat README >/dev/null", rc=0)
    c = r["changes"]
    # files and links only; a touched file with the same content is no change
    assert c == {"added": 2, "modified": 2, "deleted": 3}, c
    assert read(os.path.join(petri.project, "a")) == b"a"


def test_changes_simple(petri):
    petri.file("a", "a")
    petri.file("b", "b")
    r = petri.json("--", "sh", "-c", "echo x >new; echo z >>a; rm b", rc=0)
    assert (r["changes"]["added"], r["changes"]["modified"], r["changes"]["deleted"]) == (1, 1, 1)


def test_changes_outside_the_project_do_not_count(petri):
    r = petri.json("--", "sh", "-c", "echo x >/tmp/x; echo y >~/y", rc=0)
    assert (r["changes"]["added"], r["changes"]["modified"], r["changes"]["deleted"]) == (0, 0, 0)


def test_limits_say_how(petri):
    limits = petri.json("--", "true", rc=0)["limits"]
    for name in ("memory", "cpus", "pids", "disk"):
        assert name in limits, limits
        assert isinstance(limits[name], dict) and len(limits[name]) >= 2, limits[name]
    text = json.dumps(limits)
    if CAN_LIMIT:
        assert "cgroup" in text
    else:
        assert "none" in json.dumps(limits["memory"]) or "not" in json.dumps(limits["memory"]), limits


def test_changes_are_unknown_without_an_overlay(petri):
    assert petri.json("--workspace-mode", "copy", "--", "touch", "new", rc=0)["changes"] is None


@pytest.mark.cgroups
def test_oom_event(petri, probes):
    place(probes, "hog", petri.project)
    r = petri.json("-m", "64M", "--", "./hog", "300", rc=137)
    assert "oom" in kinds(r) and r["signal"] in (9, "KILL", "SIGKILL"), r
    assert "GOT" not in r["stdout"] and "STARTED" in r["stdout"]


@pytest.mark.cgroups
def test_pids_event(petri, probes):
    place(probes, "forks", petri.project)
    r = petri.json("--pids-limit", "32", "--", "./forks", "100", rc=0)
    assert "pids" in kinds(r), r


def test_disk_event(petri):
    r = petri.json("--disk", "16M", "--", "sh", "-c", "dd if=/dev/zero of=x bs=1M count=64; exit 0", rc=0)
    assert "disk" in kinds(r), r
    assert "No space" in r["stderr"] or "quota" in r["stderr"], r


def test_no_event_for_what_was_not_reached(petri):
    assert petri.json("--disk", "16M", "--timeout", "60", "--", "true", rc=0)["events"] == []


def test_command_not_found(petri):
    r = petri.run("--json", "--", "no-such-command-here").ok(127)
    j = json.loads(r.outb)
    assert "no-such-command-here" in r.outb.decode() or "no-such-command-here" in r.talk
    assert j.get("exit_code") == 127 or j["error"]["code"] == "not_found", j


@pytest.mark.parametrize("args", [["-m", "abc", "--", "true"], ["--image", "no-such", "--", "true"],
                                  ["--workspace", "/no/such", "--", "true"]])
def test_errors_are_objects_too(petri, args):
    r = petri.run("--json", *args).ok(125)
    j = json.loads(r.outb)
    assert j["error"]["code"] and j["error"]["message"], r
    assert "\n" not in j["error"]["message"]


def test_hostile_names_stay_json(petri):
    r = petri.json("--", "sh", "-c", "printf x >$(printf 'bad\\377name'); printf x >'q\"uote'", rc=0)
    assert r["changes"]["added"] == 2


def test_label_and_name(petri):
    petri.run("--name", "ok-name_1.x", "--label", "a=b", "--label", "c", "--json", "--", "true").ok()
