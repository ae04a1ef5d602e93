"""Paths of the project that can't be written inside (--protect), and the other place where it is seen
(--workspace-path)."""
import os

import pytest

import helpers
from life import life  # noqa: F401

MODES = ["overlay", "copy", "bind"]
# What lifts a protection where it can be lifted. Each line is tried on its own, whatever became of the others.
ATTACKS = """
echo x >conf/deep/file; echo x >>$W/conf/deep/file; cp /etc/hostname conf/deep/file; truncate -s0 conf/deep/file
rm -f conf/deep/file; rm -rf conf/deep; rm -rf conf; rmdir conf/deep; chmod 777 conf/deep/file; touch conf/deep/file
mv conf/deep/file elsewhere; mv conf/deep elsewhere; mv conf elsewhere; mv $W/conf $W/elsewhere; mv -f README conf/deep/file
ln -sfn /tmp conf; ln -sf /dev/null conf/deep/file; ln -f README conf/deep/file; mkdir -p conf/deep; sed -i s/keep/x/ conf/deep/file
perl -e 'rename "conf", "other"'; perl -e 'rename "README", "conf/deep/file"'
umount conf/deep/file; umount -l conf; mount -o remount,rw conf/deep/file; mount --bind . conf
echo x >dir/new; echo x >dir/kept; rm -f dir/kept; mkdir dir/sub; mv dir elsewhere
"""


@pytest.fixture
def conf(petri):
    petri.file("conf/deep/file", "keep")
    petri.file("conf/open", "open")
    petri.file("dir/kept", "keep")
    return petri


def attack(where="/workspace"):
    return f"W={where}; " + " ".join(f"({one}) 2>/dev/null;" for line in ATTACKS.strip().splitlines()
                                     for one in line.split("; "))


LOOK = " cat conf/deep/file $W/conf/deep/file dir/kept $W/dir/kept; ls dir; echo y >conf/open && cat conf/open"
HELD = "keepkeepkeepkeepkept\ny\n"


@pytest.mark.parametrize("mode", MODES)
def test_protected(conf, mode):
    flags = ("--workspace-mode", mode, "--protect", "conf/deep/file", "--protect", "dir")
    assert conf.sh(attack() + LOOK, *flags).ok().out == HELD
    # the same, where nothing is protected: the attacks are real
    if mode != "bind":
        assert "keep" not in conf.sh(attack() + LOOK, "--workspace-mode", mode).out


def test_protected_from_user_0(conf):
    r = conf.sh(attack() + LOOK, "-u", "0", "--protect", "conf/deep/file", "--protect", "dir", timeout=300)
    assert r.ok().out == HELD


def test_protected_in_another_place(conf):
    r = conf.sh(attack("/srv/here") + LOOK, "--workspace-path", "/srv/here", "--protect", "conf/deep/file",
                "--protect", "dir")
    assert r.ok().out == HELD


@pytest.mark.parametrize("mode", ["overlay", "copy"])
def test_missing_can_not_be_made(petri, mode):
    script = ("echo x >.vscode; mkdir .vscode/x; touch .vscode/x; rmdir .vscode; mv .vscode a; touch new/deep/x; mv new b;"
              "ln -s /tmp .vscode/l; touch new/fine && ls -A .vscode /workspace/new/deep; ls new")
    before = helpers.tree(petri.project)
    r = petri.sh(script, "--workspace-mode", mode, "--protect", ".vscode", "--protect", "new/deep/")
    assert r.ok().out == ".vscode:\n\n/workspace/new/deep:\ndeep\nfine\n", r
    assert helpers.tree(petri.project) == before


def test_missing_in_bind_mode_is_an_error(petri):
    r = petri.sh("true", "--workspace-mode", "bind", "--protect", ".vscode").ok(125)
    assert "--protect '.vscode'" in r.talk and "not there" in r.talk


def test_patterns(petri):
    for name in ("a.lock", "b.lock", "c.txt"):
        petri.file(name, "1")
    r = petri.sh("for f in *; do echo 2 >$f; done 2>/dev/null; cat a.lock b.lock c.txt", "--protect", "*.lock")
    assert r.out == "112\n"


