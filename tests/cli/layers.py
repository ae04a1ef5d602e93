"""Sandboxes made by hand: layers that a real overlay wrote and a record, without petri start."""
import json
import os
import secrets
import subprocess

import helpers

OVERLAY = "index=off,metacopy=off,xino=off,redirect_dir=off" if helpers.ROOT else "userxattr"


class Made:
    """A sandbox in a store: `run` changes its top layer as a program in it would."""

    def __init__(self, world, name="made", mode="overlay", hide=(), data=None):
        self.world, self.data = world, data or world.store
        self.id = secrets.token_hex(6)
        self.project = world.project
        self.name, self.mode, self.hide = name, mode, list(hide)
        self.chain, self.top = [], self._layer()
        self.snapshots, self.parent = [], None
        self.stamp = self._clock()
        if mode == "copy":
            w0 = os.path.join(self.layer(self.top), "w0")
            subprocess.run(["cp", "-a", self.project + "/.", w0], check=True)
            for h in self.hide:
                subprocess.run(["rm", "-rf", os.path.join(w0, h)], check=True)
            self._stack()
        self.save()

    def _clock(self):
        probe = os.path.join(self.project, ".clock")
        with open(probe, "w"):
            now = os.stat(probe).st_ctime_ns
        os.unlink(probe)
        return now

    def layer(self, lid):
        return os.path.join(self.data, "changes", lid)

    def _layer(self):
        lid = secrets.token_hex(8)
        for sub in ("w0", "r", "work"):
            os.makedirs(os.path.join(self.layer(lid), sub), mode=0o700)
        os.chmod(os.path.join(self.layer(lid), "w0"), 0o755)
        return lid

    def _stack(self):
        self.chain.append(self.top)
        self.top = self._layer()

    def snapshot(self, message=""):
        self._stack()
        sid = f"s{len(self.snapshots) + 1}"
        self.snapshots.append({"id": sid, "created": "2026-01-01T00:00:00Z", "message": message,
                               "chain": list(self.chain)})
        self.save()
        return sid

    def fork(self, name):
        self._stack()
        self.save()
        other = Made.__new__(Made)
        other.__dict__.update(self.__dict__)
        other.id, other.name, other.chain = secrets.token_hex(6), name, list(self.chain)
        other.top, other.snapshots = other._layer(), []
        other.save()
        return other

    def save(self, **more):
        ids = "root" if helpers.ROOT else "single"
        st = os.stat(self.project)
        rec = {"schema": 2, "id": self.id, "name": self.name, "created": "2026-01-01T00:00:00Z",
               "project": self.project, "project_dev": st.st_dev, "project_ino": st.st_ino,
               "owner_uid": os.getuid(), "owner_gid": os.getgid(), "image": "host",
               "workspace_mode": self.mode, "uid": 1000, "gid": 1000, "user_uid": os.getuid(),
               "user_gid": os.getgid(), "ids": ids, "options": {}, "hide": self.hide,
               "workspaces": [self.project], "chain": self.chain, "top": self.top,
               "snapshots": self.snapshots, "parent": None, "something": {"new": [1]},
               "stamp_sec": self.stamp // 10**9, "stamp_nsec": self.stamp % 10**9}
        rec.update(more)
        d = os.path.join(self.data, "sandboxes", self.id)
        os.makedirs(d, mode=0o700, exist_ok=True)
        with open(os.path.join(d, "state.json"), "w") as f:
            json.dump(rec, f)
        for kind, key in (("names", self.name), ("projects", f"{st.st_dev:x}-{st.st_ino:x}")):
            os.makedirs(os.path.join(self.data, kind), mode=0o700, exist_ok=True)
            link = os.path.join(self.data, kind, key)
            if not os.path.lexists(link):
                os.symlink(self.id, link)

    def run(self, script):
        """Runs a shell script in the workspace as the sandbox sees it."""
        mask = os.path.join(self.layer(self.top), "work", "mask")
        for h in self.hide:
            os.makedirs(os.path.join(mask, os.path.dirname(h)), exist_ok=True)
            if not os.path.lexists(os.path.join(mask, h)):
                os.mknod(os.path.join(mask, h), 0o020000, 0)
        lowers = [os.path.join(self.layer(c), "w0") for c in reversed(self.chain)]
        if self.mode != "copy":
            lowers += ([mask] if self.hide else []) + [self.project]
        work, at = (os.path.join(self.layer(self.top), "work", x) for x in ("k", "m"))
        for d in (work, at):
            os.makedirs(d, exist_ok=True)
        os.makedirs(os.path.join(self.layer(self.top), "w0"), exist_ok=True)
        # relative names: the kernel takes a page of options and no more
        rel = [os.path.relpath(x, self.data) for x in lowers]
        options = (f"{OVERLAY},lowerdir={':'.join(x if x[0] != '.' else y for x, y in zip(rel, lowers))},"
                   f"upperdir={os.path.join(self.layer(self.top), 'w0')},workdir={work}")
        inner = f"set -e; mount -t overlay overlay -o \"$1\" \"$2\"; cd \"$2\"; {script}"
        space = ["unshare", "-m"] if helpers.ROOT else ["unshare", "-Urm"]
        subprocess.run(space + ["bash", "-c", inner, "bash", options, at], check=True, cwd=self.data,
                       timeout=helpers.patience(60))
