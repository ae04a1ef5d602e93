"""A store that the first release wrote: everything works on it. And one from the future, which nobody touches."""
import importlib.util
import json
import os

import pytest

import helpers
from helpers import tree
from life import life, one_line  # noqa: F401

FIXTURE = os.path.join(os.path.dirname(helpers.HERE), "fixtures", "store-2", "build.py")


@pytest.fixture
def old(life):
    """Sandbox `old` of the fixture in a store of this test's own; its record's path."""
    life.petri.own_store()
    life.start("probe")
    like = life("inspect", "probe").ok().json
    life("rm", "-f", "probe").ok()
    spec = importlib.util.spec_from_file_location("old_store", FIXTURE)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    made.build(life.petri.store, life.project, like)
    life.record = os.path.join(life.petri.store, "sandboxes", made.ID, "state.json")
    return life


def test_it_is_whole(old):
    assert old("fsck").ok().out == ""
    box, = old.ls().values()
    assert (box["name"], box["state"], box["snapshots"], box["own"]) == ("old", "stopped", 1, True)
    shown, = old("snapshot", "ls", "--json").ok().json
    assert (shown["id"], shown["message"]) == ("s1", "first")
    assert old("status", "--json").ok().json["state"] == "stopped"


def test_it_lives(old):
    """Lists, starts, diffs, rolls back, forks, promotes, undoes, goes."""
    assert old("diff", "--name-status").ok().out.split("\n")[:-1] == ["A\ta", "A\tdir/new", "D\tdir/old", "D\tgone"]
    old.start()
    assert old.out("cat a b dir/new /tmp/x; ls . dir") == ("second\nthird\nnew\n1\n.:\nREADME\na\nb\ndir\npetri.json\n\n"
                                                           "dir:\nnew\n")
    old.sh("echo more >> a; echo 2 > /tmp/x; rm dir/new").ok()
    fork, = old.fork()
    assert old.out("cat a /tmp/x", box=fork) == "second\nmore\n2\n"
    saved = old("rollback", "--json", "s1").ok().json["saved"]
    assert saved == "s2"
    assert old.out("cat a /tmp/x dir/old; ls gone 2>/dev/null; true") == "first\n1\nof the project\n"
    old("rollback", saved).ok()
    assert old.out("cat a /tmp/x; ls dir") == "second\nmore\n2\n"
    with open(old.record) as f:
        assert json.load(f)["schema"] == 2
    old("rm", "-f", *old.ls()).ok()
    assert not old.ls()


def test_its_journal(old):
    """What the old one promoted can be taken back."""
    assert "in place" in old("history").ok().out
    old("undo").ok()
    assert not os.path.exists(os.path.join(old.project, "b"))
    old("redo").ok()
    assert helpers.read(os.path.join(old.project, "b")) == b"third\n"


def test_a_newer_one_is_left_alone(old):
    """Refused with one line by every command, and not a byte of it changes."""
    with open(old.record) as f:
        new = {**json.load(f), "schema": 3, "something": ["else"]}
    with open(old.record, "w") as f:
        json.dump(new, f)
    before = tree(os.path.dirname(old.record)), tree(os.path.join(old.petri.store, "changes"))
    for words in (("start", "old"), ("snapshot", "old"), ("rollback", "old", "s1"), ("fork", "old"), ("diff", "old"),
                  ("promote", "-y", "old"), ("status", "old"), ("rm", "old"), ("rm", "-f", "old")):
        one_line(old(*words), "newer")
    old("prune", "-f")
    old("fsck", "--repair").ok(1)
    assert (tree(os.path.dirname(old.record)), tree(os.path.join(old.petri.store, "changes"))) == before
    with open(old.record, "w") as f:
        json.dump({**new, "schema": 2}, f)
