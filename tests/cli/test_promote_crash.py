"""Promotions that die: killed at any system call, out of room, with errors from the disk.

M09: after the next petri command the project is as before or as after, never between, and undo gives back
what was, byte for byte. A fair sample here; everything with PETRI_SOAK=1.
"""
import os
import random
import re
import shutil
import subprocess

import pytest

import helpers
from promotion import Box, call, contents, fresh, leftovers, look, promote, text

SOAK = bool(os.environ.get("PETRI_SOAK"))
SAMPLE = 10**9 if SOAK else 40
# Calls after which the disk is different, and others that are as good a moment to die as any.
CALLS = ("openat", "openat2", "pwrite64", "write", "renameat2", "renameat", "mkdirat", "unlinkat", "fsync", "syncfs",
         "symlinkat", "fchmod", "chmod", "ftruncate", "flock", "utimensat", "pread64", "sendmsg", "recvmsg", "lseek", "close")

pytestmark = pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")


@pytest.fixture
def world(petri):
    """A project and a sandbox that changed it in every way."""
    w = fresh(petri)
    w.file("a", "old a\n", 0o640)
    w.file("b", "old b\n" * 20000)  # a small file is read once, this one twice
    w.file("x", "#!/bin/sh\n", 0o755)
    w.file("gone/deep/file", "gone\n")
    w.file("gone/other", "gone\n")
    w.file("dir/in", "in\n")
    w.file("file", "file\n")
    w.file("shut/in/f", "f\n")
    for d in ("shut/in", "shut"):  # nobody may write to them, but they go and come with all that is in them
        os.chmod(os.path.join(w.project, d), 0o555)
    os.symlink("a", os.path.join(w.project, "link"))
    os.utime(os.path.join(w.project, "a"), ns=(10**18, 10**18 + 7))
    w.box = Box(w)
    w.box.run("echo new > a; echo new >> b; chmod 644 x; rm -r gone; rm -r dir; echo now a file > dir; "
              "rm file; mkdir -p file/deep; echo f > file/deep/f; ln -sfn b link; echo n > n; mkdir empty; "
              "chmod -R u+w shut; rm -r shut; mkdir -p pkg/sub; echo p > pkg/sub/p; chmod 555 pkg/sub pkg")
    w.old = look(w.project)
    promote(w, "-y")
    w.new = contents(w.project)
    call(w, "undo")
    assert look(w.project) == w.old
    return w


def strace(world, *spec, verb="promote", args=("-y",)):
    """petri under strace; None where the machine does not let us trace."""
    argv = ["strace", "-f", "-qq", "-o", world.path("trace")]
    for s in spec:
        argv += ["-e", s]
    p = subprocess.run(argv + [helpers.BIN, verb, *args], cwd=world.project, env=world.env, capture_output=True,
                       stdin=subprocess.DEVNULL, timeout=helpers.patience(120))
    return p


def counts(world, verb="promote", args=("-y",)):
    """How often one process at most makes each call."""
    p = strace(world, f"trace={','.join(CALLS)}", verb=verb, args=args)
    if p.returncode or b"ptrace" in p.stderr:
        pytest.skip(f"strace does not work here: {p.stderr[:200]!r}")
    most = {}
    with open(world.path("trace"), errors="replace") as f:
        for line in f:
            m = re.match(r"(\d+)\s+(\w+)\(", line)
            if m and m.group(2) in CALLS:
                most[m.groups()] = most.get(m.groups(), 0) + 1
    best = {}
    for (_, name), n in most.items():
        best[name] = max(best.get(name, 0), n)
    return best


