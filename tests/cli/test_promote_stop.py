"""promotion.auto: the end of a sandbox brings its harmless changes into the project, and nothing else."""
import os
import signal

import pytest

import helpers
from life import life  # noqa: F401
from promotion import git, tick
from test_config import config, user_file
from test_config_run import box


@pytest.fixture
def auto(petri, life):  # noqa: F811
    user_file(petri, box(**{"promotion.auto": "on-stop"}))
    petri.file("old", "old")
    petri.file("gone", "gone")
    return life


def host(life, name):  # noqa: F811
    path = os.path.join(life.project, name)
    return helpers.read(path).decode() if os.path.exists(path) else None


def promotions(life):  # noqa: F811
    return [e for e in map(helpers.json.loads, life("events", "--json").ok().out.splitlines())
            if e["event"] == "promote" and e["project"] == life.project]


def test_stop_promotes_what_is_harmless(auto):
    git(auto.project, "init", "-q")
    auto.petri.file(".gitignore", "*.log\n")
    auto.petri.file("moved-on", "one")
    tick(auto.project)
    auto.start()
    auto.sh("echo new >a; mkdir -p d/e; echo deep >d/e/f; echo changed >old; rm gone; echo x >.envrc; echo x >Makefile; "
            "ln -s /etc/passwd link; echo x >some.log; echo mine >moved-on; mkfifo pipe").ok()
    auto.petri.file("moved-on", "two")
    r = auto("stop").ok()
    assert "promoted 4 files, journal" in r.out and "petri undo" in r.out, r
    for name in (".envrc", "Makefile", "link", "moved-on", "pipe"):
        assert f"stays in the sandbox: {name} (" in r.out and "old" not in r.out, r
    assert [host(auto, n) for n in ("a", "d/e/f", "old", "gone")] == ["new\n", "deep\n", "changed\n", None]
    assert [host(auto, n) for n in (".envrc", "Makefile", "link", "some.log", "moved-on")] == [None] * 4 + ["two"]
    left = {c["path"] for c in auto("diff", "--json").ok().json["changes"]}
    assert left == {".envrc", "Makefile", "link", "moved-on", "pipe"}
    auto("undo").ok()
    assert [host(auto, n) for n in ("a", "old", "gone")] == [None, "old", "gone"]
    assert not os.path.exists(os.path.join(auto.project, "d"))


OWN_RULES = ["petri.json", "a/petri.jsonc", "a/wonopcode.json", "petri/config.json", "a/b/.config/petri/config.json",
             "wonopcode/wonopcode.jsonc", "wonopcode/config.json", "a/wonopcode/config.jsonc"]


def test_petris_own_rules_stay(auto):
    """Those of the user too, who may keep them in a repository."""
    auto.start()
    auto.sh("echo x >a.txt; " + "".join(f"mkdir -p $(dirname {n}); echo '{{ }}' >{n}; " for n in OWN_RULES)).ok()
    r = auto("promote", "-y")
    assert host(auto, "a.txt") == "x\n", r
    r = auto("stop").ok()
    for name in OWN_RULES:
        assert f"stays in the sandbox: {name} (" in r.out and host(auto, name) != "{ }\n", (name, r)
    flags = {c["path"]: [f["code"] for f in c["flags"]] for c in auto("diff", "--json").ok().json["changes"]}
    assert all("petri-config" in flags[n] for n in OWN_RULES) and len(flags) == len(OWN_RULES), flags


def test_a_users_rules_in_a_project_stay(auto):
    """The project is where the user's configuration lies."""
    top = os.path.join(auto.petri.home, ".config")
    before = helpers.read(top + "/petri/config.json")
    auto("start", cwd=top).ok()
    auto.sh("mkdir -p petri; echo '{\"sandbox\":{\"enabled\":false}}' >petri/config.json; echo x >fine", cwd=top).ok()
    auto("promote", "-y", cwd=top)
    r = auto("stop", cwd=top).ok()
    assert helpers.read(top + "/petri/config.json") == before and os.path.exists(top + "/fine"), r


def test_what_goes_away_is_as_much_as_what_is_cut(auto):
    for name, n in (("cut", 30), ("whole", 30), ("small", 9)):
        auto.petri.file(name, "line\n" * n)
    tick(auto.project)
    auto.start()
    auto.sh("head -3 cut >x; mv x cut; rm whole small").ok()
    r = auto("stop").ok()
    assert "stays in the sandbox: cut (" in r.out and "stays in the sandbox: whole (" in r.out, r
    assert host(auto, "whole") == "line\n" * 30 and host(auto, "small") is None, r


