"""petri diff: what a sandbox changed, as a person and as git apply see it."""
import hashlib
import json
import os
import pty
import random
import re
import resource
import shutil
import signal
import subprocess

import pytest

import helpers
from layers import Made
from promotion import Box

GIT = ["git", "-c", "user.email=t@example.com", "-c", "user.name=t", "-c", "commit.gpgsign=false"]
# What a program that must not run would leave.
TRAP = "touch \"$HOME/trapped\""


def git(where, *args, **kw):
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(GIT + ["-C", where, *args], check=kw.pop("check", True), env=env,
                          capture_output=True, **kw)


@pytest.fixture
def world(petri):
    """A world with a store of its own, and a project in git."""
    petri.own_store(kept=True)
    os.makedirs(petri.store, mode=0o700)
    os.unlink(os.path.join(petri.project, "petri.json"))
    os.unlink(os.path.join(petri.project, "README"))
    git(petri.project, "init", "-q", "-b", "main")
    return petri


def commit(world, **files):
    for name, text in files.items():
        world.file(name, text)
    git(world.project, "add", "-A")
    git(world.project, "commit", "-q", "--allow-empty", "-m", "all")


def diff(world, *args, rc=0, **kw):
    return world.run(*args, sub="diff", **kw).ok(rc)


def changes(world, *args):
    return {c["path"]: c for c in diff(world, "--json", *args).json["changes"]}


def kinds(world, *args):
    return {path: c["kind"] for path, c in changes(world, *args).items()}


def flags(world, *args):
    return {path: [f["code"] for f in c["flags"]] for path, c in changes(world, *args).items() if c["flags"]}


# --- what is a change ---------------------------------------------------------------------------------

