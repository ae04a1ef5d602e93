"""The machine loses power: a file system that stops at a random moment, is checked and mounted again.

Store and project are on a loop device in a mount namespace of their own; the shutdown is the kernel's (EXT4_IOC_SHUTDOWN,
XFS_IOC_GOINGDOWN). Records can be read, sandboxes start or are absent, what was promoted is old or new.
"""
import contextlib
import fcntl
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time

import pytest

import helpers

ROUNDS = 100 if os.environ.get("PETRI_SOAK") else 3
SHUTDOWN = {"ext4": 0x8004587D, "xfs": 0x8004587D}  # the same number
FILES = ("a", "b", "c")


class Machine:
    """What a machine with petri on it is, until it loses power."""

    def __init__(self, base, kind, seed):
        self.base, self.kind, self.rnd = base, kind, random.Random(seed)
        self.image, self.top = os.path.join(base, "disk"), os.path.join(base, "mnt")
        self.project, self.store = os.path.join(self.top, "proj"), os.path.join(self.top, "store")
        self.env = {"PATH": os.environ["PATH"], "HOME": base, "PETRI_HOME": self.store, "LANG": "C.UTF-8"}
        self.promoted, self.off = 0, threading.Event()
        self.groups = helpers.cgroups()
        os.makedirs(self.top, exist_ok=True)
        with open(self.image, "wb") as f:
            f.truncate(3 << 30)  # sparse; petri keeps some room free
        quiet = ["-q", "-F"] if kind == "ext4" else ["-q", "-f"]
        subprocess.run([f"mkfs.{kind}", *quiet, self.image], check=True)

    def mount(self):
        subprocess.run(["mount", "-o", "loop", self.image, self.top], check=True)
        os.makedirs(self.project, exist_ok=True)

    def petri(self, *words):
        return subprocess.run([helpers.BIN, *words], cwd=self.project, env=self.env, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=helpers.patience(60))

    def ok(self, *words):
        p = self.petri(*words)
        assert p.returncode == 0, p
        return p.stdout

    def work(self, n):
        """An agent at work; every version is the same text in all files. Ends when the power does."""
        while not self.off.is_set():
            n += 1
            steps = [("exec", "proj-1", "--", "sh", "-c", f"for f in {' '.join(FILES)}; do yes {n} | head -n 3000 > $f; done"),
                     ("snapshot", "proj-1"), ("fork", "proj-1", "--name", f"f{n}"), ("promote", "proj-1", "-y"),
                     ("rm", "-f", f"f{n}")]
            for s in steps:
                if self.off.is_set() or self.petri(*s).returncode:
                    return
                if s[0] == "promote" and not self.off.is_set():
                    self.promoted = n

    def power_off(self, flags):
        fd = os.open(self.top, os.O_RDONLY)
        self.off.set()
        fcntl.ioctl(fd, SHUTDOWN[self.kind], struct.pack("I", flags))
        os.close(fd)

    def kill_all(self):
        def none():
            for pid in helpers.descendants():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not helpers.descendants()
        helpers.wait_for(none, what="the end of all processes")
        # control groups do not outlive a real one
        for g in sorted(helpers.cgroups() - self.groups, key=len, reverse=True):
            with contextlib.suppress(OSError):
                os.rmdir(g)

    def again(self):
        helpers.wait_for(lambda: subprocess.run(["umount", self.top], capture_output=True).returncode == 0, what="umount")
        if self.kind == "ext4":
            p = subprocess.run(["fsck.ext4", "-p", self.image], capture_output=True, text=True)
            assert p.returncode <= 1, p
        self.mount()

    def check(self):
        """-> the version that the project has"""
        top = os.path.join(self.store, "sandboxes")
        for name in os.listdir(top) if os.path.isdir(top) else ():
            path = os.path.join(top, name, "state.json")
            if os.path.exists(path):
                with open(path) as f:
                    assert json.load(f)["id"] == name
        self.ok("history", "--json")
        found = json.loads(self.petri("fsck", "--json").stdout)["problems"]
        assert not [p for p in found if not p["garbage"]], found
        texts = {helpers.read(os.path.join(self.project, f)).decode() for f in FILES}
        assert len(texts) == 1, {t[:20]: len(t) for t in texts}
        words = set(text := texts.pop().split())
        assert len(words) == 1 and len(text) == 3000, (words, len(text))
        version = int(text[0])
        assert version >= self.promoted, "a promotion that was done is lost"
        assert not [n for n in os.listdir(self.project) if n.startswith(".petri-")]
        for box in json.loads(self.ok("ls", "--json")):
            self.ok("start", "-q", box["name"])
            assert self.ok("exec", box["name"], "--", "echo", "alive") == "alive\n"
            if box["name"] != "proj-1":
                self.ok("rm", "-f", box["name"])
        self.ok("fsck", "--repair")
        return version

    def run(self):
        self.mount()
        for f in FILES:
            helpers.write(os.path.join(self.project, f), "0\n" * 3000)
        version = 0
        for i in range(ROUNDS):
            self.ok("start", "-q", "proj-1")
            if i == 0:
                os.sync()
            self.off.clear()
            t = threading.Thread(target=self.work, args=(version,))
            t.start()
            time.sleep(self.rnd.uniform(0, 1))
            self.power_off(2 if i % 3 else 1)  # without and with what is in the log
            self.kill_all()
            t.join()
            self.kill_all()
            self.again()
            version = self.check()
        ids = self.ok("ls", "-q").split()
        self.ok("rm", "-f", *ids) if ids else None
        self.kill_all()
        helpers.wait_for(lambda: subprocess.run(["umount", self.top], capture_output=True).returncode == 0, what="umount")


@pytest.mark.root
@pytest.mark.parametrize("kind", [k for k in SHUTDOWN if shutil.which(f"mkfs.{k}")])
def test_power_loss(petri, kind):
    seed = int(os.environ.get("PETRI_TEST_SEED", random.SystemRandom().randrange(1 << 30)))
    p = subprocess.run(["unshare", "-m", sys.executable, os.path.abspath(__file__), petri.base, kind, str(seed)],
                       capture_output=True, text=True, timeout=helpers.patience(60 + 30 * ROUNDS))
    assert p.returncode == 0, f"PETRI_TEST_SEED={seed}\n{p.stdout}{p.stderr}"


if __name__ == "__main__":
    helpers.become_subreaper()
    machine = Machine(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    try:
        machine.run()
    finally:
        machine.kill_all()
