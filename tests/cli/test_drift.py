"""petri promote, where somebody else wrote or removed what the sandbox changed: a conflict, never a silent loss."""
import json
import os

import pytest

from life import life  # noqa: F401
from promotion import Box, call, fresh, git, promote, text, tick


@pytest.fixture
def world(petri):
    return fresh(petri)


GONE = "it was deleted in the project meanwhile"


def gone(world, name):
    """A file goes, after the sandbox was made."""
    os.unlink(os.path.join(world.project, name))


def there(world, name):
    return os.path.lexists(os.path.join(world.project, name))


# --- forks ---------------------------------------------------------------------------------------------

def test_what_the_source_promotes_after_a_fork(world, life):
    """It is somebody else's for the fork, also where clocks can't tell which came first."""
    world.file("t", "1\n")
    tick(world.project)
    life.start("--name", "source")
    life.sh("echo old >> t", box="source").ok()
    promote(world, "-y", "source")
    life.fork("source", "--name", "f")
    record = os.path.join(world.store, "sandboxes", life.ls()["f"]["id"], "state.json")
    with open(record) as f:
        r = json.load(f)
    with open(record, "w") as f:
        json.dump({**r, "created": "2999-01-01T00:00:00Z"}, f)
    life.sh("echo F >> t", box="f").ok()
    promote(world, "-y", "f", "--dry-run")
    life.sh("echo S >> t", box="source").ok()
    promote(world, "-y", "source")
    r = promote(world, "-y", "f", rc=1)
    assert "conflict: 't'" in r.talk and text(world, "t") == "1\nold\nS\n"


@pytest.mark.parametrize("created,journal_next,rc", [
    ("2999-01-01T00:00:00Z", 2, 0), ("2999-01-01T00:00:00Z", 1, 1), ("2000-01-01T00:00:00Z", 2, 1),
    ("2999-01-01T00:00:00Z", 0, 0), (None, 2, 0), (None, 0, 1)])
def test_until_when_the_source_counts(world, created, journal_next, rc):
    """None: the second of the promotion. A record of old has no number; its second is in doubt."""
    world.file("a", "1\n")
    box = Box(world)
    box.run("echo 2 > a")
    promote(world, "-y")
    with open(os.path.join(world.store, "journal/1/op.json")) as f:
        second = json.load(f)["created"]
    fork = box.fork("fork")
    more = {"journal_next": journal_next} if journal_next else {}
    fork.save(parent=box.id, created=created or second, **more)
    fork.run("echo 3 > a")
    promote(world, "-y", "fork", rc=rc)
    assert text(world, "a") == ("2\n" if rc else "3\n")


# --- what was deleted -------------------------------------------------------------------------------------

def test_deleted_won_over_and_undone(world):
    """What `ours` brought back and undo took away again is deleted as before."""
    for name in ("s/g", "w/only", "top"):
        world.file(name, "1\n")
    git(world.project, "init", "-q")
    git(world.project, "add", "-A")
    box = Box(world)
    box.run("echo in >> s/g; echo in >> w/only; echo in >> top")
    gone(world, "s/g")
    gone(world, "top")
    gone(world, "w/only")
    os.rmdir(os.path.join(world.project, "w"))
    names = ("s/g", "w/only", "top")
    for _ in range(2):
        r = promote(world, "-y", rc=1)
        assert all(f"'{n}': {GONE}" in r.talk for n in names), r
        promote(world, "-y", "--on-conflict", "ours")
        assert all(text(world, n) == "1\nin\n" for n in names)
        call(world, "undo")
        assert not any(there(world, n) for n in names)
    call(world, "redo")
    call(world, "undo")
    promote(world, "-y", rc=1)
    call(world, "redo")
    box.run("echo more >> top")
    promote(world, "-y")
    assert text(world, "top") == "1\nin\nmore\n"
