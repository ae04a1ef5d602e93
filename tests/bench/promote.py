"""A promotion of many changed files against a plain copy of them that is on the disk, too."""
import os
import shutil
import subprocess
import time

from report import Row, Series
from scratch import Fail, chown_tree

FILES = 10000
TURNS = 5  # at most


def make_project(top, owner):
    os.mkdir(top)
    for i in range(FILES):
        sub = os.path.join(top, "d%02d" % (i // 100))
        if i % 100 == 0:
            os.mkdir(sub)
        with open(os.path.join(sub, "f%02d.txt" % (i % 100)), "w", encoding="ascii") as f:
            f.write("file %d\n" % i * 40)
    chown_tree(top, owner)


def changed(top):
    """How many files hold what the sandbox wrote."""
    n = 0
    for d, _, files in os.walk(top):
        for name in files:
            with open(os.path.join(d, name), encoding="ascii") as f:
                n += f.read().startswith("changed")
    return n


CHANGE = ('for f in d*/*; do printf "changed %s\\n" "$f" >"$f.tmp"; cat "$f" >>"$f.tmp"; '
          'cat "$f.tmp" >"$f"; rm "$f.tmp"; done')
CHANGE_PY = ("import glob\n"
             "for p in glob.glob('d*/*'):\n"
             "    s = open(p).read()\n"
             "    open(p, 'w').write('changed ' + p + '\\n' + s)\n")


def one(scratch, home, turn):
    """(ms of the promotion, ms of the copy)."""
    top, copy = scratch.path("promote-%d" % turn), scratch.path("promote-%d-copy" % turn)
    make_project(top, home.user)
    time.sleep(0.1)  # files younger than a tick of the kernel's clock count as changed meanwhile
    home.do("start", "--network", "none", cwd=top)
    if shutil.which("python3"):
        home.do("exec", "--", "python3", "-c", CHANGE_PY, cwd=top, timeout=600)
    else:
        home.do("exec", "--", "sh", "-c", CHANGE, cwd=top, timeout=600)
    os.sync()
    t0 = time.monotonic()
    home.do("promote", "-y", cwd=top, timeout=600)
    promote = time.monotonic() - t0
    if changed(top) != FILES:
        raise Fail("promote: %d of %d files arrived" % (changed(top), FILES))
    home.remove_all()
    os.sync()
    t0 = time.monotonic()
    for argv in (["cp", "-a", top, copy], ["sync", "-f", scratch.dir]):
        subprocess.run(argv, check=True)
    plain = time.monotonic() - t0
    shutil.rmtree(top)
    shutil.rmtree(copy)
    return promote * 1000, plain * 1000


def rows(scratch, home, word, rounds):
    if home.run([home.petri, "promote", "--help"]).returncode:
        raise Fail("this petri has no promote")
    turns = max(1, min(TURNS, rounds // 5))
    got = [one(scratch, home, turn) for turn in range(turns)]
    return [Row("promote of {:,} files, {}".format(FILES, word), Series([x[0] for x in got]),
                "cp -a, sync", Series([x[1] for x in got]), 1.0)]
