"""The project as the sandbox sees it, and as it is afterwards."""
import os
import shutil
import socket
import subprocess
from importlib.util import find_spec

import pytest

from helpers import CANARY, SECRETS, UID, listing, read, tree, write


def git(cwd, *args, env=None):
    full = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@t", "GIT_COMMITTER_NAME": "t",
            "GIT_COMMITTER_EMAIL": "t@t", "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "protocol.file.allow", "GIT_CONFIG_VALUE_0": "always"}
    return subprocess.run(["git", *args], cwd=cwd, env=full, check=True, capture_output=True,
                          text=True).stdout


GIT_ID = ["-e", "GIT_AUTHOR_NAME=t", "-e", "GIT_AUTHOR_EMAIL=t@t", "-e", "GIT_COMMITTER_NAME=t",
          "-e", "GIT_COMMITTER_EMAIL=t@t"]


def repository(path):
    os.makedirs(path, exist_ok=True)
    git(path, "init", "-q", "-b", "main")
    write(os.path.join(path, "tracked"), "one\n")
    write(os.path.join(path, ".gitignore"), "ignored\nbuild/\n")
    git(path, "add", ".")
    git(path, "commit", "-q", "-m", "first")
    write(os.path.join(path, "tracked"), "one\ntwo\n")
    git(path, "commit", "-q", "-am", "second")
    return path


# --- which directory -------------------------------------------------------------------------

@pytest.mark.parametrize("marker", [".git", "petri.json", None])
def test_project_is_found(petri, marker):
    """The nearest parent with .git or a petri config, else the directory itself."""
    top = petri.path("home", "work")
    sub = os.path.join(top, "a", "b")
    os.makedirs(sub)
    write(os.path.join(top, "top-file"), "t")
    if marker == ".git":
        repository(top)
    elif marker:
        write(os.path.join(top, marker), "{}")
    r = petri.sh("pwd; cat ../../top-file 2>/dev/null; ls -A /workspace", cwd=sub).ok()
    lines = r.out.split()
    assert lines[0] == sub
    if marker:
        assert lines[1].startswith("t") and "top-file" in r.out, r
    else:
        assert lines[1:] == [], r


def test_nearest_one_wins(petri):
    inner = petri.path("home", "proj", "inner")
    os.makedirs(inner + "/x")
    write(inner + "/petri.json", "{}")
    r = petri.sh("pwd; ls /workspace; ls ..; cat ../../README", cwd=inner + "/x")
    assert "a project" not in r.out and "petri.json" in r.out, r


def test_working_directory_is_the_same_inside(petri):
    sub = petri.path("home", "proj", "with space ü", "deep")
    os.makedirs(sub)
    assert petri.run("--", "pwd", cwd=sub).ok().out == sub + "\n"


def test_reached_through_a_link(petri):
    """$PWD is a link to the project: the command starts in the project, whatever name it shows."""
    link = petri.path("link")
    os.symlink(petri.project, link)
    r = petri.sh("cat README; pwd -P", cwd=link, env={"PWD": link}).ok()
    assert r.out == f"a project\n{petri.project}\n"


@pytest.mark.parametrize("where", ["home", "parent", "root"])
def test_never_taken_by_itself(petri, where):
    d = {"home": petri.home, "parent": petri.base, "root": "/"}[where]
    if where == "parent":
        shutil.rmtree(petri.project)
    r = petri.run("--", "echo", "ran", cwd=d).ok(125)
    assert "ran" not in r.out and "--workspace" in r.talk and len(r.talk.splitlines()) == 1, r


def test_real_home_is_no_project_either(petri):
    """The account's home, whatever $HOME says."""
    import pwd
    d = pwd.getpwuid(UID).pw_dir
    r = petri.run("--", "echo", "ran", cwd=d).ok(125)
    assert "--workspace" in r.talk, r


def test_home_with_a_marker_is_still_a_home(petri):
    """A dot-file repository in the home directory does not make it a project of its own."""
    write(os.path.join(petri.home, "petri.json"), "{}")
    os.makedirs(os.path.join(petri.home, ".git"))
    petri.run("--", "true", cwd=petri.home).ok(125)
    d = os.path.join(petri.home, "plain")
    os.makedirs(d)
    r = petri.sh("pwd; ls -A /workspace", cwd=d)
    assert r.rc == 125 or ".ssh" not in r.out and r.out.startswith(d), r


