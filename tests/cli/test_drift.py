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

@pytest.mark.parametrize("mode", ["overlay", "copy"])
@pytest.mark.parametrize("layers", ["one", "frozen", "both"])
def test_deleted_by_hand(world, mode, layers):
    """A file that no git index has, and that the sandbox has written to, in whichever layer."""
    for name in ("top", "d/deep", "e/last"):
        world.file(name, "1\n")
    box = Box(world, mode=mode)
    if layers != "one":
        box.run("echo in >> top; echo in >> d/deep; echo in >> e/last; echo n > n; echo n > d/n")
        box.snapshot()
    if layers != "frozen":
        box.run("echo in >> top; echo in >> d/deep; echo in >> e/last; echo n >> n; echo n >> d/n")
    gone(world, "top")
    gone(world, "d/deep")
    gone(world, "e/last")
    os.rmdir(os.path.join(world.project, "e"))
    r = promote(world, "-y", rc=1)
    assert all(f"'{n}': {GONE}" in r.talk for n in ("top", "d/deep", "e/last")), r
    assert "n'" not in r.talk.replace("'n'", "N'") and "N'" not in r.talk.replace("'n'", "N'"), r
    promote(world, "-y", "--on-conflict", "theirs")
    assert there(world, "n") and there(world, "d/n")
    r = promote(world, "-y", rc=1)
    assert all(f"'{n}': {GONE}" in r.talk for n in ("top", "d/deep", "e/last")), r
    assert not (there(world, "top") or there(world, "d/deep") or there(world, "e/last"))


@pytest.mark.parametrize("tracked", [False, True])
def test_renamed_inside(world, tracked):
    """A new name in the project is no deleted file, also where the file was edited on the way."""
    for name in ("a", "b", "d/c", "d/e", "d/f"):
        world.file(name, f"{name}\n")
    world.file("long", "".join(f"{i}\n" for i in range(50)))
    if tracked:
        git(world.project, "init", "-q")
        git(world.project, "add", "-A")
    box = Box(world)
    box.run("mv long long2; echo x >> long2; mv a a2; echo x >> a2; mv d/c d/c2; echo x >> d/c2; mkdir n; mv b n/b; echo x >> n/b; echo x > d/x")
    world.file("other", "host\n")
    tick(world.project)
    os.unlink(os.path.join(world.project, "other"))
    promote(world, "-y", "d")
    box.run("mv d/e d/e2; echo x >> d/e2; mv d/f f2")
    promote(world, "-y", "d", "n", "b", "f2", "long", "long2")
    assert text(world, "d/c2") == "d/c\nx\n" and text(world, "n/b") == "b\nx\n" and text(world, "d/e2") == "d/e\nx\n"
    assert text(world, "f2") == "d/f\n" and text(world, "long2").endswith("49\nx\n")


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
