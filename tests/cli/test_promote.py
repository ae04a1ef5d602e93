"""petri promote: what a sandbox changed comes into the project, all of it or nothing."""
import json
import mmap
import os
import re
import shutil
import stat
import subprocess
import time

import pytest

import helpers
from promotion import Box, call, contents, fresh, git, leftovers, look, promote, text, tick


@pytest.fixture
def world(petri):
    return fresh(petri)


@pytest.fixture
def repo(world):
    """A world whose project is in git."""
    git(world.project, "init", "-q")
    return world


def commit(world, message="all", **files):
    for name, body in files.items():
        world.file(name, body)
    git(world.project, "add", "-A")
    git(world.project, "commit", "-q", "--allow-empty", "-m", message)


def results(r):
    """path -> what became of it."""
    j = r.json
    return {f["path"]: f["result"] for k in ("files", "held", "conflicts", "skipped") for f in j[k]}


# --- the plain case --------------------------------------------------------------------------------------

def test_everything_at_once(world):
    world.file("a", "old\n")
    world.file("run.sh", "#!/bin/sh\n", 0o755)
    world.file("gone/deep/x", "x\n")
    world.file("gone/y", "y\n")
    world.file("keep/z", "z\n")
    os.symlink("a", os.path.join(world.project, "link"))
    box = Box(world)
    box.run("echo new > a; chmod 644 run.sh; rm -r gone; mkdir -p d/e; echo f > d/e/f; ln -sfn keep/z link; "
            "mkdir empty; rm keep/z; mkdir keep/z; echo in > keep/z/in")
    before = look(world.project)
    r = promote(world, "-y", "--json")
    assert r.json["state"] == "applied" and r.json["journal"] == 1
    assert text(world, "a") == "new\n" and text(world, "d/e/f") == "f\n" and text(world, "keep/z/in") == "in\n"
    assert os.readlink(os.path.join(world.project, "link")) == "keep/z"
    assert not os.path.exists(os.path.join(world.project, "gone"))
    assert os.path.isdir(os.path.join(world.project, "empty"))
    assert os.stat(os.path.join(world.project, "run.sh")).st_mode & 0o777 == 0o644
    assert "nothing to promote" in promote(world, "-y", rc=1).talk
    call(world, "undo")
    assert look(world.project) == before


def test_nothing_to_do(world):
    Box(world)
    r = promote(world, rc=1)
    assert r.out == "" and r.talk.startswith("petri: nothing to promote") and len(r.talk.splitlines()) == 1
    j = promote(world, "--json", rc=1).json
    assert j["error"]["code"] == j["state"] == "nothing" and j["files"] == []


def test_asks_only_where_somebody_can_answer(world):
    Box(world).run("echo new > a")
    r = promote(world, rc=2)
    assert "-y" in r.talk and not os.path.exists(os.path.join(world.project, "a"))
    assert promote(world, "--json", rc=2).json["error"]["code"] == "usage"


def test_dry_run(world):
    world.file("a", "1\n")
    Box(world).run("echo 2 > a; echo b > b; ln -s /etc c")
    before = look(world.project)
    r = promote(world, "--dry-run")
    assert "taken     M  a" in r.out and "taken     A  b" in r.out and "held      A  c" in r.out
    assert promote(world, "--dry-run", "--json").json["state"] == "dry-run"
    assert look(world.project) == before


def test_paths(world):
    for n in ("a", "d/b", "d/c", "e"):
        world.file(n, "1\n")
    Box(world).run("for f in a d/b d/c e; do echo 2 > $f; done; mkdir n; echo x > n/x; echo y > n/y")
    promote(world, "-y", "made", "d/b", "n/x")
    assert [text(world, n) for n in ("a", "d/b", "d/c", "e")] == ["1\n", "2\n", "1\n", "1\n"]
    assert os.listdir(os.path.join(world.project, "n")) == ["x"]
    promote(world, "-y", "./", cwd=os.path.join(world.project, "d"))
    assert text(world, "d/c") == "2\n" and text(world, "a") == "1\n"
    promote(world, "-y", "--", "e")
    assert text(world, "e") == "2\n"
    r = promote(world, "-y", "nosuch", rc=1)
    assert "neither a sandbox nor a path" in r.talk
    assert promote(world, "-y", "/etc/passwd", rc=1).talk


def test_paths_that_did_not_change(world):
    Box(world).run("mkdir s; echo 1 > s/f")
    for words in (("nonexist", "s/f"), ("--", "nonexist", "s/f"), ("made", "--", "s/f", "nonexist")):
        assert "nonexist" in promote(world, "-y", *words, rc=1).talk, words
    assert not os.path.exists(os.path.join(world.project, "s"))
    promote(world, "-y", "--", "s/f")


def test_a_word_that_is_a_sandbox_wins(world):
    world.file("made", "1\n")
    world.file("a", "1\n")
    Box(world).run("echo 2 > made; echo 2 > a")
    promote(world, "-y", "made")
    assert text(world, "made") == "2\n" and text(world, "a") == "2\n"


def test_review(world):
    world.file("a", "1\n")
    box = Box(world)
    box.run("echo 2 > a")
    change = world.run("--json", sub="diff").ok().json["change"]
    promote(world, "-y", "--review", "0" * 64, rc=1)
    box.run("echo 3 > a")
    r = promote(world, "-y", "--review", change, rc=1)
    assert "review it again" in r.talk and text(world, "a") == "1\n"
    change = world.run("--json", sub="diff").ok().json["change"]
    promote(world, "-y", "--review", change[:12])
    assert text(world, "a") == "3\n"
    promote(world, "-y", "--review", "xyz", rc=2)