@pytest.mark.parametrize("mode", MODES)
def test_hidden_and_protected(petri, mode):
    """Nothing of it is seen, and nothing is made in its place."""
    petri.file("secret/key", helpers.CANARY)
    petri.file(".env", helpers.CANARY)
    r = petri.sh("cat .env secret/key; echo x >.env; echo x >secret/key; mv secret s; mv .env e; rm -rf .env secret; cat .env "
                 "secret/key; ls secret 2>/dev/null", "--workspace-mode", mode, "--hide", ".env", "--hide", "secret",
                 "--protect", "secret/key", "--protect", ".env")
    assert r.out in ("", "secret\n"), r
    assert helpers.read(os.path.join(petri.project, ".env")) == helpers.CANARY.encode()


def test_a_volume_that_shows_the_project(conf):
    v = f"{conf.project}:/again"
    part = f"{conf.project}/dir:/part"
    r = conf.sh("cd /again; echo x >conf/deep/file; mv conf c; echo x >dir/kept; echo x >/part/kept; touch /part/new; "
                "echo y >conf/open; true", "-v", v, "-v", part, "--protect", "conf/deep/file", "--protect", "dir").ok()
    for name, text in (("conf/deep/file", b"keep"), ("dir/kept", b"keep"), ("conf/open", b"y\n")):
        assert helpers.read(os.path.join(conf.project, name)) == text, r


@pytest.mark.parametrize("path,why", [("../x", "inside the project"), ("/etc/passwd", "inside the project"), (".", "inside"),
                                      ("", "inside"), ("link", "symbolic link"), ("link/x", "symbolic link"),
                                      ("README/x", "no directory"), ("pipe", "no file")])
def test_wrong(petri, path, why):
    os.symlink("/tmp", os.path.join(petri.project, "link"))
    os.mkfifo(os.path.join(petri.project, "pipe"))
    petri.file("README", "x")
    r = petri.sh("true", "--protect", path).ok(125)
    assert f"--protect '{path}'" in r.talk and why in r.talk and r.talk.count("\n") <= 1, r


# --- sandboxes that stay ------------------------------------------------------------------------------


def held(life, box=None):  # noqa: F811
    life.sh(attack(), box=box)
    return life.sh("W=/workspace;" + LOOK, box=box).ok().out == HELD


@pytest.mark.parametrize("mode", ["overlay", "copy"])
def test_stays_protected(conf, life, mode):  # noqa: F811
    life.start("--workspace-mode", mode, "--protect", "conf/deep/file", "--protect", "dir", "--protect", "not/yet")
    assert held(life)
    name = life.fork()[0]
    assert held(life, name)
    snap = life.snap()
    life("rollback", snap).ok()
    assert held(life)
    life("stop").ok()
    life.start()
    assert held(life)
    r = life("fs", "write", "conf/deep/file", input="x")
    assert r.rc and "ead-only" in r.talk, r
    r = life("cp", os.path.join(conf.project, "README"), ":/workspace/dir/new")
    assert r.rc and "ead-only" in r.talk, r
    r = life("fs", "rm", "dir/kept")
    assert r.rc, r
    paths = [f["path"] for f in life("diff", "--json").ok().json["changes"]]
    assert "conf/open" in paths and not [p for p in paths if p.startswith(("conf/deep", "dir", "not"))], paths


def test_promote_takes_nothing_protected(conf, life):  # noqa: F811
    """What was written before a path was protected stays in the sandbox."""
    life.start()
    life.sh("echo x >conf/deep/file; echo x >new; echo x >dir/added; rm dir/kept").ok()
    life("restart", "--protect", "conf", "--protect", "dir").ok()
    r = life("promote", "--yes", "--json", "--allow", "conf", "--allow", "dir").ok()
    assert [f["path"] for f in r.json["files"]] == ["new"]
    assert {f["path"]: f["result"] for f in r.json["held"]} == dict.fromkeys(
        ["conf/deep/file", "dir/added", "dir/kept"], "read-only"), r
    assert helpers.read(os.path.join(conf.project, "conf/deep/file")) == b"keep"