def test_json(auto):
    auto.start()
    auto.sh("echo x >a; echo x >.envrc").ok()
    p = auto("stop", "--json").ok().json["promotion"]
    assert p["state"] == "applied" and p["files"] == 1 and p["journal"] and p["stay"] == 1, p
    assert p["stays"][0]["path"] == ".envrc" and "environment" in p["stays"][0]["reason"]
    assert auto("stop", "--json").json["error"]["code"] == "stopped"
    assert len(promotions(auto)) == 1


def test_nothing_changed(auto):
    auto.start()
    r = auto("stop").ok()
    assert r.out.count("\n") == 1 and promotions(auto)[0]["state"] == "nothing"


def test_only_held(auto):
    auto.start()
    auto.sh("echo x >.envrc").ok()
    r = auto("stop").ok()
    assert "stays in the sandbox: .envrc" in r.out and "promoted" not in r.out


@pytest.mark.parametrize("flags", [("--idle-timeout", "1s"), ("--lifetime", "2s"), ("--no-keep-alive",)])
def test_a_stop_by_itself(auto, flags):
    auto.start()
    auto.sh("echo x >a; echo x >.envrc").ok()
    os.kill(auto.keeper(), signal.SIGKILL)
    auto.stopped()
    auto.start(*flags)
    e, = helpers.wait_for(lambda: promotions(auto), what="the promotion")
    assert e["files"] == 1 and e["stays"][0]["path"] == ".envrc" and host(auto, "a") == "x\n", e
    assert "1 went to the project, 1 stay" in auto("events").ok().out


def test_what_is_no_stop(auto):
    """restart, rm -f, a signal and death leave the changes where they are."""
    auto.start()
    auto.sh("echo x >a").ok()
    auto("restart").ok()
    assert host(auto, "a") is None and auto.out("cat a") == "x\n"
    for sig in (signal.SIGTERM, signal.SIGKILL):
        os.kill(auto.keeper(), sig)
        auto.stopped()
        assert host(auto, "a") is None
        auto.start()
        assert auto.out("cat a") == "x\n"
    auto("rm", "-f", auto.status()["name"]).ok()
    assert host(auto, "a") is None and not promotions(auto)


def test_forks_do_not(auto):
    auto.start()
    auto.sh("echo x >a").ok()
    name, = auto.fork()
    auto("stop", name).ok()
    assert host(auto, "a") is None
    auto("start", name).ok()
    auto("stop", name).ok()
    assert host(auto, "a") is None and not promotions(auto)
    auto("start", name, "--promote-on-stop").ok()
    auto("stop", name).ok()
    assert host(auto, "a") == "x\n"


def test_a_promotion_that_fails(auto):
    """The sandbox stops, says why and keeps everything."""
    auto.start()
    auto.sh("echo x >a").ok()
    os.rename(auto.project, auto.project + ".away")
    os.mkdir(auto.project)
    name = next(iter(auto.ls()))
    try:
        r = auto("stop", name, cwd="/")
        assert r.rc == 1 and "keeps its changes" in r.talk and "stopped" in r.out, r
        assert auto.ls()[name]["state"] == "stopped" and promotions(auto)[0]["state"] == "failed"
        assert not os.listdir(auto.project)
    finally:
        os.rmdir(auto.project)
        os.rename(auto.project + ".away", auto.project)
    auto("promote", "--yes").ok()
    assert host(auto, "a") == "x\n"


def test_trusted_configuration_only(petri, life):  # noqa: F811
    petri.file("petri.json", box(**{"promotion.auto": "on-stop"}))
    r = life("start").ok()
    assert "promotion.auto" in r.talk and "petri config trust" in r.talk
    life.sh("echo x >a").ok()
    life("stop").ok()
    assert host(life, "a") is None
    config(petri, "trust", "--yes").ok()
    life.start()
    life("stop").ok()
    assert host(life, "a") == "x\n"


def test_protected_and_hidden_stay(petri, life):  # noqa: F811
    petri.file("conf", "keep")
    petri.file("secret", "keep")
    life.start("--promote-on-stop")
    life.sh("echo x >conf; echo x >secret; echo x >a").ok()
    life("restart", "--protect", "conf", "--hide", "secret").ok()
    r = life("stop").ok()
    assert "conf (the path is read-only" in r.out and host(life, "conf") == "keep" and host(life, "a") == "x\n", r
    assert host(life, "secret") == "keep"