def test_kinds(world):
    text = "".join(f"line {i}\n" for i in range(100))
    commit(world, **{"a.txt": text, "d/one": "1\n", "d/sub/two": "2\n", "moved": text.upper(), "touched": "t\n",
                     "run.sh": "echo\n", "file": "f\n", "exact": "the same\n" * 3, "gone": "g\n"})
    os.symlink("a.txt", os.path.join(world.project, "link"))
    os.makedirs(os.path.join(world.project, "was-empty"))
    m = Made(world)
    m.run("""sed -i 's/line 50/LINE/' a.txt; rm -r d; mkdir d; echo 3 >d/three; mv moved 'has moved'
             echo more >>'has moved'; touch touched; cp touched x; cat x >touched; rm x; chmod +x run.sh; rm file
             ln -s run.sh file; mkdir -p dir; mv exact dir/other; rm gone; ln -sfn run.sh link; rmdir was-empty
             mkdir -p empty/inner; : >nothing; chmod 600 d/three; chmod 700 .""")
    found = changes(world)
    assert {p: c["kind"] for p, c in found.items()} == {
        "a.txt": "modified", "d/one": "deleted", "d/sub/two": "deleted", "d/three": "added",
        "has moved": "renamed", "run.sh": "mode", "file": "type", "dir/other": "renamed", "gone": "deleted",
        "link": "modified", "was-empty": "deleted", "empty/inner": "added", "nothing": "added"}
    assert found["has moved"]["old_path"] == "moved" and found["dir/other"]["old_path"] == "exact"
    assert found["was-empty"]["empty_directory"] and found["empty/inner"]["empty_directory"]
    assert (found["a.txt"]["lines_added"], found["a.txt"]["lines_deleted"]) == (1, 1)
    assert found["a.txt"]["old"]["sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert found["run.sh"]["old"]["mode"][-3:] != found["run.sh"]["new"]["mode"][-3:]
    assert found["file"]["new"]["mode"].startswith("12")
    names = diff(world, "--name-status").out.splitlines()
    assert "M\ta.txt" in names and "R\tmoved\thas moved" in names and "T\tfile" in names
    assert "A\tempty/inner/" in names and "M\trun.sh" in names
    stat = diff(world, "--stat").out
    assert "moved => has moved" in stat and "mode +x" in stat and "13 files" in stat


def test_nothing_changed(world):
    commit(world, a="1\n")
    Made(world).run("touch a; cat a >b; rm b; git status >/dev/null")
    assert kinds(world) == {}
    diff(world, "--exit-code")
    assert "0 files" in diff(world).out


def test_exit_code(world):
    commit(world, a="1\n")
    Made(world).run("echo 2 >a")
    diff(world, "--exit-code", rc=1)
    diff(world, "--stat", "--exit-code", rc=1)
    diff(world)


def test_types_swap(world):
    """Files become directories and back; empty ones too."""
    commit(world, **{"to-dir": "1\n", "to-file/a": "a\n", "to-file/b/c": "c\n", "to-empty": "1\n"})
    os.makedirs(os.path.join(world.project, "from-empty"))
    m = Made(world)
    m.run("""rm to-dir; mkdir to-dir; echo x >to-dir/x; rm -r to-file; echo 5 >to-file; rm to-empty; mkdir to-empty
             rmdir from-empty; echo 6 >from-empty""")
    assert kinds(world) == {"to-dir": "deleted", "to-dir/x": "added", "to-file": "added", "to-file/a": "deleted",
                            "to-file/b/c": "deleted", "to-empty": "type", "from-empty": "type"}


def expected(old, new):
    """Kinds by path from two listings; a rename is a deletion and an addition."""
    found = {}
    for path in old.keys() | new.keys():
        a, b = old.get(path), new.get(path)
        if a != b:
            found[path] = "deleted" if b is None else "added" if a is None else "both"
    return found


LIST = r"""
import hashlib, json, os, sys
top, out = sys.argv[1:]
seen = {}
for d, dirs, files in os.walk(top):
    dirs[:] = [x for x in dirs if x != ".git"]
    for n in files + [x for x in dirs if os.path.islink(os.path.join(d, x))]:
        p = os.path.join(d, n)
        link = os.path.islink(p)
        body = os.readlink(p).encode() if link else open(p, "rb").read()
        seen[os.path.relpath(p, top)] = [link, bool(os.lstat(p).st_mode & 0o100) and not link,
                                         hashlib.sha256(body).hexdigest()]
json.dump(seen, open(out, "w"))
"""


@pytest.mark.parametrize("seed", range(4))
def test_like_the_kernel(world, seed):
    """Whatever is done in a stack of layers: diff finds what differs between the trees, no more, no less."""
    rnd = random.Random(seed)
    names = ["a", "b", "c", "d"]
    for _ in range(40):
        path = "/".join(rnd.choice(names) for _ in range(rnd.randint(1, 4)))
        try:
            world.file(path, rnd.choice("xyz") * rnd.randint(1, 9))
        except OSError:
            pass
    commit(world)
    m = Made(world, mode="copy" if seed == 3 else "overlay")
    script = world.path("list.py")
    helpers.write(script, LIST)

    def some():
        return "/".join(rnd.choice(names) for _ in range(rnd.randint(1, 4)))

    def listing(where):
        out = world.path("listing")
        subprocess.run(["/usr/bin/python3", script, where, out], check=True)
        return json.loads(helpers.read(out))

    states = {}
    for step in range(4):
        ops = []
        for _ in range(12):
            p, q = some(), some()
            ops.append(rnd.choice([
                f"rm -rf {p}", f"mkdir -p {p}", f"echo {rnd.random()} >{p}", f"mv {p} {q}", f"cp -r {p} {q}",
                f"ln -sf {q} {p}", f"chmod +x {p}", f"rm -rf {p}; mkdir -p {p}; echo n >{p}/a", f"touch {p}"]))
        out = world.path(f"state{step}")
        m.run("{ set +e; " + "; ".join(ops) + f"; }} 2>/dev/null; /usr/bin/python3 {script} . {out}")
        states[step] = json.loads(helpers.read(out))
        if step < 3:
            m.snapshot()

    def seen(*args):
        found = {}
        for path, c in changes(world, *args).items():
            if c["empty_directory"] and c["kind"] != "type":
                continue
            if c["kind"] == "renamed":
                found[c["old_path"]], found[path] = "deleted", "added"
            elif c["kind"] == "type" and c["empty_directory"]:
                found[path] = "deleted" if c["new"]["mode"].startswith("04") else "added"
            else:
                found[path] = c["kind"] if c["kind"] in ("added", "deleted") else "both"
        return found

    host = listing(world.project)
    assert seen() == expected(host, states[3])
    assert seen("--from", "s1") == expected(states[0], states[3])
    assert seen("@s1", "@s3") == expected(states[0], states[2])
    assert seen("@s3", "@s2") == expected(states[2], states[1])
    assert seen("@s2") == expected(host, states[1])


def test_two_sandboxes(world):
    commit(world, a="1\n", b="1\n")
    first = Made(world, "first")
    first.run("echo 2 >a; echo new >c")
    second = first.fork("second")
    second.run("echo 3 >a; rm b")
    first.run("echo later >d")
    assert kinds(world, "first", "second") == {"a": "modified", "b": "deleted", "d": "deleted"}
    assert kinds(world, "second", "first") == {"a": "modified", "b": "added", "d": "added"}
    assert kinds(world, "second") == {"a": "modified", "b": "deleted", "c": "added"}
    assert kinds(world, "second", "--from", "first") == kinds(world, "first", "second")
    assert kinds(world, "first", "second", "--", "a") == {"a": "modified"}


def test_copy_mode(world):
    """The host's own edits after the copy was made show as what promoting would undo, and only where the
    sandbox wrote."""
    commit(world, a="1\n", b="1\n", c="1\n")
    m = Made(world, mode="copy", hide=["secret"])
    m.run("echo 2 >a; rm b; mkdir sub; echo x >sub/x")
    world.file("c", "host\n")
    world.file("new", "host\n")
    assert kinds(world) == {"a": "modified", "b": "deleted", "sub/x": "added"}


def test_paths(world):
    commit(world, **{"src/a": "1\n", "src/b": "1\n", "doc/a": "1\n"})
    Made(world).run("for f in src/a src/b doc/a; do echo 2 >$f; done")
    assert set(kinds(world, "--", "src")) == {"src/a", "src/b"}
    assert set(kinds(world, "--", "src/b", "doc")) == {"src/b", "doc/a"}
    r = world.run("--json", "--", "b", "../doc", sub="diff", cwd=os.path.join(world.project, "src")).ok()
    assert [c["path"] for c in r.json["changes"]] == ["doc/a", "src/b"]
    assert "not in the project" in diff(world, "--", "../..", rc=1).talk


# --- hidden, ignored, .git --------------------------------------------------------------------------

def test_hidden(world):
    """What is hidden is not there: no deletion when it is gone inside, a flag when something is made there."""
    commit(world, **{".env": "SECRET=1\n", "keys/a": "k\n", "b": "1\n"})
    m = Made(world, hide=[".env", "keys"])
    m.run("test ! -e .env; test ! -e keys; echo 2 >b")
    assert kinds(world) == {"b": "modified"}
    m.run("echo mine >.env; mkdir keys; echo mine >keys/b")
    found = changes(world)
    assert {p: c["kind"] for p, c in found.items()} == {"b": "modified", ".env": "added", "keys/b": "added"}
    assert found[".env"]["hidden"] and "hidden" in flags(world)["keys/b"]
    assert "SECRET" not in diff(world).out


def test_ignored(world):
    commit(world, **{".gitignore": "node_modules/\n*.o\n/build\n!keep.o\n", "build/tracked": "1\n", "keep.o": "1\n"})
    git(world.project, "add", "-f", "build/tracked")
    git(world.project, "commit", "-q", "-m", "tracked though ignored")
    with open(os.path.join(world.project, ".git/info/exclude"), "a") as f:
        f.write("*.log\n")
    m = Made(world)
    m.run("""mkdir -p node_modules/a/b src; for i in $(seq 1204); do echo $i >node_modules/a/b/$i; done
             echo 1 >x.o; echo 1 >y.log; echo 2 >build/tracked; echo 2 >build/other; echo 2 >keep.o
             echo '*' >src/.gitignore; echo 1 >src/code; mkdir -p n; printf '!*.o\\n' >n/.gitignore; echo 1 >n/z.o""")
    r = diff(world)
    assert "node_modules: 1 204 ignored files" in r.out
    assert kinds(world) == {"build/tracked": "modified", "keep.o": "modified", "src/.gitignore": "added",
                            "src/code": "added", "n/.gitignore": "added"}
    assert {i["path"]: i["files"] for i in diff(world, "--json").json["ignored"]} == {
        "": 2, "build": 1, "n": 1, "node_modules": 1204}
    assert set(kinds(world, "--", "x.o", "build")) == {"x.o", "build/tracked", "build/other"}
    assert set(kinds(world, "--", "n")) == {"n/.gitignore"}
    assert len(kinds(world, "--", "node_modules/a")) == 1204


def test_no_repository(world):
    subprocess.run(["rm", "-rf", os.path.join(world.project, ".git")], check=True)
    world.file("a", "1\n")
    world.file(".gitignore", "*.o\n")
    Made(world).run("echo 2 >a; echo 1 >x.o; git init -q .")
    assert kinds(world) == {"a": "modified", "x.o": "added"}
    assert "\n+2\n" in diff(world, "--patch").out


def test_repository_is_not_files(world):
    commit(world, a="1\n")
    m = Made(world)
    m.run("git gc -q; mkdir -p sub; git init -q sub; echo 1 >sub/x")
    assert kinds(world) == {"sub/x": "added"}
    r = diff(world, "--json").json
    assert r["refs"] == [] and "sub/.git" in r["repositories"]
    assert "sub/.git: a repository of its own" in diff(world).out
    m.run("echo 2 >a; git -c user.email=a@example.com -c user.name=a commit -qam 2; git branch other")
    assert diff(world, "--json").json["refs"] == ["main", "other"]
    assert "commits that the project does not have: main, other" in diff(world).out
    m.run("git pack-refs --all; git gc -q; git checkout -q --detach")
    assert set(diff(world, "--json").json["refs"]) == {"HEAD", "main", "other"}


def test_nothing_of_the_repository_runs(world):
    commit(world, **{"a.txt": "1\n", ".gitattributes": "*.txt filter=trap diff=trap\n"})

    def traps(where):
        for key in ("core.pager", "core.fsmonitor", "filter.trap.clean", "filter.trap.smudge", "diff.trap.textconv",
                    "diff.trap.command", "diff.external", "core.editor", "pager.diff", "filter.trap.process"):
            git(where, "config", key, TRAP)

    traps(world.project)
    m = Made(world)
    m.run(f"echo 2 >a.txt; git config core.hooksPath /; git config core.pager '{TRAP}'")
    for args in ([], ["--stat"], ["--json"], ["--patch"], ["--name-status"]):
        diff(world, *args)
    on_terminal(world, "diff", env={"PAGER": "cat"})
    assert not os.path.exists(os.path.join(world.home, "trapped"))


# --- the patch --------------------------------------------------------------------------------------

def test_git_apply(world):
    """The whole output, summary included, makes the project what the sandbox is."""
    long = "".join(f"line {i}\n" for i in range(300))
    commit(world, **{"a.txt": long, "no newline": "x\ny", "crlf": "a\r\nb\r\n", "dir/old": "old text\n" * 9,
                     "mode.sh": "x\n", "to-link": "x\n", "d/f": "1\n", "\"q\\uo\te": "1\n", "ümlaut": "1\n",
                     "both.sh": "1\n2\n3\n4\n", "latin": b"caf\xe9\n",
                     "bin": b"\0" * 5000, "bin gone": b"\0\1", "bin.sh": b"\0\2", "bin old": bytes(range(256)) * 40})
    os.symlink("a.txt", os.path.join(world.project, "ln"))
    os.symlink("a.txt", os.path.join(world.project, "ln2"))
    commit(world)
    m = Made(world)
    m.run(r"""sed -i 's/line 5/LINE 5/; 290d' a.txt; printf 'x\nz' >'no newline'; printf 'a\r\nc\r\n' >crlf
        mkdir new; mv dir/old new/moved; echo 1 >>new/moved; chmod +x mode.sh; rm to-link; ln -s dir to-link
        rm -r d; echo file >d; mv "\"q\\uo"*e other; echo 2 >ümlaut; echo 1 >$'nl\nname'; echo 1 >'sp ace'; : >zero
        rm ln; ln -s b ln; rm ln2; echo file >ln2; chmod +x both.sh; echo 5 >>both.sh; printf 'caf\xe8' >latin
        echo 1 >' lead'; echo 1 >'trail '; printf '\n\n\n' >blank
        head -c 300000 /dev/urandom >bin; rm 'bin gone'; chmod +x bin.sh; printf '\0\3' >>bin.sh; printf '\0\4' >'bin new'
        mv 'bin old' 'bin moved'; echo '-- minus' >minus; echo '@@ -1 +1 @@' >at
        printf 'diff --git a/x b/x\n--- a/x\n+++ b/x\n' >fake""")
    want = world.path("want.json")
    script = helpers.write(world.path("list.py"), LIST)
    m.run(f"/usr/bin/python3 {script} . {want}")
    for args in ([], ["--patch"]):
        patch = diff(world, *args).outb
        copy = world.path("copy" + "".join(args))
        git(world.base, "clone", "-q", world.project, copy)
        r = git(copy, "apply", "--whitespace=nowarn", "-", input=patch, check=False)
        assert r.returncode == 0, (r.stderr, patch)
        have = world.path("have.json")
        subprocess.run(["/usr/bin/python3", script, copy, have], check=True)
        assert json.loads(helpers.read(have)) == json.loads(helpers.read(want))


def test_patch_in_json(world):
    commit(world, a="1\n", b=b"caf\xe9\n")
    Made(world).run("echo 2 >a; echo >>b")
    found = changes(world, "--patch")
    assert found["a"]["patch"].startswith("diff --git a/a b/a\n") and "+2\n" in found["a"]["patch"]
    assert "patch" not in found["b"] and found["b"]["patch_base64"]
    assert "patch" not in changes(world)["a"]


def test_binary(world):
    commit(world, bin=b"\0\1\2")
    Made(world).run(r"printf 'a\0b' >bin; printf '\0' >new")
    shown, _ = on_terminal(world, "diff", env={"PETRI_PAGER": "cat"})
    assert b"Binary files a/bin and b/bin differ" in shown and b"Binary files /dev/null and b/new differ" in shown
    out = diff(world).out
    assert out.count("GIT binary patch") == 2 and "[binary]" in out
    assert "GIT binary patch" in changes(world, "--patch")["bin"]["patch"]
    assert "Bin 3 -> 3 bytes" in diff(world, "--stat").out
    assert flags(world) == {"bin": ["binary"], "new": ["binary"]}


def test_odd_names(world):
    """Names that would play with the terminal are escaped; bytes that are no UTF-8 survive in base64."""
    commit(world, a="1\n")
    Made(world).run(r"""echo 1 >$'esc\x1b[31m'; echo 1 >$'bidi\u202egpj.exe'; echo 1 >$'bad\xff'; echo 1 >$'two\nlines'""")
    for args in ([], ["--stat"], ["--name-status"]):
        out = diff(world, *args).outb
        assert b"\x1b" not in out and "\u202e".encode() not in out and b"\xff" not in out
    assert all(f == ["odd-name"] for f in flags(world).values()) and len(flags(world)) == 4
    b64 = [c["path_base64"] for c in diff(world, "--json").json["changes"] if "path_base64" in c]
    assert b64 == ["YmFk/w=="]


def limited(world, *args):
    """diff in little memory: (seconds, stdout)"""
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20))
    r = world.run(*args, sub="diff", preexec_fn=limit).ok()
    return r