def test_home_by_name_with_secrets_hidden(petri):
    r = petri.sh("cat README proj/README; " + "; ".join(f"cat {s}" for s in SECRETS) +
                 "; grep -rl CANARY . 2>/dev/null", "--workspace", petri.home, cwd=petri.home)
    assert "a project" in r.out, r
    for d in (".ssh", ".aws", ".gnupg", ".kube", ".docker", ".config/gh"):
        assert f"{CANARY} {d}" not in r.out, (d, r)


def test_the_machines_own_secrets(petri):
    """Of root in /etc, who is user 0 inside: what everybody may read is there, passwords are not."""
    flags = [] if os.getuid() else ["-u", "0"]
    r = petri.sh("wc -l <passwd; cat shadow shadow- gshadow ssh/* 2>/dev/null | wc -l", *flags, "--workspace", "/etc").ok()
    assert int(r.out.split()[0]) > 0 and r.out.split()[1] == "0", r


def test_secrets_hidden_from_bind_and_copy_too(petri):
    for mode in ("bind", "copy"):
        r = petri.sh("cat .ssh/id_rsa .aws/credentials .config/gh/hosts.yml; echo end",
                     "--workspace", petri.home, "--workspace-mode", mode, cwd=petri.home)
        assert CANARY not in r.out and "end" in r.out, r


@pytest.mark.parametrize("mode", ["overlay", "copy", "bind"])
def test_secrets_of_a_project_in_a_hidden_place(petri, mode):
    """A project that lies in the home and holds a part of its credentials, under whatever name it has there."""
    config, dotfiles = os.path.join(petri.home, ".config"), os.path.join(petri.home, "dotfiles")
    os.rename(os.path.join(petri.home, ".ssh"), write(dotfiles + "/x", "") and dotfiles + "/keys")
    os.symlink("dotfiles/keys", os.path.join(petri.home, ".ssh"))
    os.rename(config + "/gcloud", dotfiles + "/gcloud")
    os.symlink(dotfiles + "/gcloud", config + "/gcloud")
    write(config + "/other", "plain\n")
    for home in (petri.home, petri.home + "/", petri.path("link")):
        if not os.path.exists(home):
            os.symlink(petri.home, home)
        for cwd in (config, dotfiles):
            r = petri.sh("cat other x gh/hosts.yml gcloud/token keys/id_rsa; grep -r CANARY . /workspace; echo end",
                         "--workspace-mode", mode, cwd=cwd, env={"HOME": home}).ok()
            assert CANARY not in r.out and r.out.endswith("end\n") and ("plain" in r.out) == (cwd == config), r


def test_a_place_for_credentials_is_no_project(petri):
    write(os.path.join(petri.home, ".ssh/deep/x"), CANARY)
    os.symlink(".ssh", os.path.join(petri.home, "innocent"))
    write(os.path.join(petri.home, "elsewhere/deep/x"), CANARY)
    os.symlink("elsewhere", os.path.join(petri.home, ".fly"))
    os.symlink(petri.home, petri.path("link"))
    for name in (".ssh", ".ssh/deep", ".config/gh", "innocent", "innocent/deep", "elsewhere", ".fly/deep"):
        d = os.path.join(petri.home, name)
        for kw in ({"cwd": d}, {"flags": ("--workspace", d)}, {"cwd": d, "env": {"HOME": petri.path("link")}}):
            r = petri.run(*kw.pop("flags", ()), "--", "grep", "-r", CANARY, ".", **kw).ok(125)
            assert CANARY not in r.out and "place for credentials" in r.talk and "copy" in r.talk, r
            assert len(r.talk.splitlines()) == 1, r
    if os.path.isdir("/etc/ssh"):
        assert "place for credentials" in petri.run("--workspace", "/etc/ssh", "--", "true").ok(125).talk