@pytest.mark.parametrize("script,path", [("rm -r dir", "dir"), ("rm -r dir; ln -s conf dir", "dir"),
                                         ("mv conf/deep c; ln -s ../c conf/deep", "conf/deep/file")])
def test_replaced_before(conf, life, script, path):  # noqa: F811
    """Then it can't be protected, and the sandbox does not start; a start that failed leaves no flag behind."""
    life.start()
    life.sh(script).ok()
    life("stop").ok()
    r = life("start", "--protect", path)
    assert r.rc and "is to be protected" in r.talk and "can't be" in r.talk, r
    life.start()


# --- where the project is seen ----------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["/srv/app", "/app", "/tmp/ws", "/var/www/html"])
def test_workspace_path(petri, place):
    petri.file("f", "one")
    r = petri.sh(f"cat {place}/f; ls -d /workspace 2>/dev/null; echo two >{place}/g; cat {petri.project}/g; pwd",
                 "--workspace-path", place).ok()
    assert r.out == f"onetwo\n{petri.project}\n"


def test_workspace_path_in_the_home(petri):
    home = petri.sh("echo $HOME").ok().out.strip()
    assert petri.sh("ls ~/ws", "--workspace-path", f"{home}/ws/").ok().out == petri.sh("ls").ok().out


def test_workspace_path_is_the_projects_own(petri):
    petri.file("f", "one")
    r = petri.sh("cat f; ls -d /workspace; echo x >f; cat f", "--workspace-path", petri.project, "--protect", "f")
    assert r.out == "oneone"


def test_volume_at_both_places(petri):
    src = os.path.join(petri.base, "data")
    helpers.write(os.path.join(src, "f"), "x")
    for dst in ("/srv/p/vol", f"{petri.project}/vol"):
        r = petri.sh(f"cat /srv/p/vol/f {petri.project}/vol/f", "--workspace-path", "/srv/p", "-v", f"{src}:{dst}").ok()
        assert r.out == "xx"
    for dst in ("/srv/p", "/srv"):
        r = petri.sh("true", "--workspace-path", "/srv/p", "-v", f"{src}:{dst}").ok(125)
        assert "the project's own place" in r.talk


@pytest.mark.parametrize("place", ["/", "//", "/proc", "/proc/x", "/sys", "/dev/shm", "/usr", "/usr/src/x", "/etc", "/run/x",
                                   "/bin", "/lib64", "/opt/x", "/tmp", "/var", "/var/lib", "/.petri-init", "relative", "",
                                   "/a/../..", "{home}", "{project}/sub", "{above}"])
def test_workspace_path_refused(petri, place):
    place = place.format(home=petri.sh("echo $HOME").ok().out.strip(), project=petri.project,
                         above=os.path.dirname(petri.project))
    r = petri.sh("true", "--workspace-path", place).ok(125)
    assert f"--workspace-path '{place}'" in r.talk and r.talk.count("\n") <= 1, r


def test_workspace_path_stays(petri, life):  # noqa: F811
    life.start("--workspace-path", "/srv/p")
    life.sh("echo x >/srv/p/new").ok()
    assert life.out("cat new") == "x\n"
    assert life("fs", "read", "/srv/p/new").ok().out == "x\n"
    name = life.fork()[0]
    assert life.out("cat /srv/p/new", box=name) == "x\n"
    life("promote", "--yes").ok()
    assert helpers.read(os.path.join(petri.project, "new")) == b"x\n"
    r = life("start", "--workspace-path", "/srv/q")
    assert r.rc and "--workspace-path /srv/q (it has /srv/p)" in r.talk, r
    life("restart", "--workspace-path", "/srv/q").ok()
    assert life.out("cat /srv/q/new; ls -d /srv/p 2>&1 | wc -c") != ""
    assert life.sh("test -d /srv/q/.").ok() and life.sh("test -e /srv/p/new").rc