def moments(world, verb="promote", args=("-y",), size=None):
    every = [(name, k) for name, n in sorted(counts(world, verb, args).items()) for k in range(1, n + 1)]
    rest = random.Random(7)
    # renames and what is around them are where it matters
    first = [m for m in every if m[0] in ("renameat2", "fsync", "unlinkat", "mkdirat")]
    size = size or SAMPLE
    if len(every) <= size:
        return every
    chosen = rest.sample(first, min(len(first), size * 2 // 3))
    return chosen + rest.sample([m for m in every if m not in first], size - len(chosen))


def settle(world):
    """The next petri command; then the project is old or new. Which one."""
    call(world, "history", "--json")
    now = look(world.project)
    if now == world.old:
        return "old"
    assert {k: v[:3] for k, v in now.items()} == world.new, "neither old nor new"
    return "new"


def test_killed_at_any_call(world):
    """M09"""
    seen = set()
    todo = moments(world)
    call(world, "undo")
    for name, k in todo:
        strace(world, f"trace={name}", f"inject={name}:signal=KILL:when={k}")
        state = settle(world)
        seen.add(state)
        if state == "new":
            call(world, "undo")
            assert look(world.project) == world.old, (name, k)
    assert seen == {"old", "new"}


def test_undo_killed_at_any_call(world):
    promote(world, "-y")
    todo = moments(world, "undo", (), size=SAMPLE // 2 if not SOAK else None)
    for name, k in todo:
        if look(world.project) == world.old:
            call(world, "redo")
        assert contents(world.project) == world.new
        strace(world, f"trace={name}", f"inject={name}:signal=KILL:when={k}", verb="undo", args=())
        settle(world)
    if look(world.project) != world.old:
        call(world, "undo")
    assert look(world.project) == world.old


@pytest.mark.parametrize("name,error", [("pwrite64", "ENOSPC"), ("renameat2", "EIO"), ("fsync", "EIO"),
                                        ("mkdirat", "EDQUOT"), ("symlinkat", "EROFS"), ("ftruncate", "EIO"),
                                        ("fchmod", "EPERM"), ("chmod", "EPERM"), ("unlinkat", "EIO")])
def test_errors(world, name, error):
    """An error at any point: as before and one line that says so, or done but for cleaning up."""
    n = counts(world).get(name, 0)
    call(world, "undo")
    assert n
    which = range(1, n + 1) if SOAK else sorted({1, n, n // 2 + 1, random.Random(3).randint(1, n)})
    for k in which:
        p = strace(world, f"trace={name}", f"inject={name}:error={error}:when={k}")
        if p.returncode:
            assert b"petri: " in p.stderr and b"Traceback" not in p.stderr
            state = "old" if look(world.project) == world.old else "new"
            if state == "old" and name != "unlinkat":
                assert not leftovers(world), (k, p.stderr)
        if settle(world) == "new":
            assert p.returncode == 0 or b"everything is in place" in p.stderr, (k, p.stderr)
            call(world, "undo")
            assert look(world.project) == world.old


@pytest.fixture
def many(petri):
    """Enough files for several threads."""
    w = fresh(petri)
    for i in range(700):
        w.file(f"d{i % 7}/f{i}", f"old {i}\n")
    w.box = Box(w)
    w.box.run("for f in d?/*; do echo new >> $f; done; mkdir -p e/f; for i in $(seq 60); do echo $i > e/f/$i; done; "
              "rm d0/f0 d3/f3 d6/f6; ln -s f1 d1/link; chmod +x d2/f2; head -c 200000 /dev/zero | tr '\\0' x > d4/f4")
    w.old = look(w.project)
    promote(w, "-y")
    w.new = contents(w.project)
    assert len(w.new) > 750
    call(w, "undo")
    assert look(w.project) == w.old
    return w


def test_many_files_killed(many):
    """Of what several threads do at once any part may be done."""
    seen = set()
    for name, k in (("pwrite64", 150), ("renameat2", 1), ("renameat2", 90), ("renameat2", 170), ("unlinkat", 50),
                    ("openat", 900), ("syncfs", 1), ("syncfs", 2)):
        for verb, args in (("promote", ("-y",)), ("undo", ())):
            strace(many, f"trace={name}", f"inject={name}:signal=KILL:when={k}", verb=verb, args=args)
            state = settle(many)
            seen.add((verb, state))
            if verb == "promote" and state == "old":
                promote(many, "-y")
            elif verb == "undo" and state == "new":
                call(many, "undo")
        assert look(many.project) == many.old and not leftovers(many), (name, k)
    assert {("promote", "old"), ("promote", "new")} <= seen


@pytest.mark.parametrize("name,k", [("pwrite64", 100), ("renameat2", 120)])
def test_many_files_and_an_error(many, name, k):
    p = strace(many, f"trace={name}", f"inject={name}:error=EIO:when={k}")
    assert p.returncode == 1 and p.stderr.count(b"\n") == 1, p.stderr
    assert look(many.project) == many.old and not leftovers(many)
    promote(many, "-y")
    assert contents(many.project) == many.new


def test_no_exchange_on_this_file_system(world):
    """Where two names can't be swapped it takes three renames, and recovery knows all of them."""
    every = "inject=renameat2:error=EINVAL"
    p = strace(world, "trace=renameat2", every)
    assert p.returncode == 0, p.stderr
    assert contents(world.project) == world.new
    call(world, "undo")
    for k in range(1, 60 if SOAK else 16):
        strace(world, "trace=renameat2,renameat", every, f"inject=renameat:signal=KILL:when={k}")
        if settle(world) == "new":
            call(world, "undo")
            assert look(world.project) == world.old, k


def kill_in_the_middle(world):
    """Dies with some files renamed and others not."""
    n = counts(world)["renameat2"]
    call(world, "undo")
    for k in range(n // 2, n):
        strace(world, "trace=renameat2", f"inject=renameat2:signal=KILL:when={k}")
        if look(world.project) != world.old and any(x.endswith(".open") for x in
                                                   os.listdir(os.path.join(world.store, "journal"))):
            return
        settle(world)
        if look(world.project) != world.old:
            call(world, "undo")
    raise AssertionError("it never died in the middle")


def test_the_user_edits_between_crash_and_recovery(world):
    """What is neither old nor new is left alone, both versions are kept, and that is said."""
    kill_in_the_middle(world)
    world.file("b", "the user's own\n")
    r = call(world, "history")
    assert "'b'" in r.talk and "left alone" in r.talk and text(world, "b") == "the user's own\n"
    kept = re.search(r"both versions are in (\S+)\)", r.talk).group(1)
    have = {helpers.read(os.path.join(kept, n)) for n in os.listdir(kept)}
    assert b"old b\n" * 20000 in have
    rest = {k: v for k, v in contents(world.project).items() if k != "b"}
    assert rest in ({k: v for k, v in world.new.items() if k != "b"},
                    {k: v[:3] for k, v in world.old.items() if k != "b"})
    assert not leftovers(world)
    assert not call(world, "history").talk


def test_recovery_itself_is_killed(world):
    kill_in_the_middle(world)
    for k in range(1, 30):
        p = strace(world, "trace=renameat2,unlinkat,fsync", f"inject=renameat2,unlinkat,fsync:signal=KILL:when={k}",
                   verb="history", args=("--json",))
        if p.returncode == 0:
            break
    assert settle(world) == "new"


def test_another_command_recovers(world):
    for verb, args in (("promote", ("-y",)), ("undo", ())):
        kill_in_the_middle(world)
        world.run(*args, sub=verb)
        assert not leftovers(world)
        assert look(world.project) == world.old or contents(world.project) == world.new
        if look(world.project) != world.old:
            call(world, "undo")
        assert look(world.project) == world.old


@pytest.mark.root
def test_a_full_disk(petri):
    """A project on a file system without room: an error, and everything as before."""
    w = fresh(petri)
    w.file("a", "1\n")
    script = """set -e
        mount -t tmpfs -o size=256k,mode=755 none "$1"; cd "$1"; echo 1 > a; head -c 100000 /dev/zero > b
        "$2" start --network none >/dev/null 2>&1; "$2" exec -- sh -c 'echo 2 > a; head -c 200000 /dev/urandom > b; echo n > n'
        set +e; "$2" promote -y; echo "rc=$?"; cat a; stat -c %s b; ls -A
        "$2" rm -f $("$2" ls -q) >/dev/null"""
    p = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", w.project, helpers.BIN], env=w.env,
                       capture_output=True, text=True, timeout=helpers.patience(120), stdin=subprocess.DEVNULL)
    assert "rc=1\n1\n100000\na\nb\n" in p.stdout and "No space left" in p.stderr, p


def test_stopped_by_a_signal(world):
    """SIGTERM while files are written: nothing changed, nothing left."""
    p = strace(world, "trace=flistxattr", "inject=flistxattr:signal=TERM:when=2")
    assert p.returncode and look(world.project) == world.old and not leftovers(world), p.stderr