def test_an_agents_worktree_is_a_project(petri):
    """Some agents keep them beside their own credentials."""
    tree_ = os.path.join(petri.home, ".codex/worktrees/1/repo")
    write(os.path.join(petri.home, ".codex/auth.json"), CANARY)
    write(tree_ + "/f", "here")
    assert petri.sh("cat f; cat ../../../auth.json", cwd=tree_).out == "here"
    assert "place for credentials" in petri.sh("true", cwd=os.path.join(petri.home, ".codex")).ok(125).talk


def test_workspace_flag(petri):
    other = petri.path("other")
    write(other + "/here", "x")
    r = petri.sh("pwd; cat here", "--workspace", other).ok()
    assert r.out == f"{other}\nx"
    r = petri.sh("cat here; cd /workspace; cat here", "--workspace", "../../other").ok()
    assert r.out == "xx"


def test_project_within_tmp(petri):
    """A project below /tmp is seen there though /tmp inside is another one."""
    import tempfile
    with tempfile.TemporaryDirectory(prefix="petri-cli-", dir="/tmp") as d:
        write(d + "/file", "x\n")
        write(d + "/petri.json", "{}")
        r = petri.sh("pwd; cat file; touch /tmp/mine; ls /tmp", cwd=d).ok()
        assert r.out.split()[:2] == [d, "x"] and "mine" in r.out
        assert not os.path.exists("/tmp/mine")


# --- what is in it ---------------------------------------------------------------------------

def test_dirty_untracked_and_ignored_files(petri):
    top = repository(petri.path("home", "repo"))
    write(top + "/tracked", "dirty\n")
    write(top + "/untracked", "u\n")
    write(top + "/ignored", "i\n")
    r = petri.sh("cat tracked untracked ignored", cwd=top).ok()
    assert r.out == "dirty\nu\ni\n"


def test_two_places_are_one(petri):
    r = petri.sh(f"echo one >/workspace/w; cat {petri.project}/w; echo two >{petri.project}/h; "
                 f"cat /workspace/h; rm /workspace/README; test -e {petri.project}/README; echo $?; "
                 f"stat -c %d:%i /workspace {petri.project}").ok()
    lines = r.out.split()
    assert lines[:3] == ["one", "two", "1"] and lines[3] == lines[4], r


def test_rename_between_the_two_places(petri):
    petri.sh(f"echo x >/workspace/a && mv /workspace/a {petri.project}/b && cat /workspace/b").ok()


def test_nothing_else_of_the_host_path_is_seen(petri):
    """The parents of the project exist inside, empty but for the way to it."""
    write(petri.path("home", "neighbour", "x"), CANARY)
    r = petri.sh(f"ls -A {petri.home} {petri.base}; cat {petri.home}/neighbour/x")
    assert CANARY not in r.out and "neighbour" not in r.out and ".ssh" not in r.out, r


def test_project_is_untouched(petri):
    """Everything rewritten and deleted inside; outside not one time stamp moves."""
    for i in range(30):
        petri.file(f"d{i % 3}/f{i}", f"{i}\n" * 50)
    os.symlink("d0/f0", os.path.join(petri.project, "link"))
    os.link(os.path.join(petri.project, "d0/f0"), os.path.join(petri.project, "hard"))
    petri.file("ro", "r", 0o444)
    before = tree(petri.project)
    r = petri.sh("for f in $(find . -type f); do echo changed >>$f; chmod 600 $f; done; "
                 "touch -d 2001-01-01 d1; mv d2 d3; echo n >new; rm -rf ./* ./.[a-z]*; ls -A | wc -l").ok()
    assert r.out.strip() == "0", r
    assert tree(petri.project) == before


def test_project_is_untouched_by_user_zero(petri):
    petri.file("a", "a")
    before = tree(petri.project)
    petri.sh("chown 0:0 a README; chmod 6755 a; echo x >>a; rm -rf ./*; true", "-u", "0")
    assert tree(petri.project) == before


def test_changes_vanish(petri):
    petri.sh("echo x >new").ok()
    assert petri.sh("ls").ok().out.split() == ["README", "petri.json"]


def test_owners_and_modes_inside(petri):
    petri.file("script", "#!/bin/sh\n", 0o750)
    petri.file("secret", "s", 0o600)
    r = petri.sh("stat -c '%a %U' script secret README . ; test -w . && test -O README; echo $?").ok()
    user = petri.run("--", "id", "-un").ok().out.strip()
    assert r.out.split("\n")[:3] == [f"750 {user}", f"600 {user}", f"644 {user}"], r
    assert r.out.split()[-1] == "0"