def test_review_is_all_or_nothing(world):
    Box(world).run("echo 2 > a; ln -s /etc b")
    change = world.run("--json", sub="diff").ok().json["change"]
    r = promote(world, "-y", "--review", change, rc=1)
    assert "all of the change or nothing" in r.talk and os.listdir(world.project) == []
    promote(world, "-y", "--review", change, "--allow", "b")
    assert sorted(os.listdir(world.project)) == ["a", "b"]


# --- what never goes, and what goes only when it is named ------------------------------------------------------

def test_links_are_never_followed(world):
    """M01: links out of the project are held back, and nobody goes through them."""
    out = world.path("out")
    os.makedirs(out)
    Box(world).run(f"ln -s {out} x; ln -s ../../.. y; ln -s a z; echo a > a")
    r = promote(world, "-y", "--json")
    assert results(r) == {"a": "taken", "x": "held", "y": "held", "z": "taken"}
    assert not os.path.lexists(os.path.join(world.project, "x")) and os.listdir(out) == []
    promote(world, "-y", "--allow", "x")
    assert os.readlink(os.path.join(world.project, "x")) == out and os.listdir(out) == []


def test_a_directory_becomes_a_link_out(world):
    """M02: rm -r src; ln -s OUT src: neither the link nor the deletions go, and OUT stays empty."""
    out = world.path("out")
    os.makedirs(out)
    world.file("src/f", "1\n")
    world.file("src/g", "1\n")
    box = Box(world)
    box.run(f"rm -r src; ln -s {out} src")
    before = look(world.project)
    promote(world, "-y", rc=1)
    assert look(world.project) == before and os.listdir(out) == []
    promote(world, "-y", "--allow", "src")
    assert os.readlink(os.path.join(world.project, "src")) == out
    call(world, "undo")
    assert look(world.project) == before


def test_a_link_in_the_project_is_no_way_out(world):
    """The host's own directory was replaced by a link after the sandbox wrote below it."""
    out = world.path("out")
    os.makedirs(out)
    world.file("src/f", "1\n")
    Box(world).run("echo 2 > src/f; echo n > src/new")
    shutil.rmtree(os.path.join(world.project, "src"))
    os.symlink(out, os.path.join(world.project, "src"))
    promote(world, "-y", rc=1)
    promote(world, "-y", "--on-conflict", "ours", rc=1)
    assert os.listdir(out) == []


def test_a_link_becomes_a_directory(world):
    """What the same change takes away is in nobody's way."""
    out = world.path("out")
    os.makedirs(out)
    world.file("src/f", "1\n")
    os.symlink("src", os.path.join(world.project, "link"))
    os.symlink(out, os.path.join(world.project, "deep"))
    box = Box(world)
    box.run("rm link deep; mkdir -p link deep/a/b; echo 1 > link/x; echo 2 > deep/a/b/y; echo ok > other")
    before = look(world.project)
    assert results(promote(world, "-n", "--json"))["link/x"] == "taken"
    promote(world, "-y", "link")
    assert text(world, "link/x") == "1\n" and os.path.islink(os.path.join(world.project, "deep"))
    promote(world, "-y")
    assert text(world, "deep/a/b/y") == "2\n" and text(world, "other") == "ok\n"
    assert sorted(os.listdir(os.path.join(world.project, "src"))) == ["f"] and os.listdir(out) == []
    after = contents(world.project)
    call(world, "undo")
    call(world, "undo")
    assert look(world.project) == before
    call(world, "redo")
    call(world, "redo")
    assert contents(world.project) == after
    assert os.listdir(out) == []


def test_a_link_in_the_way_is_a_conflict_of_its_own(world):
    """It came to the project meanwhile, or goes elsewhere than it did; what else changed goes where theirs are kept."""
    out = world.path("out")
    os.makedirs(out)
    world.file("src/f", "1\n")
    os.symlink("src", os.path.join(world.project, "link"))
    Box(world).run("echo 2 > src/f; rm link; mkdir link; echo 1 > link/x; echo ok > other")
    shutil.rmtree(os.path.join(world.project, "src"))
    os.symlink(out, os.path.join(world.project, "src"))
    os.unlink(os.path.join(world.project, "link"))
    os.symlink(out, os.path.join(world.project, "link"))
    before = look(world.project)
    j = promote(world, "-y", "--json", rc=1).json
    assert {c["path"] for c in j["conflicts"]} == {"src", "src/f", "link", "link/x"}
    assert "link is in the way" in next(c["reason"] for c in j["conflicts"] if c["path"] == "src/f")
    promote(world, "-y", "--on-conflict", "ours", rc=1)
    assert look(world.project) == before
    promote(world, "-y", "--on-conflict", "theirs")
    assert text(world, "other") == "ok\n" and os.listdir(out) == []
    assert os.readlink(os.path.join(world.project, "link")) == os.readlink(os.path.join(world.project, "src")) == out


def test_directories_that_can_not_be_written(world):
    """Those of a module cache: they come, go and come back with their modes."""
    box = Box(world)
    box.run("mkdir -p mod/pkg/sub; echo x > mod/pkg/f; echo y > mod/pkg/sub/g; chmod 555 mod/pkg/sub mod/pkg mod")
    empty = look(world.project)
    promote(world, "-y")
    full = look(world.project)
    assert full["mod/pkg"][1] == full["mod/pkg/sub"][1] == full["mod"][1] == 0o555 and "mod/pkg/sub/g" in full
    call(world, "undo")
    assert look(world.project) == empty
    call(world, "redo")
    assert look(world.project) == full
    box.run("chmod -R u+w mod; rm -r mod")
    promote(world, "-y")
    assert look(world.project) == empty
    call(world, "undo")
    assert look(world.project) == full
    call(world, "undo")