def test_large(world):
    commit(world, **{"line": "x" * 500000, "big": "1\n"})
    m = Made(world)
    m.run("""head -c 104857600 /dev/zero | tr '\\0' 'a' >big; head -c 104857600 /dev/zero >zeros; truncate -s 300M sparse
             printf y >>line""")
    r = limited(world)
    assert "Binary files a/big and b/big differ" in r.out
    assert flags(world)["big"] == ["large"] and "large" in flags(world)["zeros"]
    text = limited(world, "--patch", "--", "line").out
    assert len(text) > 1000000
    shown, status = on_terminal(world, "diff", "--", "line", env={"PETRI_PAGER": "cat"})
    assert status == 0 and len(shown) < 20000 and b"more bytes" in shown


def test_many_files(world):
    commit(world, a="1\n")
    Made(world).run("mkdir many; cd many; for i in $(seq 5000); do echo $i >f$i; done")
    assert limited(world, "--stat").out.count("\n") > 5000


# --- the terminal -----------------------------------------------------------------------------------

def on_terminal(world, *args, env=None, cwd=None):
    """Runs petri on a pty: (what the terminal got, status)."""
    pid, fd = pty.fork()
    if pid == 0:
        # not petri itself: what nobody has read yet is lost when the leader of a terminal's session ends
        full = {k: v for k, v in {**world.env, **(env or {})}.items() if v is not None}
        status = subprocess.call([helpers.BIN, *args], cwd=cwd or world.project, env=full)
        os.write(1, b"\0END %d\n" % status)
        signal.pause()
    got = b""
    while not re.search(rb"\0END -?\d+\r\n$", got):
        got += os.read(fd, 65536)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(fd)
    shown, _, status = got.rpartition(b"\0END ")
    return shown, int(status)