def test_special_files_of_a_project(petri):
    os.mkfifo(os.path.join(petri.project, "fifo"))
    os.symlink("/nowhere", os.path.join(petri.project, "dangling"))
    os.symlink(os.path.join(petri.home, ".ssh/id_rsa"), os.path.join(petri.project, "escape"))
    r = petri.sh("test -p fifo && readlink dangling; cat escape")
    assert "/nowhere" in r.out and CANARY not in r.out, r


def test_a_socket_in_the_project_is_dead_inside(petri):
    """A pathname socket of the host's can't be reached through the workspace."""
    s = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(petri.project)
    try:
        s.bind("sock")
        s.listen(1)
    finally:
        os.chdir(here)
    r = petri.run("--", "python3", "-c",
                  "import socket\ns = socket.socket(socket.AF_UNIX)\n"
                  "try:\n s.connect('sock'); print('CONNECTED')\nexcept OSError as e: print('no', e)").ok()
    s.close()
    assert "CONNECTED" not in r.out and "no" in r.out, r


@pytest.mark.root
def test_files_of_other_owners(petri):
    """A project of somebody's with root-owned build output in it: all can be changed inside."""
    for name, uid in (("mine", 1500), ("roots", 0), ("others", 1700)):
        os.chown(petri.file(name, name, 0o644), uid, uid)
    os.chown(petri.project, 1500, 1500)
    before = tree(petri.project)
    r = petri.sh("rm mine && rm roots && rm others && echo x >roots && mv README r2 && ls").ok()
    assert "r2" in r.out
    assert tree(petri.project) == before


# --- modes -----------------------------------------------------------------------------------

def test_bind_mode_writes_through_as_the_user(petri):
    petri.sh("echo inside >new; echo more >>README; mkdir d; touch d/f", "--workspace-mode", "bind").ok()
    assert read(os.path.join(petri.project, "new")) == b"inside\n"
    owner = os.stat(petri.project)
    for name in ("new", "README", "d", "d/f"):
        st = os.stat(os.path.join(petri.project, name))
        assert (st.st_uid, st.st_gid) == (owner.st_uid, owner.st_gid), (name, st)


@pytest.mark.root
def test_bind_mode_as_root_for_another_owner(petri):
    for n in ("README", "petri.json", "."):
        os.chown(os.path.join(petri.project, n), 1500, 1600)
    petri.sh("echo inside >new", "--workspace-mode", "bind").ok()
    st = os.stat(os.path.join(petri.project, "new"))
    assert (st.st_uid, st.st_gid) == (1500, 1600)


def test_bind_mode_gives_no_setuid_or_device(petri):
    petri.sh("cp /bin/true s; chmod 4755 s; mknod dev c 1 3; true", "--workspace-mode", "bind").ok()
    assert not os.path.exists(os.path.join(petri.project, "dev"))
    st = os.stat(os.path.join(petri.project, "s"))
    assert st.st_uid == os.stat(petri.project).st_uid


def test_copy_mode_is_detached(petri):
    petri.file("a", "old")
    p = petri.start("--workspace-mode", "copy", "--", "sh", "-c",
                    "echo ready; read x; cat a; echo new >a; stat -c %u:%g a", stdin=subprocess.PIPE)
    assert p.stdout.readline() == b"ready\n"
    petri.file("a", "changed outside")
    out, _ = p.communicate(b"\n", timeout=20)
    assert out.startswith(b"old") and p.returncode == 0, out
    assert read(os.path.join(petri.project, "a")) == b"changed outside"


def test_copy_mode_copies_everything(petri):
    os.symlink("README", os.path.join(petri.project, "link"))
    petri.file("exec", "#!/bin/sh\necho ran\n", 0o755)
    petri.file("deep/er/file", "x")
    os.makedirs(os.path.join(petri.project, "empty"))
    with open(os.path.join(petri.project, "sparse"), "wb") as f:
        f.truncate(100 << 20)
    before = tree(petri.project)
    r = petri.sh("readlink link; ./exec; cat deep/er/file; test -d empty && stat -c '%s %b' sparse; "
                 "stat -c %Y README", "--workspace-mode", "copy").ok()
    lines = r.out.split()
    assert lines[:3] == ["README", "ran", "x104857600"], r
    assert int(lines[3]) < 10000, "holes stay holes"
    assert int(lines[4]) == int(os.stat(os.path.join(petri.project, "README")).st_mtime)
    assert tree(petri.project) == before