def test_specials_and_bits(world):
    """M04: no pipes, sockets or devices; no setuid, capabilities or links between files."""
    world.file("was", "1\n", 0o644)
    box = Box(world)
    box.run("mkfifo fifo; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'; "
            "echo s > suid; chmod 6755 suid; echo one > h1; ln h1 h2; echo 2 > was; chmod 4755 was; "
            "mkdir sticky; chmod 1777 sticky; echo x > sticky/x" +
            ("; mknod chr c 1 3; setcap cap_net_raw+ep suid" if helpers.ROOT and shutil.which("setcap") else ""))
    r = promote(world, "-y", "--json")
    got = results(r)
    assert got["fifo"] == got["sock"] == "special" and "'fifo'" in r.talk and "'sock'" in r.talk
    assert got["suid"] == got["h1"] == got["h2"] == got["was"] == "taken"
    for d, dirs, files in os.walk(world.project):
        for n in dirs + files:
            st = os.lstat(os.path.join(d, n))
            assert stat.S_ISREG(st.st_mode) or stat.S_ISDIR(st.st_mode), n
            assert st.st_mode & 0o7000 == 0, n
            assert stat.S_ISDIR(st.st_mode) or st.st_nlink == 1
            assert "security.capability" not in os.listxattr(os.path.join(d, n))
    assert os.stat(os.path.join(world.project, "was")).st_mode & 0o777 == 0o755


def test_what_runs_code_is_held(repo):
    """M05: hooks, editors' tasks and the like wait for --allow; .git never goes as files."""
    commit(repo, a="1\n")
    Box(repo).run("echo 2 > a; mkdir -p .vscode .git/hooks; echo '{}' > .vscode/tasks.json; echo x > .envrc; "
                  "echo '{}' > .mcp.json; echo '[submodule]' > .gitmodules; echo evil > .git/hooks/pre-commit; "
                  "git config core.fsmonitor /bin/false; git config core.hooksPath /tmp")
    before = helpers.tree(os.path.join(repo.project, ".git"))
    r = promote(repo, "-y", "--json")
    got = results(r)
    assert got["a"] == "taken"
    assert {got[n] for n in (".vscode/tasks.json", ".envrc", ".mcp.json", ".gitmodules")} == {"held"}
    assert sorted(os.listdir(repo.project)) == [".git", "a"]
    assert helpers.tree(os.path.join(repo.project, ".git")) == before
    promote(repo, "-y", "--allow", ".envrc")
    assert sorted(os.listdir(repo.project)) == [".envrc", ".git", "a"]


def test_hidden_files(repo):
    """A hidden file that is removed, written again and committed inside stays byte-identical."""
    repo.file(".env", "SECRET=1\n", 0o600)
    commit(repo, a="1\n")
    box = Box(repo, hide=[".env"])
    box.run("test ! -e .env; echo fake > .env; echo 2 > a; "
            "git -c user.name=n -c user.email=e add -A; "
            "git -c user.name=n -c user.email=e commit -q -m inside")
    before = helpers.tree(repo.project)[".env"]
    r = promote(repo, "-y", "--allow", ".env", "--json")
    assert results(r) == {".env": "hidden", "a": "taken"}
    assert helpers.tree(repo.project)[".env"] == before and text(repo, ".env") == "SECRET=1\n"


def test_ignored_files_only_when_named(repo):
    commit(repo, **{".gitignore": "out/\n*.o\n", "a": "1\n"})
    Box(repo).run("echo 2 > a; mkdir out; echo b > out/b; echo o > x.o")
    promote(repo, "-y")
    assert sorted(os.listdir(repo.project)) == [".git", ".gitignore", "a"]
    promote(repo, "-y", "out")
    assert text(repo, "out/b") == "b\n" and not os.path.exists(os.path.join(repo.project, "x.o"))
    promote(repo, "-y", "x.o")
    assert text(repo, "x.o") == "o\n"


# --- what the host's file keeps -------------------------------------------------------------------------------

def test_host_metadata_stays(world):
    path = world.file("a", "1\n", 0o640)
    os.setxattr(path, "user.note", b"mine")
    acl = shutil.which("setfacl") and not subprocess.run(["setfacl", "-m", "u:daemon:r", path]).returncode
    if helpers.ROOT:
        os.chown(path, 1234, 2345)
    before = os.stat(path)
    facl = os.getxattr(path, "system.posix_acl_access") if acl else None
    box = Box(world)
    box.run("echo 2 > a; chmod 700 a; echo n > new")
    promote(world, "-y")
    st = os.stat(path)
    assert text(world, "a") == "2\n" and st.st_mode & 0o100 and st.st_mode & 0o7 == 0
    assert (st.st_uid, st.st_gid) == (before.st_uid, before.st_gid) and st.st_mtime > before.st_mtime
    assert os.getxattr(path, "user.note") == b"mine"
    if acl:
        assert os.getxattr(path, "system.posix_acl_access")[:4] == facl[:4]
    assert os.stat(os.path.join(world.project, "new")).st_uid == os.getuid()
    call(world, "undo")
    st = os.stat(path)
    assert (st.st_mode, st.st_uid, st.st_gid, st.st_mtime_ns) == \
        (before.st_mode, before.st_uid, before.st_gid, before.st_mtime_ns)
    assert os.getxattr(path, "user.note") == b"mine"
    if acl:
        assert os.getxattr(path, "system.posix_acl_access") == facl


