"""petri undo, redo and history: the journal read backwards."""
import os
import shutil
import struct

import pytest

import helpers
from promotion import Box, call, contents, fresh, leftovers, look, promote, text


@pytest.fixture
def world(petri):
    return fresh(petri)


def history(world, *args, **kw):
    return [(h["journal"], h["kind"], h["state"]) for h in call(world, "history", "--json", *args, **kw).json]


def test_nothing_yet(world):
    assert call(world, "history", "--json").json == []
    assert "nothing was promoted" in call(world, "history").talk
    for verb in ("undo", "redo"):
        r = call(world, verb, rc=1)
        assert len(r.talk.splitlines()) == 1
        assert call(world, verb, "--json", rc=1).json["error"]["code"] == "not_found"


def test_twice_goes_back_two(world):
    world.file("a", "1\n")
    box = Box(world)
    states = [look(world.project)]
    for i in range(2, 5):
        box.run(f"echo {i} > a; echo {i} > n{i}")
        promote(world, "-y")
        states.append(look(world.project))
    for want in states[-2::-1]:
        assert "undone" in call(world, "undo").out
        assert look(world.project) == want
    call(world, "undo", rc=1)
    for want in states[1:]:
        assert "redone" in call(world, "redo").out
        assert {k: v[:3] for k, v in look(world.project).items()} == {k: v[:3] for k, v in want.items()}
    call(world, "redo", rc=1)
    assert [h[1:] for h in history(world)][:6] == [("redo", "done")] * 3 + [("undo", "done")] * 3
    assert history(world)[6:] == [(3, "promote", "in place"), (2, "promote", "in place"), (1, "promote", "in place")]


def test_by_number(world):
    world.file("a", "1\n")
    world.file("b", "1\n")
    box = Box(world)
    box.run("echo 2 > a")
    promote(world, "-y")
    box.run("echo 2 > b")
    promote(world, "-y")
    call(world, "undo", "1", cwd=world.home)
    assert text(world, "a") == "1\n" and text(world, "b") == "2\n"
    assert "redo" in call(world, "undo", "1", rc=1).talk
    assert "itself" in call(world, "undo", "3", rc=1).talk
    for bad in ("99", "x", "-1", "1e9", "../1"):
        r = world.run("--", bad, sub="undo") if bad[0] == "-" else world.run(bad, sub="undo")
        assert r.rc in (1, 2) and len(r.talk.splitlines()) == 1, r
    call(world, "redo", "1")
    assert text(world, "a") == "2\n"


def test_a_new_promotion_ends_what_can_be_redone(world):
    world.file("a", "1\n")
    box = Box(world)
    box.run("echo 2 > a")
    promote(world, "-y")
    call(world, "undo")
    box.run("echo 3 > a")
    promote(world, "-y")
    call(world, "redo", rc=1)
    assert text(world, "a") == "3\n"


def test_refuses_per_file(world):
    for n in ("a", "b", "c", "d"):
        world.file(n, "1\n")
    Box(world).run("echo 2 > a; echo 2 > b; echo 2 > c; rm d; echo n > n; mkdir e; echo x > e/x")
    promote(world, "-y")
    world.file("a", "host\n")                              # edited
    os.chmod(os.path.join(world.project, "b"), 0o600)      # another mode
    world.file("d", "host's own\n")                        # made again
    world.file("e/host", "host\n")                         # something else in a new directory
    os.unlink(os.path.join(world.project, "n"))            # removed by hand: as before already
    r = call(world, "undo", "--json", rc=1)
    assert sorted(r.json["refused"]) == ["a", "b", "d"] and r.json["directories_kept"] == ["e"]
    assert text(world, "a") == "host\n" and text(world, "c") == "1\n" and text(world, "d") == "host's own\n"
    assert os.listdir(os.path.join(world.project, "e")) == ["host"]


def test_nothing_is_undone_where_all_moved_on(world):
    world.file("a", "1\n")
    Box(world).run("echo 2 > a")
    promote(world, "-y")
    world.file("a", "host\n")
    call(world, "undo", rc=1)
    assert history(world) == [(1, "promote", "in place")]
    world.file("a", "2\n")
    call(world, "undo")
    assert text(world, "a") == "1\n"