def test_pager(world):
    commit(world, a="1\n")
    Made(world).run("echo 2 >a")
    git(world.project, "config", "core.pager", "sed s/^/REPO:/")
    shown, status = on_terminal(world, "diff", env={"PETRI_PAGER": "sed s/^/MINE:/", "GIT_PAGER": "false"})
    assert status == 0 and b"MINE:" in shown and b"REPO:" not in shown
    shown, _ = on_terminal(world, "diff", env={"GIT_PAGER": "sed s/^/GITS:/", "PAGER": "false"})
    assert b"GITS:" in shown
    shown, _ = on_terminal(world, "diff", env={"PAGER": "sed s/^/PAGER:/"})
    assert b"PAGER:" in shown
    helpers.write(os.path.join(world.home, ".gitconfig"), "[core]\npager = sed s/^/CONF:/\n")
    shown, _ = on_terminal(world, "diff")
    assert b"CONF:" in shown and b"REPO:" not in shown
    os.unlink(os.path.join(world.home, ".gitconfig"))
    assert b"+2" in on_terminal(world, "diff", env={"PATH": "/nonexistent"})[0]
    # a pager that has had enough is no failure
    assert on_terminal(world, "diff", env={"PETRI_PAGER": "true"})[1] == 0
    assert on_terminal(world, "diff", "--exit-code", env={"PETRI_PAGER": "true"})[1] == 1
    assert b"MINE" not in diff(world, env={"PETRI_PAGER": "sed s/^/MINE:/"}).outb


