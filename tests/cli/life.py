"""Sandboxes that live, for the tests of their life: petri's commands, and what a store may hold when none is left."""
import contextlib
import os

import pytest

from helpers import Leaks, descendants, listing, wait_for

# Commands that take the name of a sandbox, as words before and after it.
NAMING = [("start",), ("stop",), ("restart",), ("refresh",), ("status",), ("inspect",), ("rm",), ("rm", "-f"),
          ("fork",), ("snapshot",), ("snapshot", "ls"), ("logs",), ("jobs",), ("diff",)]


class Life:
    """The sandboxes of one test's project."""

    def __init__(self, petri):
        self.petri = petri
        self.project = petri.project

    def __call__(self, sub, *args, **kw):
        """petri SUB ARGS..., to its end."""
        return self.petri.run(*args, sub=sub, **kw)

    def begin(self, sub, *args, **kw):
        return self.petri.start(*args, sub=sub, **kw)

    def start(self, *args, **kw):
        return self("start", "--json", *args, **kw).ok().json

    def sh(self, script, *flags, box=None, **kw):
        """petri exec [BOX] -- sh -c SCRIPT"""
        return self("exec", *flags, *([box] if box else []), "--", "sh", "-c", script, **kw)

    def out(self, script, *flags, **kw):
        return self.sh(script, *flags, **kw).ok().out

    def status(self, *args):
        return self("status", "--json", *args).ok().json

    def ls(self):
        return {s["name"]: s for s in self("ls", "--json").ok().json}

    def fork(self, *args, **kw):
        return [f["name"] for f in self("fork", "--json", *args, **kw).ok().json["forks"]]

    def snap(self, *args, **kw):
        return self("snapshot", *args, **kw).ok().out.strip()

    def keeper(self, *args):
        return self.status(*args)["keeper_pid"]

    def launcher(self, *args):
        """The keeper's only child that stays, but for the gateway."""
        pid = self.keeper(*args)
        return wait_for(lambda: [p for p, name in descendants(pid).items() if ppid_of(p) == pid and
                                 not name.startswith("petri-gateway")], what="the launcher")[0]

    def stopped(self, name=None):
        """Waits until a sandbox is stopped."""
        wait_for(lambda: self.status(*([name] if name else []))["state"] == "stopped", what="its end")

    def clear(self):
        """Removes all of them; one whose maker was killed may still appear."""
        said = None

        def none_left():
            nonlocal said
            ids = self("ls", "-q").ok().out.split()
            said = self("rm", "-f", *ids) if ids else self("prune", "-f")
            return not self.rest()
        wait_for(none_left, what=lambda: f"an empty store ({said}; {self.rest()})")

    def whole(self):
        """petri fsck finds nothing but what a sweep would take."""
        r = self("fsck", "--json")
        assert not [p for p in r.json["problems"] if not p["garbage"]], r

    def rest(self):
        return store_rest(self.petri.store)


def ppid_of(pid):
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/stat") as f:
            return int(f.read().rsplit(") ", 1)[1].split()[1])
    return None


def store_rest(store):
    """What a store without sandboxes must not hold."""
    left = []
    for part in ("sandboxes", "changes", "names", "projects", "run"):
        left += [f"{part}/{n}" for n in listing(os.path.join(store, part))]
    left += [n for n in os.listdir(store) if "tmp" in n] if os.path.isdir(store) else []
    return sorted(set(left) - {"run/mnt"})


@pytest.fixture
def life(petri):
    """The sandboxes of a test; when it is over all of them go, and nothing is left of them."""
    made = Life(petri)
    leaks = Leaks(deep=True)
    yield made
    petri.close()
    made.whole()
    made.clear()
    left = leaks.left()
    assert not left, f"left behind: {left}"


def one_line(r, *words):
    """An error as it should be: one line of petri's own that names what to do."""
    assert r.rc != 0 and not r.err, r
    assert r.talk.count("\n") == 1 and "nobody gave" not in r.talk, r
    for w in words:
        assert w in r.talk, (w, r)
    return r