def test_read_only(petri):
    for mode in ("overlay", "copy", "bind"):
        r = petri.sh("echo x >new; echo y >>README; rm README; cat README; echo z >/tmp/ok && cat /tmp/ok",
                     "--read-only", "--workspace-mode", mode).ok()
        assert r.out == "a project\nz\n" and "Read-only" in r.err, r
        assert read(os.path.join(petri.project, "README")) == b"a project\n"


def test_unknown_mode(petri):
    r = petri.run("--workspace-mode", "magic", "--", "true").ok(125)
    assert "magic" in r.talk and "overlay" in r.talk


# --- hiding ----------------------------------------------------------------------------------

@pytest.mark.parametrize("mode", ["overlay", "copy", "bind"])
def test_hide(petri, mode):
    for name in (".env", "keys/a", "keys/b", "sub/x.pem", "sub/y.pem", "sub/z.txt"):
        petri.file(name, CANARY)
    before = tree(petri.project)
    r = petri.sh("cat .env keys/a sub/x.pem sub/y.pem; ls keys; cat sub/z.txt",
                 "--workspace-mode", mode, "--hide", ".env", "--hide", "keys", "--hide", "sub/*.pem")
    assert r.out == CANARY, r  # only sub/z.txt
    assert tree(petri.project) == before


def test_hidden_at_both_places(petri):
    petri.file(".env", CANARY)
    r = petri.sh(f"cat /workspace/.env {petri.project}/.env", "--hide", ".env")
    assert CANARY not in r.out


def test_hidden_stays_hidden(petri):
    """Neither removing, renaming nor linking brings it back."""
    petri.file(".env", CANARY)
    petri.file("keys/a", CANARY)
    r = petri.sh("rm -rf .env keys; cat .env keys/a; mv keys k2; cat k2/a; ln .env hard; cat hard; "
                 "cp -r . /tmp/copy; grep -r CANARY /tmp/copy . 2>/dev/null",
                 "--hide", ".env", "--hide", "keys")
    assert CANARY not in r.out, r


def test_hide_something_missing_is_fine(petri):
    petri.run("--hide", "not-there", "--hide", "*.nothing", "--", "true").ok()


@pytest.mark.parametrize("pattern", ["", "/", "..", "../x", ".", "a/../../x"])
def test_hide_outside_the_project(petri, pattern):
    r = petri.run("--hide", pattern, "--", "true")
    assert r.rc == 125 and "hide" in r.talk, r


# --- git -------------------------------------------------------------------------------------

GIT_WORK = ("set -e; git status --porcelain; echo three >>tracked; git add tracked; git commit -q -m third; "
            "git checkout -q -b side HEAD~2; echo s >side; git add side; git commit -q -m side; "
            "git rebase -q main; git log --format=%s; git status --porcelain")


def check_git(petri, top, others=()):
    before = [tree(d) for d in (top, *others)]
    r = petri.bash(GIT_WORK.replace("main", git(top, "rev-parse", "--abbrev-ref", "HEAD").strip()),
                   *GIT_ID, cwd=top).ok()
    assert r.out.split() == ["side", "third", "second", "first"], r
    assert [tree(d) for d in (top, *others)] == before


def test_git_in_a_plain_checkout(petri):
    check_git(petri, repository(petri.path("home", "repo")))


def test_git_status_shows_what_the_host_shows(petri):
    top = repository(petri.path("home", "repo"))
    write(top + "/tracked", "dirty\n")
    write(top + "/untracked", "u\n")
    r = petri.run("--", "git", "status", "--porcelain", cwd=top).ok()
    assert r.out == git(top, "status", "--porcelain") == " M tracked\n?? untracked\n"


def test_git_from_a_subdirectory(petri):
    top = repository(petri.path("home", "repo"))
    os.makedirs(top + "/sub")
    r = petri.sh("git rev-parse --show-toplevel; git log --format=%s", cwd=top + "/sub").ok()
    assert r.out.split() == [top, "second", "first"]