def test_colour_and_escapes(world):
    commit(world, a="1\n")
    Made(world).run(r"printf 'tab\there \x1b[31mred\x1b]0;title\x07 \xe2\x80\xae\n' >a")
    shown, _ = on_terminal(world, "diff", env={"PETRI_PAGER": "cat"})
    assert b"\x1b[32m+tab\there \\x1b[31mred\\x1b]0;title\\x07 \\u202e" in shown
    shown, _ = on_terminal(world, "diff", env={"PETRI_PAGER": "cat", "NO_COLOR": "1"})
    assert b"\x1b" not in shown
    assert b"\x1b[31mred" in diff(world, "--patch").outb
    assert flags(world) == {"a": ["invisible"]}


# --- flags --------------------------------------------------------------------------------------------

def test_flags_first(world):
    commit(world, a="1\n")
    Made(world).run("mkdir .vscode; echo {} >.vscode/tasks.json; echo 2 >a; echo x >run.sh; chmod +x run.sh")
    lines = diff(world).out.splitlines()
    assert lines[0].startswith("# refuse  .vscode/tasks.json: ") and lines[0].endswith("[editor]")
    assert lines[1].startswith("# read    run.sh: ")
    assert "3 files +3 -1, 2 flags, change " in lines[2]


def test_flags_by_content(world):
    commit(world, **{"big.txt": "x\n" * 200, "half.txt": "x\n" * 40, "whole.txt": "x\n" * 40,
                     "few.txt": "x\n" * 9, "test_a.py": "def test_a():\n    pass\n",
                     "package.json": "{}\n", "package-lock.json": "{}\n", "go.mod": "m\n", "go.sum": "s\n"})
    Made(world).run(r"""head -100 big.txt >x; mv x big.txt; head -20 half.txt >x; mv x half.txt; rm test_a.py whole.txt few.txt
        echo 2 >package-lock.json; echo 2 >go.mod; echo 2 >go.sum; ln -s ../../up up; ln -s sub/../../x mixed; ln -s a ok
        mkdir d; ln -s ../a d/ok; ln -s .git/config g; ln -s d .github; printf '#!/bin/sh\n' >script; mkfifo pipe
        printf 'a\xe2\x80\x8bb\n' >zero-width; echo '-----BEGIN OPENSSH PRIVATE KEY-----' >k
        mkdir bare; git init -q --bare bare; echo 'é — ok 👩‍👩‍👧' >fine; chmod u+s fine""")
    found = flags(world)
    assert found["big.txt"] == ["many-deletions"] and found["half.txt"] == ["many-deletions"]
    assert found["whole.txt"] == ["many-deletions"] and "few.txt" not in found
    assert found["test_a.py"] == ["test-removed"] and found["package-lock.json"] == ["lockfile"]
    assert "lockfile" not in found.get("go.sum", []) and found["go.mod"] == ["dependency"]
    assert found["up"] == ["symlink-out"] and found["mixed"] == ["symlink-out"] and "ok" not in found
    assert "d/ok" not in found and found["g"] == ["git-dir"] and found[".github"] == ["ci"]
    assert found["script"] == ["shebang"] and found["pipe"] == ["special-file"]
    assert found["zero-width"] == ["invisible"] and found["k"] == ["secret"]
    assert "bare-repository" in found["bare/HEAD"] and "bare-repository" in found["bare/config"]
    assert found["fine"] == ["setuid"]