def test_undone_by_hand(world):
    world.file("a", "1\n")
    Box(world).run("echo 2 > a")
    promote(world, "-y")
    world.file("a", "1\n")
    call(world, "undo")
    assert history(world)[-1] == (1, "promote", "undone")


def test_byte_for_byte(world):
    """Modes, times, links, deletions, directories, odd modes: everything as before."""
    world.file("a", "1\n", 0o640)
    world.file("ro", "1\n", 0o444)
    world.file("d/e/f", "f\n", 0o751)
    os.makedirs(os.path.join(world.project, "d/empty"))
    os.symlink("nowhere", os.path.join(world.project, "l"))
    for n, t in (("a", 1_000_000_000_123_456_789), ("d/e/f", 5), ("ro", 2**33 * 10**9 + 1)):
        os.utime(os.path.join(world.project, n), ns=(t, t))
    os.utime(os.path.join(world.project, "l"), ns=(77, 77), follow_symlinks=False)
    before = look(world.project)
    dirs = os.stat(os.path.join(world.project, "d/e")).st_mtime_ns
    Box(world).run("rm -r d; rm l; echo l > l; rm a; mkdir a; echo x > a/x; chmod u+w ro; echo 2 > ro")
    promote(world, "-y")
    after = contents(world.project)
    call(world, "undo")
    assert look(world.project) == before and os.stat(os.path.join(world.project, "d/e")).st_mtime_ns == dirs
    call(world, "redo")
    assert contents(world.project) == after
    call(world, "undo")
    assert look(world.project) == before


def test_acls_of_a_directory(world):
    world.file("d/x", "x\n")
    d = os.path.join(world.project, "d")
    # owner, user 1, group, mask, others
    entries = [(0x01, 7, 0xffffffff), (0x02, 5, 1), (0x04, 5, 0xffffffff), (0x10, 7, 0xffffffff),
               (0x20, 5, 0xffffffff)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *x) for x in entries)
    names = ("system.posix_acl_access", "system.posix_acl_default")
    try:
        for n in names:
            os.setxattr(d, n, acl)
    except OSError as e:
        pytest.skip(f"no ACLs here: {e}")
    acls = [os.getxattr(d, n) for n in names]
    Box(world).run("rm -r d")
    promote(world, "-y")
    assert not os.path.exists(d)
    call(world, "undo")
    assert [os.getxattr(d, n) for n in names] == acls and text(world, "d/x") == "x\n"


def test_another_project(world):
    world.file("a", "1\n")
    Box(world).run("echo 2 > a")
    promote(world, "-y")
    away = world.path("away")
    os.rename(world.project, away)
    shutil.copytree(away, world.project)
    r = call(world, "undo", "1", rc=1)
    assert "another directory" in r.talk and text(world, "a") == "2\n"
    r = call(world, "undo", rc=1)
    assert "nothing was promoted into this project" in r.talk


def test_a_journal_that_can_not_be_read(world):
    world.file("a", "1\n")
    Box(world).run("echo 2 > a")
    promote(world, "-y")
    plan = os.path.join(world.store, "journal", "1", "plan.json")
    good = helpers.read(plan)
    for bad in (b"", b"{}", b"[1]", good.replace(b'"path":"a"', b'"path":"../a"'),
                good.replace(b'"schema":1', b'"schema":99'), good[:-9]):
        helpers.write(plan, bad, 0o600)
        r = call(world, "undo", rc=1)
        assert len(r.talk.splitlines()) == 1 and text(world, "a") == "2\n", bad
    helpers.write(plan, good, 0o600)
    old = os.path.join(world.store, "journal", "1", "old")
    helpers.write(old, b"x\n", 0o600)  # as long as it was
    r = call(world, "undo", rc=1)
    assert len(r.talk.splitlines()) == 1
    assert text(world, "a") == "2\n" and not leftovers(world)


def test_from_a_subdirectory(world):
    world.file("d/a", "1\n")
    Box(world).run("echo 2 > d/a")
    promote(world, "-y", cwd=os.path.join(world.project, "d"))
    call(world, "undo", cwd=os.path.join(world.project, "d"))
    assert text(world, "d/a") == "1\n"
    assert len(history(world, "-a", cwd=world.home)) == 2 and history(world, cwd=world.home) == []