def test_git_in_a_worktree(petri):
    repo = repository(petri.path("home", "repo"))
    tree_dir = petri.path("home", "elsewhere", "wt")
    os.makedirs(os.path.dirname(tree_dir))
    git(repo, "worktree", "add", "-q", "-b", "wt", tree_dir)
    check_git(petri, tree_dir, [repo])


def test_worktree_shows_only_the_git_directory_of_the_other(petri):
    repo = repository(petri.path("home", "repo"))
    write(repo + "/private", CANARY)
    tree_dir = petri.path("home", "wt")
    git(repo, "worktree", "add", "-q", "-b", "wt", tree_dir)
    r = petri.sh(f"cat {repo}/private; ls {repo}; git log --format=%s", cwd=tree_dir).ok()
    assert CANARY not in r.out and "tracked" not in r.out and "first" in r.out, r


def test_git_in_a_submodule(petri):
    lib = repository(petri.path("home", "lib"))
    top = repository(petri.path("home", "super"))
    git(top, "submodule", "add", "-q", lib, "mod")
    git(top, "commit", "-q", "-m", "with module")
    git(top + "/mod", "checkout", "-q", "-B", "main")
    # from the top
    r = petri.sh("git status --porcelain && git submodule status && git -C mod log --format=%s", cwd=top).ok()
    assert "second" in r.out
    # from inside the module
    check_git(petri, top + "/mod", [top])


def test_a_hostile_gitdir_file_brings_nothing_in(petri):
    """.git may name any directory: one that is no git directory does not come in."""
    d = petri.path("home", "evil")
    write(d + "/.git", f"gitdir: {petri.home}/.ssh\n")
    r = petri.sh(f"cat {petri.home}/.ssh/id_rsa; echo end", cwd=d)
    assert CANARY not in r.out, r
    write(d + "/.git", "gitdir: /etc/../root\n")
    assert CANARY not in petri.sh("ls /root", cwd=d).out


# --- mounts below the project ----------------------------------------------------------------

@pytest.mark.root
def test_mounts_below_the_project(petri):
    d = os.path.join(petri.project, "data")
    os.makedirs(d)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "petri-cli", d], check=True)
    try:
        write(d + "/file", "on the other mount\n")
        r = petri.sh("cat data/file; echo x >data/file; echo y >data/new; cat /workspace/data/new")
        if r.rc != 0 or "on the other mount" not in r.out:
            assert "data" in r.talk, f"a mount that is missing inside must be named: {r!r}"
        else:
            assert r.out == "on the other mount\ny\n", r
        assert read(d + "/file") == b"on the other mount\n" and os.listdir(d) == ["file"]
    finally:
        subprocess.run(["umount", d], check=True)


# --- tools with absolute paths ---------------------------------------------------------------

def test_pytest_from_an_activated_venv(petri):
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--system-site-packages", "--without-pip",
                    os.path.join(petri.project, ".venv")], check=True)
    petri.file("test_it.py", "import sys\ndef test_it():\n    assert '.venv' in sys.prefix\n"
                             "    open('written-by-test', 'w').close()\n")
    venv = os.path.join(petri.project, ".venv")
    env = {"VIRTUAL_ENV": venv, "PATH": f"{venv}/bin:/usr/bin:/bin"}
    r = petri.run("--", "python", "-m", "pytest", "-q", "test_it.py", env=env).ok()
    assert "1 passed" in r.out
    r = petri.sh("echo $VIRTUAL_ENV; command -v python", env=env).ok()
    assert r.out.split() == [venv, f"{venv}/bin/python"]
    assert not os.path.exists(os.path.join(petri.project, "written-by-test"))


def test_virtual_env_elsewhere_is_not_passed(petri):
    r = petri.sh("echo v=$VIRTUAL_ENV", env={"VIRTUAL_ENV": "/nowhere/at/all"}).ok()
    assert r.out == "v=\n"


