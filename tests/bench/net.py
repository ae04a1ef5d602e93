"""The network: what a gateway costs at the start, what passes through it, what it weighs; against a direct veth,
pasta and slirp4netns. Client, gateway and server run in the namespaces of tests/cli/nethosts.py.
"""
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time

from live import loop, series
from others import probe_case, which
from report import FigureRow, Row, Series
from scratch import HERE, Fail

sys.path.insert(0, os.path.join(HERE, "../cli"))
import nethosts  # noqa: E402

MODES = {"limited": ["--network", "limited"], "allowlist": ["--allow-domain", "allowed.test"],
         "full": ["--network", "full"]}
OVER_NONE = {"limited": 3.0, "allowlist": 3.0, "full": 6.0}  # ms
STREAM = 1 << 30
PINGS, REPEAT = 500, 5
CROWD, CROWD_BYTES = 1000, 1 << 20
FIFTY, MEMORY_MB = 50, 3.0
SERVER_PORT = 81  # the world's own servers have 80 and 443


# --- start-up -----------------------------------------------------------------------------------------

def start_rows(scratch, petri, users, who, rounds, timeit, checks):
    cases = []
    for key, u in users.items():
        project = scratch.project(100, u)
        for mode, flags in ({"none": ["--network", "none"]} | MODES).items():
            cases.append(probe_case("petri-net-%s-%s" % (mode, key), [petri, "run", *flags, "--"], "./probe",
                                    u, project))
            cases[-1].held = None
    samples = loop(cases, [timeit(scratch, cases, rounds, 2, 1)], checks)
    ms = series(samples)
    for key in users:
        none = ms["petri-net-none-" + key]
        for mode in MODES:
            got = ms["petri-net-%s-%s" % (mode, key)]
            yield FigureRow("start, %s over none, %s" % (mode, who[key]), got.median - none.median, "ms",
                            OVER_NONE[mode], note="%s against %s" % (got.text(), none.text()))


# --- what passes --------------------------------------------------------------------------------------

class Way:
    """One way from a client to the server: a command line that goes before netload's own."""

    def __init__(self, name, argv, home=None, cwd="/"):
        self.name, self.argv, self.home, self.cwd = name, argv, home, cwd

    def load(self, *words, timeout=120):
        p = subprocess.Popen([*self.argv, *words], cwd=self.cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, start_new_session=True,
                             env=None if not self.home else self.home.user.env() | self.home.env)
        try:
            out, err = p.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            p.communicate()
            raise Fail("%s, %s: no end after %d s" % (self.name, words[0], timeout)) from None
        if p.returncode:
            raise Fail("%s, %s: %s" % (self.name, words[0], (err or out).strip().rpartition("\n")[2][-300:]))
        return [float(x) for x in out.split()]