def test_names_of_git(world):
    commit(world, a="1\n")
    Made(world).run(r"""for n in .GIT .Git GIT~1 $'.g\u200cit' '.git ' '.git.' '.git::$INDEX' $'.g\u0131t'; do
        mkdir -p "$n/hooks"; echo x >"$n/hooks/post-checkout"; done; mkdir x; echo 1 >x/.gitmodules; echo 1 >x/GITMOD~1""")
    found = flags(world)
    assert len([p for p, f in found.items() if "git-dir" in f and p.endswith("/post-checkout")]) == 8, found
    assert found["x/.gitmodules"] == ["git-modules"] and "git-modules" in found["x/GITMOD~1"]


def test_risks_table(world):
    rules = diff(world, "--risks", "--json").json
    assert {r["class"] for r in rules} == {"refuse", "read", "note"}
    assert len(diff(world, "--risks").out.splitlines()) == len(rules)


# --- the change's id, numbers for status -----------------------------------------------------------------

def change_id(world):
    return diff(world, "--json").json["change"]


def test_id(world):
    commit(world, a="1\n", b="1\n")
    m = Made(world)
    m.run("echo 2 >a")
    first = change_id(world)
    assert f"change {first[:12]}" in diff(world).out and len(first) == 64
    m.run("touch a; cp a x; mv x a")
    assert change_id(world) == first
    m.snapshot()
    assert change_id(world) == first
    m.run("chmod +x a")
    second = change_id(world)
    assert second != first
    m.run("chmod -x a; mv b c")
    third = change_id(world)
    assert third not in (first, second)
    m.run("mv c b")
    assert change_id(world) == first
    world.file("a", "host\n")
    assert change_id(world) != first


def count(world, *args):
    helper = os.path.join(os.path.dirname(helpers.BIN), "petri-change")
    if not os.path.exists(helper):
        helper = os.path.join(os.path.dirname(helpers.BIN), "..", "libexec", "petri", "petri-change")
    out = subprocess.run([helper, "count", world.store, *args, "--json"], cwd=world.project, env=world.env,
                         check=True, capture_output=True).stdout
    return json.loads(out)