@pytest.mark.root
def test_new_files_belong_to_the_projects_owner(world):
    box = Box(world)
    box.save(owner_uid=4321, owner_gid=5432)
    box.run("mkdir d; echo n > d/n; ln -s n d/l")
    promote(world, "-y")
    for n in ("d", "d/n", "d/l"):
        st = os.lstat(os.path.join(world.project, n))
        assert (st.st_uid, st.st_gid) == (4321, 5432), n


def test_umask_counts_for_new_files(world):
    Box(world).run("echo n > n; chmod 777 n; mkdir d; chmod 777 d; echo x > d/x")
    promote(world, "-y", preexec_fn=lambda: os.umask(0o027))
    assert os.stat(os.path.join(world.project, "n")).st_mode & 0o777 == 0o750
    assert os.stat(os.path.join(world.project, "d")).st_mode & 0o777 == 0o750


def test_holes_stay_holes(world):
    world.file("old", "x")
    os.truncate(os.path.join(world.project, "old"), 64 << 20)
    Box(world).run("truncate -s 64M new; printf end >> new; printf new > old")
    promote(world, "-y")
    new = os.stat(os.path.join(world.project, "new"))
    assert new.st_size == (64 << 20) + 3 and new.st_blocks * 512 < 1 << 20
    with open(os.path.join(world.project, "new"), "rb") as f:
        f.seek(64 << 20)
        assert f.read() == b"end"
    call(world, "undo")
    old = os.stat(os.path.join(world.project, "old"))
    assert old.st_size == 64 << 20 and old.st_blocks * 512 < 1 << 20


def test_hard_links_are_not_written_through(world):
    path = world.file("a", "1\n")
    other = world.path("other")
    os.link(path, other)
    Box(world).run("echo 2 > a")
    r = promote(world, "-y")
    assert "links" in r.talk and text(world, "a") == "2\n" and helpers.read(other) == b"1\n"


# --- the project moved on -----------------------------------------------------------------------------------------

def test_conflict(world):
    """M08: host edits the same file: reported, nothing changed; what the four answers do."""
    world.file("a", "1\n")
    world.file("b", "1\n")
    Box(world).run("echo sandbox > a; echo sandbox > b")
    world.file("a", "host\n")
    before = look(world.project)
    r = promote(world, "-y", rc=1)
    assert "conflict: 'a'" in r.talk and look(world.project) == before
    j = promote(world, "-y", "--json", rc=1).json
    assert j["error"]["code"] == "conflict" and [c["path"] for c in j["conflicts"]] == ["a"]
    promote(world, "-y", "--on-conflict", "merge", rc=1)  # no base: never a guess
    assert look(world.project) == before
    promote(world, "-y", "--on-conflict", "theirs")
    assert text(world, "a") == "host\n" and text(world, "b") == "sandbox\n"
    promote(world, "-y", "--on-conflict", "ours")
    assert text(world, "a") == "sandbox\n"
    call(world, "undo")
    assert text(world, "a") == "host\n"
    promote(world, "-y", "--on-conflict", "both", rc=2)


def test_merge_with_a_proven_base(repo):
    lines = [f"{i}\n" for i in range(40)]
    commit(repo, a="".join(lines), b="".join(lines))
    Box(repo).run("sed -i 's/^5$/five/' a; sed -i 's/^5$/five/' b")
    repo.file("a", "".join(lines).replace("30\n", "thirty\n"))
    repo.file("b", "".join(lines).replace("5\n", "FIVE\n", 1))
    promote(repo, "-y", "--on-conflict", "merge", "b", rc=1)
    r = promote(repo, "-y", "--on-conflict", "merge", "a", "--json")
    assert r.json["files"][0]["merged"]
    assert text(repo, "a") == "".join(lines).replace("30\n", "thirty\n").replace("\n5\n", "\nfive\n", 1)


def test_what_a_person_wrote_is_never_taken_for_ours(repo):
    """An edit of the project that a promotion overrode and undo brought back, or that was merged, is still one."""
    lines = [f"{i}\n" for i in range(40)]
    commit(repo, a="1\n", b="".join(lines))
    box = Box(repo)
    box.run("echo 2 > a; sed -i 's/^5$/five/' b")
    repo.file("a", "host\n")
    repo.file("b", "".join(lines).replace("30\n", "thirty\n"))
    promote(repo, "-y", "--on-conflict", "ours", "a")
    call(repo, "undo")
    assert text(repo, "a") == "host\n"
    for how in ("fail", "merge"):
        promote(repo, "-y", "--on-conflict", how, "a", rc=1)
    call(repo, "redo")
    box.run("echo 3 > a")
    promote(repo, "-y", "a")  # the person gave it up, twice
    assert text(repo, "a") == "3\n"
    promote(repo, "-y", "--on-conflict", "merge", "b")
    merged = text(repo, "b")
    assert "thirty" in merged and "five" in merged
    box.run("sed -i 's/^7$/seven/' b")
    promote(repo, "-y", "b", rc=1)
    promote(repo, "-y", "--on-conflict", "merge", "b")
    assert text(repo, "b") == merged.replace("\n7\n", "\nseven\n")
    for _ in range(2):
        call(repo, "undo")
    promote(repo, "-y", "b", rc=1)
    assert "thirty" in text(repo, "b") and "five" not in text(repo, "b")