def serve(scratch, world):
    """The server, in the world; it ends with us."""
    p = subprocess.Popen([*world.enter_world, scratch.path("netload"), "serve", nethosts.ALLOWED,
                          str(SERVER_PORT)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    if p.stdout.readline() != "ready\n":
        raise Fail("netload does not listen")

    def end():
        p.kill()
        p.wait()
    scratch.at_end.append(end)


def petri_way(scratch, world, home, project):
    """A sandbox in the world, with the server's port open."""
    shutil.copy(scratch.path("netload"), project)
    inside = lambda *words: [*world.enter(project), home.petri, *words]
    way = Way("petri", inside("exec", "net", "--", "./netload"), home)
    p = home.run(inside("start", "--name", "net", "--network", "limited", "--allow-domain",
                        "%s:%d" % (nethosts.ALLOWED, SERVER_PORT)), project)
    if p.returncode:
        raise Fail("petri start: " + p.stderr.strip()[-300:])
    return way


def pasta_way(scratch, world):
    as_root = ["--runas", "0"] if os.geteuid() == 0 else []  # else it becomes nobody, who may not
    return Way("pasta", [*world.enter("/"), which("pasta"), "--config-net", *as_root, "--",
                         scratch.path("netload")])


def slirp_way(scratch, world):
    """A namespace of its own, below the world's host."""
    prog = which("slirp4netns")
    hold = subprocess.Popen([*world.enter("/"), "unshare", "--net", "sleep", "100000"], stdin=subprocess.DEVNULL)
    tap = None

    def end():
        for p in (tap, hold):
            if p:
                p.kill()
                p.wait()
    scratch.at_end.append(end)
    for _ in range(200):  # until unshare has become sleep
        with open("/proc/%d/comm" % hold.pid, encoding="ascii") as f:
            if f.read() == "sleep\n":
                break
        time.sleep(0.01)
    r, w = os.pipe()
    tap = subprocess.Popen([*world.enter("/"), prog, "--configure", "--mtu=65520", "--ready-fd=%d" % w,
                            str(hold.pid), "tap0"], pass_fds=[w], stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(w)
    if not os.read(r, 1):
        raise Fail("slirp4netns does not start here")
    os.close(r)
    return Way("slirp4netns", ["nsenter", "-t", str(hold.pid), "--net", "--", scratch.path("netload")])


def ways(scratch, world, home, project):
    """(ways, what could not be set up)"""
    serve(scratch, world)
    found, missing = [Way("direct", [*world.enter("/"), scratch.path("netload")])], []
    found.append(petri_way(scratch, world, home, project))
    for make in (pasta_way, slirp_way):
        try:
            way = make(scratch, world)
            way.load("down", *TARGET, "1000", timeout=20)
            found.append(way)
        except (Fail, OSError) as e:
            missing.append("left out: " + str(e))
    return found, missing


TARGET = (nethosts.ALLOWED, str(SERVER_PORT), nethosts.ALLOWED)


LOADS = {"up": ("1 GiB out", str(STREAM)), "down": ("1 GiB in", str(STREAM)), "ping": ("connect + 1 byte", str(PINGS))}


def sample(way, verb):
    """ms for all of the bytes, or for one connection."""
    got = way.load(verb, *TARGET, LOADS[verb][1])[0]
    return got / 1e3 if verb == "ping" else STREAM / 1e6 / got * 1e3


def pass_rows(found, word, notes):
    """Streams and pings, all ways in turn. A peer that breaks is named and left out of what it broke at."""
    got, broken = {}, set()
    for _ in range(REPEAT):
        for way, verb in ((w, v) for w in found for v in LOADS):
            try:
                if (way.name, verb) not in broken:
                    got.setdefault((way.name, verb), []).append(sample(way, verb))
            except Fail as e:
                if way.name in ("direct", "petri"):
                    raise
                broken.add((way.name, verb))
                notes.append("left out: " + str(e).splitlines()[-1])
    ms = {k: Series(v) for k, v in got.items() if k not in broken}
    for verb, (label, _) in LOADS.items():
        for way in found:
            if way.name != "petri" and (way.name, verb) in ms:
                goal = {"direct": 3.0 if verb == "ping" else 1 / 0.7}.get(way.name, None if verb == "ping" else 1.0)
                yield Row("%s, %s" % (label, word), ms["petri", verb], way.name, ms[way.name, verb], goal)


def crowd_rows(found, word):
    """Lost connections, and how equal the shares are, against what the server itself deals out."""
    by = {w.name: w.load("crowd", *TARGET, str(CROWD), str(CROWD_BYTES)) for w in found if w.name in ("direct", "petri")}
    yield FigureRow("%d connections at once, lost, %s" % (CROWD, word), by["petri"][0], "", 0)
    yield FigureRow("their shares (Jain's index over that of direct), %s" % word, by["petri"][1] / by["direct"][1], "",
                    0.9, at_least=True, note="%.3f against %.3f" % (by["petri"][1], by["direct"][1]))


# --- what it weighs -----------------------------------------------------------------------------------

def gateway_memory(home, name, project):
    """(RSS, PSS) of an idle sandbox's gateway, MB."""
    pid = json.loads(home.do("status", "--json", name, cwd=project))["network"]["gateway_pid"]
    with open("/proc/%d/smaps_rollup" % pid, encoding="ascii") as f:
        kb = dict(x.split(":", 1) for x in f if ":" in x and x.endswith("kB\n"))
    return tuple(int(kb[k].split()[0]) / 1024 for k in ("Rss", "Pss"))


def weight_rows(home, project, word):
    home.do("start", "--name", "idle", "--network", "limited", cwd=project)
    time.sleep(2)
    rss, pss = gateway_memory(home, "idle", project)
    yield FigureRow("idle gateway, RSS, %s" % word, rss, "MB", MEMORY_MB)
    yield FigureRow("idle gateway, PSS, %s" % word, pss, "MB", MEMORY_MB)
    home.do("rm", "-f", "idle")


def fifty_rows(home, project, word):
    took = {"none": [], "limited": []}
    for turn in range(3):
        for mode in took:
            names = ["n%d-%d" % (turn, i) for i in range(FIFTY)]
            t0 = time.monotonic()
            for name in names:
                home.do("start", "--name", name, "--network", mode, cwd=project)
            took[mode].append((time.monotonic() - t0) * 1e3)
            home.do("rm", "-f", *names, timeout=600)
    yield Row("%d sandboxes with gateways, %s" % (FIFTY, word), Series(took["limited"]), "without",
              Series(took["none"]), 2.0)


# --- programs and the machine's own sources -----------------------------------------------------------

APT = ("rm -rf a && mkdir -p a/state/lists/partial a/cache/archives/partial && apt-get -qq -o Dir::State=$PWD/a/state "
       "-o Dir::State::status=/var/lib/dpkg/status -o Dir::Cache=$PWD/a/cache -o APT::Sandbox::User= update")
SOURCES = {"apt-get update": APT, "npm view": "npm view --prefer-online npm version"}


def took(home, argv, cwd):
    t0 = time.monotonic()
    p = home.run(argv, cwd, timeout=180)
    ms = (time.monotonic() - t0) * 1e3
    return ms, None if p.returncode == 0 else (p.stderr or p.stdout).strip()[-200:].replace("\n", " ")


def source_rows(home, project, word, notes):
    """As this machine is configured; a source that the host itself does not reach is left out."""
    home.env |= {k: v for k, v in os.environ.items() if re.search(r"_proxy$|CERT|CA_BUNDLE", k, re.I)}
    for label, script in SOURCES.items():
        sides = {"host": [], "petri": [home.petri, "run", "--network", "limited", "--"]}
        ms, wrong = {k: [] for k in sides}, {}
        for _ in range(4):  # the first one warms caches
            for k, before in sides.items():
                if not wrong:
                    t, bad = took(home, [*before, "sh", "-c", script], project)
                    ms[k].append(t)
                    wrong |= {k: bad} if bad else {}
        if "petri" in wrong:
            raise Fail("%s, %s: %s" % (label, word, wrong["petri"]))
        if wrong:
            notes.append("left out: %s, which fails outside, too" % label)
        else:
            yield Row("%s, %s" % (label, word), Series(ms["petri"][1:]), "host", Series(ms["host"][1:]), 1.5)


# --- all of it ----------------------------------------------------------------------------------------

def rows(scratch, petri, users, homes, who, rounds, timeit, checks):
    """(rows, notes)"""
    out, notes = list(start_rows(scratch, petri, users, who, rounds, timeit, checks)), []
    me, word = homes["self"], who["self"]
    project = scratch.project(100, me.user)
    mode = "root" if os.geteuid() == 0 else "sub" if shutil.which("newuidmap") else "single"
    world = nethosts.World(scratch.path("world"), mode)
    scratch.at_end.append(world.close)
    found, missing = ways(scratch, world, me, project)
    notes += missing
    out += pass_rows(found, word, notes)
    out += crowd_rows(found, word)
    p = me.run([*world.enter(project), me.petri, "rm", "-f", "net"], project)
    if p.returncode:
        raise Fail("petri rm: " + p.stderr.strip()[-300:])
    for key, h in homes.items():
        project = scratch.project(100, h.user)
        if os.geteuid() == 0 or h.user.uid == os.geteuid():
            out += weight_rows(h, project, who[key])
            out += source_rows(h, project, who[key], notes)
        out += fifty_rows(h, project, who[key])
    spread = statistics.median([r.petri.p95 / r.petri.median for r in out if isinstance(r, Row)])
    notes.append("network: 1 GiB a stream, %d times; p95 over median %.2f" % (REPEAT, spread))
    return out, notes