def test_count(world):
    commit(world, **{"a": "1\n", "b": "1\n", "c": "1\n", ".gitignore": "*.o\n"})
    m = Made(world)
    m.run("echo 2 >a; rm b; echo 1 >new; echo 1 >x.o; mkdir .claude; echo 1 >.claude/x")
    n = count(world, "made")
    assert (n["added"], n["modified"], n["deleted"], n["ignored"], n["host_changed"]) == (2, 1, 1, 1, 0)
    assert n["flags"] == ["agent"] and n["change"] == change_id(world)
    world.file("c", "host\n")
    world.file("d", "host\n")
    world.file("e.o", "ignored\n")
    assert count(world)["host_changed"] == 2
    m.run("ln -s c l")
    world.run("-y", "a", "b", "new", "l", sub="promote").ok()
    assert count(world)["host_changed"] == 2, "what petri brought is nobody's change"
    world.file("new", "host\n")
    assert count(world)["host_changed"] == 3


def test_count_of_what_went(world):
    commit(world, **{n: "1\n" for n in ("a", "s/f1", "s/f2", "s/t/x", "s/t/y", "u/v/z", "secret/k", "keep", "ours")})
    m = Box(world, hide=["secret"])
    m.run("rm ours; echo 2 >keep")
    world.run("-y", sub="promote").ok()
    assert count(world)["host_changed"] == 0
    os.unlink(os.path.join(world.project, "s/f1"))
    assert count(world)["host_changed"] == 1
    for gone in ("s/t", "u", "secret"):
        shutil.rmtree(os.path.join(world.project, gone))
    assert count(world)["host_changed"] == 4
    world.file("a", "host\n")
    os.rename(os.path.join(world.project, "s/f2"), os.path.join(world.project, "s/f3"))
    assert count(world)["host_changed"] == 7


# --- the rest of the sandbox -----------------------------------------------------------------------------

def test_rootfs(world):
    commit(world, a="1\n")
    m = Made(world)
    r = os.path.join(m.layer(m.top), "r")
    helpers.write(os.path.join(r, "tmp/made"), "1\n")
    helpers.write(os.path.join(r, "etc/passwd"), "1\n")
    os.makedirs(os.path.join(r, "proc"))
    os.mknod(os.path.join(r, "etc/hostname"), 0o020000, 0)
    assert diff(world, "--rootfs").out == "D\t/etc/hostname\nM\t/etc/passwd\nA\t/tmp/made\n"
    assert diff(world, "--rootfs", "--name-status").out == diff(world, "--rootfs").out
    stat = diff(world, "--rootfs", "--stat").out.splitlines()
    assert len(stat) == 4 and stat[0].split() == ["D", "-", "/etc/hostname"] and stat[3].startswith("3 paths")
    m.snapshot()
    helpers.write(os.path.join(m.layer(m.top), "r", "tmp/later"), "1\n")
    found = diff(world, "--rootfs", "--json", "--from", "s1").json["rootfs"]
    assert [(c["path"], c["kind"]) for c in found] == [("/tmp/later", "added")]
    diff(world, "--rootfs", "--exit-code", rc=1)


@pytest.mark.user
def test_modes_of_the_sandbox(world):
    """What the sandbox's user made unreadable for itself is read all the same."""
    commit(world, a="1\n")
    Made(world).run("mkdir closed; echo 1 >closed/x; chmod 0 closed/x closed")
    assert kinds(world) == {"closed/x": "added"}
    assert "+1" in diff(world, "--patch").out


# --- bad input -------------------------------------------------------------------------------------------

@pytest.mark.parametrize("args, words", [
    (["nobody"], "no sandbox 'nobody'"),
    (["../x"], "a name has"),
    (["x" * 4096], "a name has"),
    (["made@nosuch"], "no snapshot 'nosuch'"),
    (["--from", "nosuch"], "neither a snapshot"),
    (["--from", "x@y"], "no sandbox 'x'"),
    (["made@"], "no snapshot ''"),
])
def test_bad_names(world, args, words):
    commit(world, a="1\n")
    Made(world)
    r = diff(world, *args, rc=1)
    assert words in r.talk and r.talk.count("\n") == 1 and not r.out
    error = diff(world, "--json", *args, rc=1).json["error"]
    assert error["code"] in ("not_found", "invalid") and words in error["message"]


@pytest.mark.parametrize("args", [["a", "b", "c"], ["--stat", "--patch"], ["--json", "--stat"], ["--nope"],
                                  ["--rootfs", "--patch"], ["-rf"]])
def test_usage(world, args):
    r = diff(world, *args, rc=2)
    assert r.talk and ("--json" in args or not r.out)


def test_project_gone(world):
    commit(world, a="1\n")
    m = Made(world)
    m.run("echo 2 >a")
    os.rename(world.project, world.project + ".moved")
    r = diff(world, "made", rc=1, cwd=world.home)
    assert "is gone" in r.talk
    os.makedirs(world.project)
    assert "is not the directory" in diff(world, "made", rc=1).talk
    os.rmdir(world.project)
    os.rename(world.project + ".moved", world.project)
    assert kinds(world, "made") == {"a": "modified"}