def test_deleted_on_one_side(repo):
    commit(repo, a="1\n", b="1\n", c="1\n")
    Box(repo).run("rm a; echo 2 > b; rm c")
    repo.file("a", "host\n")
    os.unlink(os.path.join(repo.project, "b"))
    os.unlink(os.path.join(repo.project, "c"))
    j = promote(repo, "-y", "--json", rc=1).json
    assert sorted(c["path"] for c in j["conflicts"]) == ["a", "b"]


def test_both_did_the_same(world):
    world.file("a", "1\n")
    Box(world).run("echo 2 > a; echo b > b")
    world.file("a", "2\n")
    world.file("b", "b\n")
    assert "nothing to promote" in promote(world, "-y", rc=1).talk


def test_an_added_file_meets_one_of_the_host(world):
    Box(world).run("echo sandbox > n; mkdir d; echo x > d/x")
    world.file("n", "host\n")
    world.file("d/y", "host\n")
    promote(world, "-y", rc=1)
    assert text(world, "n") == "host\n"
    promote(world, "-y", "d")
    assert sorted(os.listdir(os.path.join(world.project, "d"))) == ["x", "y"]


def test_a_directory_is_swapped_by_rename(world):
    """The file's own ctime is old: only the directory tells."""
    world.file("src/a", "1\n")
    world.file("other/a", "host's other\n")
    Box(world).run("echo 2 > src/a")
    os.rename(os.path.join(world.project, "src"), os.path.join(world.project, "away"))
    os.rename(os.path.join(world.project, "other"), os.path.join(world.project, "src"))
    promote(world, "-y", rc=1)
    assert text(world, "src/a") == "host's other\n"


def test_same_size_and_time(world):
    """cp -p of another file of the same size: only the ctime tells."""
    path = world.file("a", "1111\n")
    other = helpers.write(world.path("other"), "2222\n")
    st = os.stat(path)
    os.utime(other, ns=(st.st_atime_ns, st.st_mtime_ns))
    Box(world).run("echo 3333 > a")
    subprocess.run(["cp", "-p", other, path], check=True)
    assert os.stat(path).st_mtime_ns == st.st_mtime_ns
    promote(world, "-y", rc=1)
    assert text(world, "a") == "2222\n"


def test_a_writer_with_a_mapping(world):
    """Writes through a mapping that was dirty before do not move the ctime."""
    path = world.file("a", "1" * 4096)
    with open(path, "r+b") as f:
        m = mmap.mmap(f.fileno(), 0)
    m[0:1] = b"2"
    Box(world).run("echo 3 > a")
    m[1:5] = b"host"
    promote(world, "-y", rc=1)
    m.flush()
    m.close()
    assert text(world, "a").startswith("2host")


def test_only_linked(repo):
    """`ln` moves the ctime and changes nothing: no conflict where the content is proven."""
    commit(repo, a="1\n")
    Box(repo).run("echo 2 > a")
    os.link(os.path.join(repo.project, "a"), repo.path("link"))
    promote(repo, "-y")
    assert text(repo, "a") == "2\n"


def test_touched_only(repo):
    commit(repo, **{"d/a": "1\n"})
    Box(repo).run("echo 2 > d/a")
    os.utime(os.path.join(repo.project, "d/a"))
    repo.file("d/new", "x\n")
    promote(repo, "-y", "d/a")
    assert text(repo, "d/a") == "2\n"


