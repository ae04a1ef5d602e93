"""What code in a sandbox tries against whoever looks at it from outside: each of these got through once."""
import hashlib
import os
import re
import stat
import subprocess

import pytest

from helpers import Tty, listing, wait_for
from life import life  # noqa: F401
from promotion import git

BIG = 15 << 40  # as large as ext4 lets a file be, and nothing in it


def project(life):
    git(life.project, "init", "-q")
    git(life.project, "add", "-A")
    git(life.project, "commit", "-q", "-m", "first")
    life.start()
    return life


def answer(life, meanwhile, *args):
    """petri promote as a person sees it, who takes a while to answer."""
    t = Tty(life.petri, *args, sub="promote")
    t.expect(rb"\[N\]o")
    life.sh(meanwhile).ok()
    t.send(b"y\n")
    rc = t.wait()
    t.close()
    return rc


# --- what was reviewed is what goes ----------------------------------------------------------------------

def test_a_link_that_turns_after_the_question(life):
    project(life).sh("ln -s README safe").ok()
    assert answer(life, "ln -sfn /etc/passwd safe") == 1
    assert not os.path.lexists(os.path.join(life.project, "safe"))


def test_a_link_that_turns_to_git(life):
    project(life).sh("mkdir d; ln -s README d/safe").ok()
    assert answer(life, "ln -sfn ../.git/hooks d/safe") == 1
    assert not os.path.lexists(os.path.join(life.project, "d"))


@pytest.mark.parametrize("before,after", [("echo good >f", "echo evil >f"), ("ln -s README f", "ln -sfn /etc f")])
def test_a_branch_gets_what_was_asked_about(life, before, after):
    project(life).sh(before).ok()
    assert answer(life, after, "--branch", "new") == 1
    assert git(life.project, "rev-parse", "-q", "--verify", "refs/heads/new", check=False).returncode != 0


def test_a_branch_still_gets_files_and_links(life):
    project(life).sh("echo good >f; ln -s f l; : >empty").ok()
    life("promote", "-y", "--branch", "new").ok()
    assert git(life.project, "show", "new:f").stdout == "good\n"
    assert git(life.project, "show", "new:l").stdout == "f"
    assert git(life.project, "show", "new:empty").stdout == ""


def test_a_link_that_never_rests(life):
    """It leads out at every other moment: then it has the flag, or it is not what was promoted."""
    project(life)
    life("exec", "-d", "--", "python3", "-c",
         "import os\nwhile 1:\n for t in ('README', '/etc/passwd'):\n  os.symlink(t, 'm'); os.rename('m', 'l')").ok()
    wait_for(lambda: life.sh("test -L l").rc == 0, what="the link")
    out = hashlib.sha256(b"/etc/passwd").hexdigest()
    for _ in range(30):
        for c in life("diff", "--json", "--", "l").ok().json["changes"]:
            assert c.get("new", {}).get("sha256") != out or "symlink-out" in [r["code"] for r in c["flags"]], c
        life("promote", "-y", "--", "l")
        here = os.path.join(life.project, "l")
        assert not os.path.lexists(here) or os.readlink(here) == "README"


def test_a_patch_is_what_its_number_stands_for(life):
    """A file that changes all the time: what is shown is what the id was made of, or nothing is."""
    project(life)
    life("exec", "-d", "--", "python3", "-c",
         "import os\nwhile 1:\n for t in ('good', 'evil'):\n  open('m', 'w').write(t); os.rename('m', 'f')").ok()
    wait_for(lambda: life.sh("test -f f").rc == 0, what="the file")
    ids = {}
    for _ in range(60):
        shown = life("diff", "--", "f").ok().out
        number = re.search(r"change ([0-9a-f]+)", shown)
        text = re.search(r"^\+(good|evil)", shown, re.M)
        if number and text:
            ids.setdefault(number[1], set()).add(text[1])
    assert all(len(v) == 1 for v in ids.values()), ids


# --- what costs the sandbox nothing -----------------------------------------------------------------------

def test_a_file_that_is_one_hole(life):
    project(life).sh(f"truncate -s {BIG} big && echo x >f").ok()
    assert life.status()["changes"]["added"] == 2
    assert "unreadable" in life("diff").ok().out
    life("promote", "-y").ok()
    assert sorted(n for n in listing(life.project) if not n.startswith(".git")) == ["README", "f", "petri.json"]
    to = os.path.join(life.petri.home, "out")
    life("cp", ":big", to).ok()
    st = os.stat(to)
    assert st.st_size == BIG and st.st_blocks < 64


def test_holes_are_files_all_the_same(life):
    project(life).sh("truncate -s 100M f && printf end >>f && printf mid | dd of=f bs=1 seek=5000000 conv=notrunc").ok()
    to = os.path.join(life.petri.home, "out")
    life("cp", ":f", to).ok()
    life("promote", "-y").ok()
    for path in (to, os.path.join(life.project, "f")):
        with open(path, "rb") as f:
            data = f.read()
        assert len(data) == (100 << 20) + 3 and data.endswith(b"\0end") and data[5000000:5000003] == b"mid"
        assert data.count(0) == len(data) - 6


def test_a_file_that_grows_as_it_is_copied(life):
    """It ends where the file ended when the copy began."""
    project(life)
    life("exec", "-d", "--", "sh", "-c", "while :; do head -c 4M /dev/zero >>/tmp/g;"
         " test $(stat -c %s /tmp/g) -lt 400000000 || : >/tmp/g; done").ok()
    wait_for(lambda: life.sh("test -s /tmp/g").rc == 0, what="the file")
    life("cp", ":/tmp/g", os.path.join(life.petri.home, "out")).ok()


def test_files_of_proc_come_out(life):
    project(life)
    to = os.path.join(life.petri.home, "out")
    life("cp", ":/proc/self/mounts", to).ok()
    assert os.path.getsize(to) > 100 and stat.S_ISREG(os.lstat(to).st_mode)


# --- the limit of the disk --------------------------------------------------------------------------------

DEEP = """
import os, time
os.chdir("/tmp")
for i in range(%d):
    os.mkdir("d")
    os.chdir("d")
f = open("u", "wb")
for i in range(40):
    f.write(b"x" * (1 << 20))
f.flush()
time.sleep(120)
"""


def test_what_lies_deep_counts(life):
    """More levels than a process may have files open."""
    project(life)
    life("restart", "--disk", "10M").ok()
    r = life("exec", "--", "python3", "-c", DEEP % 1500)
    assert r.rc == 137, r
    assert "disk" in life.status()["events"]


def test_too_deep_is_too_much(life):
    project(life)
    r = life("exec", "--", "python3", "-c", DEEP % 2500)
    assert r.rc == 137, r
    assert life.sh("true").rc in (0, 137)
    life("rm", "-f", life.status()["name"]).ok()


# --- what the kernel counts for the user on all of the machine ----------------------------------------------

TIMERS = """
import ctypes
libc, t, n = ctypes.CDLL(None), ctypes.c_void_p(), 0
while n < 20000 and libc.timer_create(1, 0, ctypes.byref(t)) == 0:
    n += 1
print(n, flush=True)
input()
"""


def test_timers_and_queued_signals_are_few(life):
    """Each of them takes one from its user's RLIMIT_SIGPENDING, outside as well."""
    project(life)
    p = life.begin("exec", "--", "python3", "-c", TIMERS, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    got = int(p.stdout.readline())
    p.communicate(b"\n", timeout=60)
    assert 100 < got <= 4096