def test_bad_records(world):
    commit(world, a="1\n")
    m = Made(world)
    for more, words in [({"schema": 3}, "a newer petri"), ({"schema": 1}, "kept run"), ({"top": "../../x"}, "no layer"),
                        ({"top": "00000000000000ff"}, "open the layer"), ({"hide": ["../x"]}, "can't be right"),
                        ({"project": "relative"}, "no project")]:
        m.save(**more)
        r = diff(world, "made", rc=1)
        assert words in r.talk and r.talk.count("\n") == 1
    helpers.write(os.path.join(m.data, "sandboxes", m.id, "state.json"), "{")
    assert diff(world, "made", rc=1).talk


def test_other_project(world):
    commit(world, a="1\n")
    Made(world, "one")
    second = Made(world, "two")
    second.save(project=world.home)
    assert "different projects" in diff(world, "one", "two", rc=1).talk


# --- sandboxes that petri made ---------------------------------------------------------------------------

@pytest.fixture
def started(world, store):
    """Starts sandboxes and removes them again; in the store of all tests, where the system's copy is."""
    world.store = world.env["PETRI_HOME"] = store
    top = os.path.join(store, "sandboxes")
    before = set(os.listdir(top)) if os.path.exists(top) else set()

    def start(*args):
        world.run(*args, sub="start").ok()

    yield start
    for sid in set(os.listdir(top)) - before:
        world.run("-f", sid, sub="rm").ok()


def inside(world, script, name=None):
    return world.run(*([name] if name else []), "--", "sh", "-c", script, sub="exec").ok()


@pytest.mark.parametrize("mode", ["overlay", "copy"])
def test_living(world, started, mode):
    """While it runs and after it stopped, with snapshots and forks."""
    commit(world, **{"a": "1\n", "d/x": "x\n", ".env": "SECRET\n", "b": "1\n", ".gitignore": "*.o\n"})
    started("--workspace-mode", mode, "--hide", ".env")
    inside(world, "echo 2 >a; rm -r d; mkdir closed; echo c >closed/x; chmod 0 closed/x closed; echo o >y.o; echo t >/tmp/t")
    want = {"a": "modified", "d/x": "deleted", "closed/x": "added"}
    assert kinds(world) == want
    first = change_id(world)
    snap = world.run(sub="snapshot").ok().out.split()[0]
    inside(world, "echo 3 >>a; echo n >new")
    assert kinds(world, "--from", snap) == {"a": "modified", "new": "added"}
    assert diff(world, "@" + snap, "--json").json["change"] == first
    world.run("--name", "other", sub="fork").ok()
    inside(world, "rm new", "other")
    assert kinds(world, "other") == want
    own = os.path.basename(world.project) + "-1"
    assert kinds(world, own, "other") == {"new": "deleted"}
    assert "A\t/tmp/t\n" in diff(world, "--rootfs").out
    world.run(sub="stop").ok()
    assert kinds(world) == {**want, "new": "added"}
    assert helpers.read(os.path.join(world.project, ".env")) == b"SECRET\n"


def test_worktree(world, started):
    """The repository of a worktree lies elsewhere: it is no part of the change, its new commits are named."""
    commit(world, a="1\n")
    tree = os.path.join(world.home, "tree")
    git(world.project, "worktree", "add", "-q", "-b", "feature", tree)
    world.project = tree
    started()
    inside(world, "echo 2 >a; git -c user.email=a@example.com -c user.name=a commit -qam in; echo 3 >b")
    found = diff(world, "--json").json
    assert {c["path"]: c["kind"] for c in found["changes"]} == {"a": "modified", "b": "added"}
    assert found["refs"] == ["feature"]


@pytest.mark.ranges
def test_living_as_user_0(world, started):
    """Files of ids that only the sandbox's own namespace knows; the system's directories."""
    commit(world, a="1\n")
    started("-u", "0")
    inside(world, "echo 2 >a; mkdir m; echo 1 >m/x; chown -R 55:55 m; chmod 700 m; chmod 600 m/x; echo 1 >/usr/local/made")
    assert kinds(world) == {"a": "modified", "m/x": "added"}
    assert "\n+1\n" in diff(world, "--patch", "--", "m").out
    assert "A\t/usr/local/made\n" in diff(world, "--rootfs").out


def test_living_at_work(world, started):
    """A diff of a sandbox that writes all the time: each look is a state it had, never a failure."""
    commit(world, **{f"f{i}": "1\n" for i in range(50)})
    started()
    world.run("-d", "--", "sh", "-c", "while :; do for i in 1 2 3 4 5 6 7 8 9; do mkdir -p t$i/u; echo $i >t$i/u/x; "
              "ln -s x t$i/u/l; rm -f f$i; echo $i >f$i; rm -rf t$i; done; done", sub="exec").ok()
    helpers.wait_for(lambda: kinds(world), what="the first change")
    for args in [["--json"], ["--stat"], ["--patch"], []] * 3:
        diff(world, *args)
