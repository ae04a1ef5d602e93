"""What the tests of promote, undo and their crashes share."""
import hashlib
import os
import shutil
import stat
import subprocess
import time

import helpers
from layers import Made

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/nonexistent",
       "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
GIT = ["git", "-c", "user.email=t@example.com", "-c", "user.name=t", "-c", "commit.gpgsign=false",
       "-c", "init.defaultBranch=main", "-c", "gc.auto=0"]


def git(where, *args, check=True):
    return subprocess.run(GIT + ["-C", where, *args], check=check, env=ENV, capture_output=True, text=True)


def fresh(petri):
    """A store of its own and an empty project."""
    petri.own_store(kept=True)
    os.makedirs(petri.store, mode=0o700)
    for name in os.listdir(petri.project):
        os.unlink(os.path.join(petri.project, name))
    return petri


def tick(directory):
    """Waits until the file system's clock has moved on: what happens now is after what happened."""
    probe = os.path.join(directory, ".tick")
    first = None
    while True:
        with open(probe, "w"):
            now = os.stat(probe).st_ctime_ns
        os.unlink(probe)
        if first is None:
            first = now
        elif now > first:
            return
        time.sleep(0.001)


class Box(Made):
    """A sandbox made by hand, with the index that `petri start` keeps."""

    def __init__(self, world, **kw):
        tick(world.project)
        super().__init__(world, **kw)
        index = os.path.join(self.project, ".git", "index")
        if os.path.exists(index):
            shutil.copy(index, os.path.join(self.data, "sandboxes", self.id, "base.index"))
        tick(world.project)


def look(top, times=True):
    """path -> kind, mode, content (and time) of everything but directories' times and .git."""
    seen = {}
    for d, dirs, files in os.walk(top):
        dirs[:] = [x for x in dirs if x != ".git"]
        for name in dirs + files:
            p = os.path.join(d, name)
            st = os.lstat(p)
            rel = os.path.relpath(p, top)
            if stat.S_ISDIR(st.st_mode):
                seen[rel] = ("dir", st.st_mode & 0o7777, None, None)
            elif stat.S_ISLNK(st.st_mode):
                seen[rel] = ("link", None, os.readlink(p), st.st_mtime_ns if times else None)
            else:
                with open(p, "rb") as f:
                    seen[rel] = ("file", st.st_mode & 0o7777, hashlib.sha256(f.read()).hexdigest(),
                                 st.st_mtime_ns if times else None)
    return seen


def contents(top):
    return {k: v[:3] for k, v in look(top, times=False).items()}


def leftovers(world):
    """Files of petri's own that must not stay."""
    left = [p for p in helpers.listing(world.project) if os.path.basename(p).startswith(".petri-")]
    journal = os.path.join(world.store, "journal")
    if os.path.isdir(journal):
        left += [n for n in os.listdir(journal) if n.endswith(".open") or n.startswith(".new-")]
    return left


def promote(world, *args, rc=0, **kw):
    r = world.run(*args, sub="promote", **kw).ok(rc)
    assert not leftovers(world), f"{leftovers(world)}\n{r!r}"
    return r


def call(world, verb, *args, rc=0, **kw):
    r = world.run(*args, sub=verb, **kw).ok(rc)
    assert not leftovers(world), f"{leftovers(world)}\n{r!r}"
    return r


def text(world, name):
    return helpers.read(os.path.join(world.project, name)).decode()
