"""Fixtures of the network tests: the `petri` of a test runs in the world of nethosts.py."""
import json
import re

import pytest

import helpers
from helpers import BIN, WEAK, Process, place, wait_for

NET = "./net"
AT_ONCE = 2500 * helpers.SLOW  # ms: "at once" on a busy machine; what times out takes longer


class Inside(helpers.Petri):
    """petri, started in the world's host."""

    def start(self, *args, env=None, cwd=None, weak=None, sub="run", **kw):
        argv = [WEAK if weak is not None else BIN] + ([sub] if sub else []) + [str(a) for a in args]
        kw.setdefault("stdin", helpers.subprocess.DEVNULL)
        kw.setdefault("stdout", helpers.subprocess.PIPE)
        kw.setdefault("stderr", helpers.subprocess.PIPE)
        p = Process(self.world.enter(cwd or self.project) + argv, env=self._environ(env, weak), **kw)
        self.started.append(p)
        return p

    def probe(self, line, *flags, **kw):
        """petri run FLAGS -- sh -c 'net ...; net ...': the static client's lines."""
        return self.sh(line.replace("net ", NET + " "), *flags, **kw)


@pytest.fixture
def petri(petri, world, probes):
    petri.__class__ = Inside
    petri.world = world
    petri.env["PATH"] = world.programs + petri.env["PATH"]
    for name in ("net", "crowd"):
        place(probes, name, petri.project)
    before = world.interfaces()
    world.mark()
    yield petri
    petri.close()
    wait_for(lambda: world.interfaces() <= before, 20, "an end of the interfaces it made")


def lines(r):
    """What the static client said, without its times."""
    return [re.sub(r" ms=\d+$", "", x) for x in r.out.splitlines()]


def took(r):
    """The times of the static client's lines, ms."""
    return [int(x) for x in re.findall(r" ms=(\d+)$", r.out, re.M)]


def objects(text):
    """JSON lines, or a list."""
    text = text.strip()
    if text.startswith("["):
        return json.loads(text)
    return [json.loads(x) for x in text.splitlines()]


def net_log(life, *args):
    return objects(life("net", "log", "--json", *args).ok().out)


def logged(life, *args, **want):
    """Waits for a line of the log that has these members."""
    def found():
        return [x for x in net_log(life, *args) if all(x.get(k) == v for k, v in want.items())]
    return wait_for(found, what=lambda: f"{want} in {net_log(life, *args)}")[-1]


def gateway(life, *args):
    """The pid of a sandbox's gateway."""
    return wait_for(lambda: life.status(*args).get("network", {}).get("gateway_pid"), what="a gateway")


def counts(life, *args):
    return life.status(*args)["network"]["counts"]


def reached(name, host=None):
    """What the static client says when a server answered."""
    return f"200 OK SERVER {name} PORT 80 HOST {host or name} PATH /{host or name}"