@pytest.mark.skipif(not shutil.which("cmake"), reason="no cmake")
def test_cmake_build_of_an_existing_directory(petri):
    petri.file("CMakeLists.txt", "cmake_minimum_required(VERSION 3.10)\nproject(t C)\nadd_executable(t t.c)\n")
    petri.file("t.c", "#include <stdio.h>\nint main(void) { puts(\"built\"); }\n")
    clean = {"PATH": "/usr/bin:/bin", "HOME": petri.home}
    subprocess.run(["cmake", "-S", ".", "-B", "build"], cwd=petri.project, env=clean, check=True,
                   stdout=subprocess.DEVNULL)
    r = petri.sh("cmake --build build >/tmp/log 2>&1 && ./build/t || cat /tmp/log").ok()
    assert r.out == "built\n", r
    assert "t" not in os.listdir(os.path.join(petri.project, "build"))


@pytest.mark.skipif(not find_spec("pip") or not find_spec("setuptools"), reason="no pip or setuptools here")
def test_pip_install_editable(petri):
    """Without network, with the system's setuptools."""
    petri.file("setup.py", "from setuptools import setup\nsetup(name='mine', version='1', py_modules=['mine'])\n")
    petri.file("mine.py", "print('imported')\n")
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--system-site-packages", "--without-pip",
                    os.path.join(petri.project, ".venv")], check=True)
    py = os.path.join(petri.project, ".venv/bin/python")
    r = petri.sh(f"{py} -m pip install --no-build-isolation --no-index -q -e . 2>&1 && cd / && {py} -c 'import mine'",
                 timeout=120).ok()
    assert r.out.endswith("imported\n"), r
    assert not os.path.exists(os.path.join(petri.project, "mine.egg-info"))


def test_rename_of_a_directory(petri):
    """Renaming a directory of the lower gives EXDEV to the program: mv, git and python cope."""
    petri.file("dir/a", "a")
    petri.sh("mv dir moved && cat moved/a && test ! -e dir").ok()
    petri.run("--", "python3", "-c", "import shutil; shutil.move('dir', 'm2'); open('m2/a').read()").ok()


# --- volumes ---------------------------------------------------------------------------------

def test_volume(petri):
    src = petri.path("vol")
    write(src + "/f", "from the host\n")
    r = petri.sh("cat /data/f; echo new >/data/g; stat -c %u /data/g; id -u", "-v", f"{src}:/data").ok()
    lines = r.out.split("\n")
    assert lines[0] == "from the host" and lines[1] == lines[2]
    assert read(src + "/g") == b"new\n"
    assert os.stat(src + "/g").st_uid == os.stat(src).st_uid


def test_volume_read_only(petri):
    src = petri.path("vol")
    write(src + "/f", "x")
    r = petri.sh("cat /data/f; echo new >/data/g", "-v", f"{src}:/data:ro")
    assert r.rc != 0 and r.out == "x" and os.listdir(src) == ["f"]


def test_volume_file(petri):
    src = write(petri.path("single"), "one file")
    assert petri.run("-v", f"{src}:/data/single:ro", "--", "cat", "/data/single").ok().out == "one file"
    # over a file of the sandbox's
    assert petri.run("-v", f"{src}:/etc/hosts:ro", "--", "cat", "/etc/hosts").ok().out == "one file"


def test_volume_new_name_in_etc(petri):
    src = write(petri.path("single"), "one file")
    r = petri.run("-v", f"{src}:/etc/single:ro", "--", "cat", "/etc/single")
    assert r.ok().out == "one file", r


def test_volume_relative(petri):
    write(petri.path("home", "proj", "v", "f"), "x")
    assert petri.run("-v", "./v:/data", "--", "cat", "/data/f").ok().out == "x"


def test_volume_in_the_project(petri):
    src = petri.path("vol")
    write(src + "/f", "x")
    assert petri.run("-v", f"{src}:/workspace/vol", "--", "cat", f"{petri.project}/vol/f").ok().out == "x"
    assert not os.path.exists(os.path.join(petri.project, "vol"))


def test_volume_gives_no_setuid(petri):
    src = petri.path("vol")
    os.makedirs(src)
    r = petri.sh("grep ' /data ' /proc/self/mountinfo", "-v", f"{src}:/data").ok()
    assert "nosuid" in r.out and "nodev" in r.out


