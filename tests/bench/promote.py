"""A promotion of many changed files against a plain copy of the same files that is on the disk, too.

Where `cp -a` is followed by one sync of the file system it is as fast as such a copy can be; where each file and
directory is synced by itself it is what a program has to do that knows nothing of the file system.
"""
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


def sync_each(top):
    for d, _, files in os.walk(top):
        for path in [os.path.join(d, f) for f in files] + [d]:
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)


def copied(top, copy, sync):
    """ms of a copy and its sync."""
    os.sync()
    t0 = time.monotonic()
    subprocess.run(["cp", "-a", top, copy], check=True)
    sync()
    took = time.monotonic() - t0
    shutil.rmtree(copy)
    return took * 1000


def one(scratch, home, turn):
    """ms of the promotion, of the copy with one sync, of the copy with a sync of each file; of diff and undo."""
    top = os.path.join(scratch.store(), "promote-%d" % turn)  # on one file system with the store
    copy = top + "-copy"
    make_project(top, home.user)
    time.sleep(0.1)  # files younger than a tick of the kernel's clock count as changed meanwhile
    home.do("start", "--network", "none", cwd=top)
    if shutil.which("python3"):
        home.do("exec", "--", "python3", "-c", CHANGE_PY, cwd=top, timeout=600)
    else:
        home.do("exec", "--", "sh", "-c", CHANGE, cwd=top, timeout=600)

    def timed(*words):
        os.sync()
        t0 = time.monotonic()
        home.do(*words, cwd=top, timeout=600)
        return (time.monotonic() - t0) * 1000

    diff, promote = timed("diff", "--stat"), timed("promote", "-y")
    if changed(top) != FILES:
        raise Fail("promote: %d of %d files arrived" % (changed(top), FILES))
    plain = copied(top, copy, lambda: subprocess.run(["sync", "-f", top], check=True))
    each = copied(top, copy, lambda: sync_each(copy))
    undo = timed("undo")
    if changed(top):
        raise Fail("undo: %d files are still as they were promoted" % changed(top))
    home.remove_all()
    shutil.rmtree(top)
    return promote, plain, each, diff, undo


def rows(scratch, home, word, rounds):
    if home.run([home.petri, "promote", "--help"]).returncode:
        raise Fail("this petri has no promote")
    turns = max(1, min(TURNS, rounds // 5))
    got = [one(scratch, home, turn) for turn in range(turns)]
    promote, plain, each, diff, undo = (Series(x) for x in zip(*got))
    what = "{:,} files, {}".format(FILES, word)
    return [Row("promote of " + what, promote, "cp -a, one sync", plain, 1.0),
            Row("promote of " + what, promote, "cp -a, fsync of each", each, 1.0),
            Row("diff --stat of " + what, diff, "cp -a, one sync", plain, None),
            Row("undo of " + what, undo, "cp -a, one sync", plain, None)]