def test_the_clock_went_back(world):
    """A stamp that lies ahead: times prove nothing then."""
    world.file("a", "1\n")
    box = Box(world)
    box.run("echo 2 > a")
    box.save(stamp_sec=box.stamp // 10**9 + 10**6)
    r = promote(world, "-y", rc=1)
    assert "can't be told" in r.talk and text(world, "a") == "1\n"


def test_promoting_again_is_no_conflict(world):
    """What petri itself wrote for this sandbox nobody else changed."""
    world.file("a", "1\n")
    world.file("d", "1\n")
    box = Box(world)
    for i in range(2, 5):
        box.run(f"echo {i} > a; echo {i} > n; {'rm d' if i == 2 else f'echo {i} > d'}")
        promote(world, "-y")
        assert text(world, "a") == f"{i}\n"
    call(world, "undo")
    promote(world, "-y")
    assert text(world, "a") == "4\n" and text(world, "d") == "4\n"
    fork = box.fork("fork")
    fork.save(parent=box.id, created="2999-01-01T00:00:00Z")
    fork.run("echo fork > a")
    box.run("echo box > a")
    promote(world, "-y", "fork")
    assert text(world, "a") == "fork\n"
    promote(world, "-y", "made", rc=1)
    assert text(world, "a") == "fork\n"


def test_a_new_directory_file_in_the_way(world):
    """A directory that the sandbox replaced by a file holds a file of the host's."""
    world.file("d/a", "1\n")
    Box(world).run("rm -r d; echo file > d")
    world.file("d/new", "host\n")
    promote(world, "-y", rc=1)
    assert text(world, "d/new") == "host\n" and text(world, "d/a") == "1\n"


# --- the project itself ---------------------------------------------------------------------------------------------

@pytest.mark.parametrize("how", ["gone", "moved", "replaced", "link"])
def test_another_project(world, how):
    world.file("a", "1\n")
    box = Box(world)
    box.run("echo 2 > a")
    away = world.path("away")
    os.rename(world.project, away)
    if how == "replaced":
        shutil.copytree(away, world.project)
    if how == "link":
        os.symlink(away, world.project)
    if how == "gone":
        shutil.rmtree(away)
    r = world.run("-y", box.id, sub="promote", cwd=world.home).ok(1)
    assert len(r.talk.splitlines()) == 1 and "Traceback" not in r.talk
    if how != "gone":
        assert helpers.read(os.path.join(away, "a")) == b"1\n"
    if how == "replaced":
        assert text(world, "a") == "1\n"


@pytest.mark.user
def test_a_project_that_can_not_be_written(world):
    world.file("d/a", "1\n")
    os.chmod(os.path.join(world.project, "d"), 0o555)
    Box(world).run("echo 2 > d/a; echo n > d/n")
    r = promote(world, "-y", rc=1)
    assert len(r.talk.splitlines()) == 1 and text(world, "d/a") == "1\n"
    os.chmod(os.path.join(world.project, "d"), 0o755)


def test_unknown_sandboxes(world):
    for name in ("nosuch", "../x", "x" * 4096, "a b"):
        r = promote(world, "-y", name, rc=1)
        assert len(r.talk.splitlines()) == 1, name
    promote(world, "-y", "-rf", rc=2)
    promote(world, "-y", "", rc=2)


def test_names_that_are_no_text(world):
    box = Box(world)
    box.run("printf x > \"$(printf 'a\\377b')\"; printf y > \"$(printf 'n\\nl')\"; printf z > \"$(printf 'e\\033[2J')\"")
    r = promote(world, "-y")
    names = set(os.listdir(os.fsencode(world.project)))
    assert names == {b"a\xffb", b"n\nl", b"e\x1b[2J"} and b"\x1b" not in r.outb + r.errb
    call(world, "undo")
    assert os.listdir(world.project) == []
    call(world, "redo")
    assert set(os.listdir(os.fsencode(world.project))) == names


# --- commits ---------------------------------------------------------------------------------------------------------

ME = "git config user.name s; git config user.email s@x; "


def test_commits_come_home(repo):
    """gc, amend and rebase inside while the host commits: neither loses anything."""
    for i in range(5):
        commit(repo, f"c{i}", **{f"f{i}": f"{i}\n"})
    box = Box(repo)
    box.run(ME + "git gc -q --prune=now; echo in >> f0; git commit -q -am inside; git checkout -q -b topic HEAD~2; "
            "echo t > t; git add t; git commit -q -m topic; git rebase -q main; git commit -q --amend -m amended; "
            "git tag -a v1 -m tagged; git gc -q --prune=now; git stash list")
    commit(repo, "host", h="host\n")
    heads = git(repo.project, "for-each-ref").stdout
    config = helpers.read(os.path.join(repo.project, ".git", "config"))
    log = set(git(repo.project, "log", "--all", "--format=%H").stdout.split())
    r = promote(repo, "-y", "--json")
    refs = set(r.json["refs"])
    assert refs >= {"refs/petri/made/heads/main", "refs/petri/made/heads/topic", "refs/petri/made/tags/v1"}
    fsck = git(repo.project, "fsck", "--strict", "--full")
    assert "error" not in fsck.stderr and "missing" not in fsck.stdout
    assert set(git(repo.project, "log", "--all", "--format=%H").stdout.split()) > log
    assert "amended" in git(repo.project, "log", "--format=%s", "refs/petri/made/heads/topic").stdout
    assert heads in git(repo.project, "for-each-ref").stdout.replace(
        "".join(x + "\n" for x in git(repo.project, "for-each-ref", "refs/petri").stdout.splitlines()), "")
    assert helpers.read(os.path.join(repo.project, ".git", "config")) == config
    assert git(repo.project, "symbolic-ref", "HEAD").stdout.strip() == "refs/heads/main"
    assert promote(repo, "-y", "--json", rc=1).json["refs"] == []


def test_no_hook_runs(repo):
    commit(repo, a="1\n")
    trap = f"#!/bin/sh\ntouch {repo.path('trapped')}\n"
    for hook in ("reference-transaction", "post-commit", "pre-commit", "post-checkout", "post-index-change"):
        helpers.write(os.path.join(repo.project, ".git", "hooks", hook), trap, 0o755)
    helpers.write(repo.path("trap"), trap, 0o755)
    for key in ("core.fsmonitor", "filter.x.clean", "filter.x.smudge", "diff.x.textconv", "core.pager"):
        git(repo.project, "config", key, repo.path("trap"))
    repo.file(".gitattributes", "* filter=x diff=x\n")
    if os.path.exists(repo.path("trapped")):
        os.unlink(repo.path("trapped"))
    Box(repo).run(ME + "git config core.hooksPath /nonexistent; git config --unset core.fsmonitor; "
                  "rm .gitattributes; echo 2 > a; git commit -q -am inside; rm -f ../../../../trapped")
    if os.path.exists(repo.path("trapped")):
        os.unlink(repo.path("trapped"))
    promote(repo, "-y", "--allow", ".gitattributes")
    assert not os.path.exists(repo.path("trapped"))


def test_a_hostile_repository(repo):
    """Pipes and links in place of objects: no hanging, no way out, the files still go."""
    commit(repo, a="1\n")
    Box(repo).run(ME + "echo 2 > a; git commit -q -am inside; mkfifo .git/objects/pack/pack-x.idx; "
                  "ln -s /etc/passwd .git/objects/info/alternates")
    r = promote(repo, "-y", timeout=60)
    assert text(repo, "a") == "2\n" and "not brought home" in r.talk


# --- a branch instead --------------------------------------------------------------------------------------------------

def test_branch(repo):
    commit(repo, a="1\n", b="1\n", **{"d/x": "x\n"})
    before = look(repo.project)
    Box(repo).run("echo 2 > a; rm b; echo n > n; chmod +x n; ln -s a l; rm -r d; echo file > d")
    index = helpers.read(os.path.join(repo.project, ".git", "index"))
    head = git(repo.project, "rev-parse", "HEAD").stdout
    r = promote(repo, "-y", "--branch", "try", "--json")
    assert look(repo.project) == before
    assert helpers.read(os.path.join(repo.project, ".git", "index")) == index
    assert git(repo.project, "rev-parse", "HEAD").stdout == head
    assert git(repo.project, "rev-parse", "try").stdout.strip() == r.json["commit"]
    assert git(repo.project, "rev-parse", "try~1").stdout == head
    tree = git(repo.project, "ls-tree", "-r", "try").stdout
    assert [(x.split()[0], x.split()[3]) for x in tree.splitlines()] == \
        [("100644", "a"), ("100644", "d"), ("120000", "l"), ("100755", "n")]
    assert "error" not in git(repo.project, "fsck", "--strict").stderr
    r = promote(repo, "-y", "--branch", "main", rc=1)
    assert "checked out" in r.talk
    promote(repo, "-y", "--branch", "../evil", rc=1)
    promote(repo, "-y", "--branch", "try")
    assert git(repo.project, "rev-list", "--count", "try").stdout.strip() == "3"


def test_the_place_of_a_directory_that_stays(repo):
    """Hidden files keep it: whoever asks hears the same."""
    commit(repo, a="1\n", **{"mix/tok": "secret\n", "mix/m": "m\n"})
    before = look(repo.project)
    Box(repo, hide=["mix/tok"]).run("rm -rf mix; ln -s a mix; echo 2 > a")
    said = [promote(repo, *flags, rc=1).talk for flags in (("-y",), ("-n",), ("-y", "--branch", "try"))]
    assert "'mix' can't take the place of the directory" in said[0]
    assert said[0] == said[1] == said[2]
    assert look(repo.project) == before and git(repo.project, "branch", "--list", "try").stdout == ""
    promote(repo, "-y", "--branch", "try", "a")


def test_branch_without_git(world):
    Box(world).run("echo 2 > a")
    assert "git repository" in promote(world, "-y", "--branch", "b", rc=1).talk


# --- a terminal -----------------------------------------------------------------------------------------------------------

def ask(world, answers, *args, rc=0):
    """petri promote on a terminal; `answers` are typed as it asks."""
    t = helpers.Tty(world, *args, sub="promote")
    try:
        said = b""
        for wait, line in answers:
            t.expect(re.escape(wait))
            said += t.seen
            t.seen = b""
            t.send(line + b"\n")
        assert t.wait() == rc, said + t.seen
        return said + t.seen
    finally:
        t.close()


def test_question(world):
    world.file("a", "1\n")
    Box(world).run("echo 2 > a")
    ask(world, [(b"[N]o", b"n")], rc=1)
    assert text(world, "a") == "1\n"
    ask(world, [(b"[N]o", b"")], rc=1)
    assert text(world, "a") == "1\n"
    seen = ask(world, [(b"[N]o", b"y")])
    assert b"change " in seen and text(world, "a") == "2\n"


def test_hunk_by_hunk(world):
    lines = [f"{i}\n" for i in range(60)]
    world.file("a", "".join(lines))
    world.file("b", "1\n")
    Box(world).run("sed -i 's/^5$/five/; s/^30$/thirty/; s/^55$/fiftyfive/' a; echo 2 > b; echo n > n")
    # decided once, asked once: the review is broken off and gone on with
    ask(world, [(b"(1/3)", b"y"), (b"(2/3)", b"n"), (b"(3/3)", b"q")], "-p", rc=1)
    assert text(world, "a") == "".join(lines)
    ask(world, [(b"(3/3)", b"y"), (b"(1/1)", b"n"), (b"take this file", b"y")], "-p")
    want = "".join(lines).replace("\n5\n", "\nfive\n").replace("\n55\n", "\nfiftyfive\n")
    assert text(world, "a") == want and text(world, "b") == "1\n" and text(world, "n") == "n\n"
    call(world, "undo")
    assert text(world, "a") == "".join(lines)


def test_hunks_are_split(world):
    world.file("a", "".join(f"{i}\n" for i in range(10)))
    Box(world).run("sed -i 's/^3$/three/; s/^6$/six/' a")
    ask(world, [(b"(1/1)", b"s"), (b"(1/2)", b"n"), (b"(2/2)", b"y")], "-p")
    assert "3\n" in text(world, "a") and "six\n" in text(world, "a") and "three" not in text(world, "a")


# --- many -------------------------------------------------------------------------------------------------------------------

def test_many_files(world):
    for i in range(300):
        world.file(f"d{i % 7}/f{i}", f"{i}\n")
    Box(world).run("for f in d?/f*; do echo changed >> $f; done; rm -r d3; for i in $(seq 200); do "
                   "mkdir -p n/$i; echo $i > n/$i/x; done")
    before = look(world.project)
    promote(world, "-y")
    after = contents(world.project)
    assert len([p for p in after if p.startswith("n/") and p.endswith("/x")]) == 200 and "d3" not in after
    call(world, "undo")
    assert look(world.project) == before
    call(world, "redo")
    assert contents(world.project) == after


def test_two_at_once(world):
    """Two promotions of one project wait for each other; the loser finds nothing to do or a conflict."""
    world.file("a", "1\n")
    Box(world).run("for i in $(seq 40); do echo $i > n$i; done; echo 2 > a")
    both = [world.start("-y", "--json", sub="promote") for _ in range(4)]
    out = [p.communicate(timeout=60) for p in both]
    done = [json.loads(o) for o, _ in out if b'"applied"' in o]
    assert len(done) == 1, out
    assert text(world, "a") == "2\n" and not leftovers(world)


def test_a_bar_for_many(world):
    Box(world).run("mkdir d; for i in $(seq 1100); do : > d/$i; done")
    seen = ask(world, [(b"[N]o", b"y")])
    assert b"1100/1101" in seen and len(os.listdir(os.path.join(world.project, "d"))) == 1100


# --- a sandbox that runs ------------------------------------------------------------------------------------------------------

@pytest.fixture
def live(repo):
    """A project in git whose sandbox petri start makes."""
    repo.file(".env", "SECRET=1\n", 0o600)
    commit(repo, a="".join(f"{i}\n" for i in range(30)), b="1\n", **{"src/c": "1\n"})
    tick(repo.project)
    # the stamp lies a little before the start: what is older than that is beyond doubt
    helpers.wait_for(lambda: os.stat(os.path.join(repo.project, "src/c")).st_ctime < time.time() - 0.1)
    repo.run("--hide", ".env", sub="start").ok()
    yield repo
    repo.run("-f", *repo.run("-q", sub="ls").out.split(), sub="rm")


def inside(world, script):
    return world.run("--", "sh", "-c", script, sub="exec").ok()


def test_renamed_inside(live):
    """A new name has the old one's origin as root; that is no file that the project lost."""
    inside(live, "mv b b2; mv src/c src/c2; echo more >> src/c2")
    promote(live, "-y")
    assert text(live, "b2") == "1\n" and text(live, "src/c2") == "1\nmore\n"
    assert not os.path.exists(os.path.join(live.project, "b"))
    # once more, where promotion and people have changed the directory since
    helpers.write(os.path.join(live.project, "by-hand"), "x")
    inside(live, "mv a a2; echo more >> a2")
    promote(live, "-y")
    assert text(live, "a2").endswith("29\nmore\n") and not os.path.exists(os.path.join(live.project, "a"))


def test_deleted_on_the_host_is_seen(live):
    inside(live, "echo 2 > b; echo 2 > src/c")
    os.unlink(os.path.join(live.project, "src/c"))
    j = promote(live, "-y", "--json", rc=1).json
    assert [c["path"] for c in j["conflicts"]] == ["src/c"]


def test_live(live):
    """gc, amend and rebase inside while the host commits; hidden files; drift; undo."""
    secret = helpers.tree(live.project)[".env"]
    inside(live, "export HOME=/tmp; git config --global user.name s; git config --global user.email s@x; set -e; "
           "sed -i s/^5$/five/ a; echo in > n; git commit -q -am inside; git gc -q --prune=now; "
           "git commit -q --amend -m amended; rm -f .env; echo fake > .env; echo 2 > src/c; git add -A; git commit -q -am env")
    live.file("h", "host\n")
    git(live.project, "add", "h")
    git(live.project, "commit", "-q", "-m", "host")
    log = set(git(live.project, "log", "--all", "--format=%H").stdout.split())
    before = look(live.project)
    r = promote(live, "-y", "--json")
    got = results(r)
    assert got["a"] == got["n"] == got["src/c"] == "taken" and got[".env"] == "hidden"
    assert helpers.tree(live.project)[".env"] == secret
    assert any(x.endswith("/heads/main") for x in r.json["refs"])
    assert "error" not in git(live.project, "fsck", "--strict").stderr
    assert set(git(live.project, "log", "--all", "--format=%H").stdout.split()) > log
    me = os.getuid()
    assert all(os.lstat(os.path.join(d, n)).st_uid == me
               for d, ds, fs in os.walk(live.project) for n in ds + fs)
    inside(live, "echo 3 > src/c; sed -i s/^16$/sixteen/ a")
    live.file("a", text(live, "a").replace("25\n", "host's\n"))
    promote(live, "-y", rc=1)
    promote(live, "-y", "--on-conflict", "merge")
    assert all(x in text(live, "a") for x in ("five\n", "sixteen\n", "host's\n")) and text(live, "src/c") == "3\n"
    call(live, "undo")
    live.file("a", text(live, "a").replace("host's\n", "25\n"))
    call(live, "undo")
    assert {k: v[:3] for k, v in look(live.project).items()} == {k: v[:3] for k, v in before.items()}


def test_live_directory_swapped(live):
    inside(live, "echo 2 > src/c")
    live.file("other/c", "host's\n")
    os.rename(os.path.join(live.project, "src"), live.path("away"))
    os.rename(os.path.join(live.project, "other"), os.path.join(live.project, "src"))
    promote(live, "-y", rc=1)
    assert text(live, "src/c") == "host's\n"


def test_live_neighbours(live):
    """A file made beside it is no conflict: root has overlay's handles, others the index."""
    inside(live, "echo 2 > src/c")
    live.file("src/new", "host\n")
    promote(live, "-y")
    assert text(live, "src/c") == "2\n" and text(live, "src/new") == "host\n"