@pytest.mark.parametrize("src", ["/run", "/proc", "/sys", "/dev", "/dev/null", "/proc/self", "/run/lock",
                                 "/sys/fs/cgroup", "/", "STORE", "STORE/images", "SSH", "AWS", "HOME",
                                 "SOCKET", "SOCKETDIR", "SOCKETPARENT", "LINK", "MISSING", "/var/run", "/etc",
                                 "/etc/shadow"])
def test_volume_forbidden(petri, src):
    sockdir = petri.path("sd", "inner")
    os.makedirs(sockdir)
    s = socket.socket(socket.AF_UNIX)
    s.bind(sockdir + "/s")
    s.listen(1)
    os.makedirs(petri.store + "/images", mode=0o700, exist_ok=True)
    os.chmod(petri.store, 0o700)
    os.symlink("/run", petri.path("link"))
    real = {"STORE": petri.store, "STORE/images": petri.store + "/images", "SSH": petri.home + "/.ssh",
            "AWS": petri.home + "/.aws", "HOME": petri.home, "SOCKET": sockdir + "/s",
            "SOCKETDIR": sockdir, "SOCKETPARENT": petri.path("sd"), "LINK": petri.path("link"),
            "MISSING": petri.path("missing")}.get(src, src)
    before = listing(petri.store)
    r = petri.run("-v", f"{real}:/data", "--", "ls", "-R", "/data")
    s.close()
    if src == "HOME":  # allowed only if the credentials in it are hidden
        if r.rc == 0:
            r = petri.run("-v", f"{real}:/data", "--", "cat", "/data/.ssh/id_rsa", "/data/.aws/credentials")
            assert CANARY not in r.out, r
            return
    r.ok(125)
    assert r.out == "" and real in r.talk and len(r.talk.splitlines()) == 1, r
    assert listing(petri.store) == before


@pytest.mark.parametrize("dst", ["", "relative", "/", "/proc", "/proc/x", "/sys/x", "/dev/x", "/a/../..", "/workspace"])
def test_volume_bad_target(petri, dst):
    src = petri.path("vol")
    os.makedirs(src)
    r = petri.run("-v", f"{src}:{dst}", "--", "true").ok(125)
    assert len(r.talk.splitlines()) == 1, r


@pytest.mark.parametrize("spec", ["", ":", "/x", "::", "/tmp:/data:rx", "/tmp:/data:ro:ro", ":/data"])
def test_volume_bad_syntax(petri, spec):
    r = petri.run("-v", spec, "--", "true").ok(125)
    assert len(r.talk.splitlines()) == 1, r


# --- keep ------------------------------------------------------------------------------------

def test_keep(petri):
    """With --keep the sandbox stays, stopped; nothing runs; without it nothing stays."""
    petri.own_store(kept=True)
    r = petri.sh("echo kept >new; echo $SANDBOX_ID", "--keep").ok()
    ident = r.out.strip()
    kept = os.path.join(petri.store, "sandboxes", ident)
    assert os.path.isdir(kept), (r, listing(petri.store)[:50])
    assert os.path.exists(os.path.join(kept, "state.json"))
    petri.run("--", "true").ok()  # the sweep leaves it alone
    assert os.path.isdir(kept)
    assert not os.path.exists(os.path.join(petri.project, "new"))
    assert os.listdir(os.path.join(petri.store, "sandboxes")) == [ident]


def test_keep_with_a_name_taken(petri):
    petri.own_store(kept=True)
    petri.run("--keep", "--name", "box", "--", "true").ok()
    r = petri.run("--keep", "--name", "box", "--", "echo", "ran").ok(125)
    assert "box" in r.talk and r.out == ""


def test_what_is_hidden_keeps_its_name_in_bind(petri):
    """In the live directory a name that is moved would be seen at the next start."""
    petri.file("sec/k/key", CANARY)
    flags = ("--workspace-mode", "bind", "--hide", "sec/k")
    r = petri.sh("mv sec sec2; mv sec/k sec/j; cat sec*/*/* 2>/dev/null; mkdir new && mv new new2 && ls", *flags).ok()
    assert "new2" in r.out and "sec2" not in r.out and CANARY not in r.out, r
    assert CANARY not in petri.sh("cat sec*/*/* 2>/dev/null; true", *flags).ok().out
