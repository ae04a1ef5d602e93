"""Sandboxes that stay: exec, files, fork and snapshot against docker, podman, the host and a run."""
import json
import os
import subprocess

import others
import verify
from others import Case
from report import Row, SameRow, Series
from scratch import Fail

GB = 1024  # MB of changes
TURNS = 4  # sources of forks and snapshots are made anew so often: their chains stay short


class Home:
    """A store of its own for one user, and what is done to the sandboxes in it."""

    def __init__(self, scratch, petri, user):
        self.petri, self.user, self.dir = petri, user, os.path.join(scratch.store(),
                                                                        "home-" + user.name)
        os.mkdir(self.dir, 0o700)
        os.chown(self.dir, user.uid, user.gid)
        self.env = {"PETRI_HOME": self.dir, "PETRI_PROGRAM": petri}
        scratch.at_end.append(self.close)

    def run(self, argv, cwd="/", timeout=300, **kw):
        ids = {} if self.user.uid == os.geteuid() else {
            "user": self.user.uid, "group": self.user.gid, "extra_groups": []}
        return subprocess.run(argv, cwd=cwd, env=self.user.env() | self.env, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=timeout, check=False, **ids, **kw)

    def do(self, *words, cwd="/", timeout=300):
        """One command of petri; what it printed."""
        p = self.run([self.petri, *words], cwd, timeout)
        if p.returncode:
            raise Fail("petri %s: exit %d: %s" % (" ".join(words[:4]), p.returncode,
                                                  (p.stderr or p.stdout).strip()[-300:]))
        return p.stdout

    def case(self, name, words, cwd, **kw):
        c = Case(name, [self.petri, *words], self.user, cwd)
        c.env = dict(self.env)
        for k, v in kw.items():
            setattr(c, k, v)
        return c

    def names(self):
        return [x["id"] for x in json.loads(self.do("ls", "--json"))]

    def remove_all(self):
        names = self.names()
        for i in range(0, len(names), 100):
            self.do("rm", "-f", *names[i:i + 100], timeout=600)

    def close(self):
        try:
            self.remove_all()
        except (Fail, OSError, ValueError, subprocess.TimeoutExpired) as e:
            print("bench: sandboxes are left in %s: %s" % (self.dir, e))


def start(home, name, project):
    home.do("start", "--network", "none", "--name", name, cwd=project)
    out = home.do("exec", name, "--", "./probe", cwd=project)
    off = [w for w in verify.WALLS if w not in verify.walls(out)]
    if off:
        raise Fail("an exec in '%s' lacks %s" % (name, ", ".join(off)))


# --- exec -------------------------------------------------------------------------------------------

def exec_cases(scratch, homes):
    """Every exec case, and the peers that can't be measured with the reason."""
    cases, missing = [], []
    me = homes["self"].user
    for key, h in homes.items():
        project = scratch.project(100, h.user)
        start(h, "exec", project)
        cases.append(h.case("petri-exec-" + key, ["exec", "-e", "PROBE=@E@", "exec", "--",
                                                  "./probe", "echo", "@A@", "@S@"],
                            project, random=True))
    project = scratch.project(100, me)
    host = Case("host", [os.path.join(project, "probe"), "echo", "@A@", "@S@"], me, project)
    host.random, host.env = True, {"PROBE": "@E@"}
    cases.append(host)
    if me.uid == 0:
        for make in (others.podman_exec, others.docker_exec):
            try:
                cases.append(make(scratch, me))
            except Fail as e:
                missing.append(str(e))
    return cases, missing


def exec_rows(ms, who):
    for key, word in who.items():
        petri = ms.get("petri-exec-" + key)
        if not petri:
            continue
        peers = [("host", 4.0)]
        if key == "self":
            peers += [("docker-exec", 1 / 20), ("podman-exec", 1 / 10)]
        for peer, goal in peers:
            if peer in ms:
                yield Row("exec, " + word, petri, peer.replace("-", " "), ms[peer], goal)


def client_rows(scratch, homes, who, rounds, errors):
    """From one process that stays: the library's calls."""
    for key, h in homes.items():
        project = scratch.project(100, h.user)
        lib = os.path.join(os.path.dirname(h.petri), "libpetri.so.0")
        if not os.path.exists(lib):
            return
        h.do("start", "--network", "none", cwd=project)
        p = h.run([scratch.build_client(lib), project, str(rounds), "5"], project, 600)
        if p.returncode:
            raise Fail(p.stderr.strip()[-300:])
        got = {}
        for s in map(json.loads, p.stdout.splitlines()):
            if s["rc"]:
                errors.append("client, %s: %s" % (s["case"], s["err"]))
            if s["round"] >= 0:
                got.setdefault(s["case"], []).append(s["ms"])
        ms = {k: Series(v) for k, v in got.items()}
        yield Row("exec from a client, " + who[key], ms["exec"], "host fork+exec", ms["host"], 1.5)
        yield Row("read of 4 KiB from a client, " + who[key], ms["read"], "exec", ms["exec"],
                  1 / 10)
        h.do("rm", "-f", json.loads(h.do("inspect", "--json", cwd=project))["id"], cwd=project)


# --- fork and snapshot ------------------------------------------------------------------------------

def sources(scratch, homes, full):
    """(key, home, project, MB of changes); every one is forked and snapshotted."""
    me = homes["self"]
    found = [("100-" + key, h, scratch.project(100, h.user), 0) for key, h in homes.items()]
    found.append(("100000-self", me, scratch.project(100000, me.user), 0))
    if full:
        found.append(("gb-self", me, scratch.project(100, me.user), GB))
    return found


def fork_cases(found):
    for key, h, project, _ in found:
        put = lambda name: [h.petri, "exec", name, "--", "./probe", "put", "token", "@A@"]
        check = lambda name: [h.petri, "exec", name, "--", "./probe", "check", "token", "@A@"]
        src, new, snap = "fork-" + key, "new-@A@", "snap-" + key
        yield h.case("petri-fork-" + key, ["fork", "--name", new, src], project, before=[put(src)],
                     after=[check(new), check(src), [h.petri, "rm", "-f", new]])
        yield h.case("petri-snap-" + key, ["snapshot", snap], project, before=[put(snap)],
                     after=[check(snap)])
        if key.startswith("100-"):
            yield h.case("petri-run-" + key[4:], ["run", "-q", "--network", "none", "--", "true"],
                         project)


def make_sources(found):
    for key, h, project, mb in found:
        for name in ("fork-" + key, "snap-" + key):
            if name in h.do("ls"):
                h.do("rm", "-f", name)
            start(h, name, project)
            if mb:
                h.do("exec", name, "--", "./probe", "fill", ".", str(mb), cwd=project, timeout=600)
    os.sync()


def fork_rows(ms, who):
    for key, word in who.items():
        for verb, label in (("fork", "fork, idle"), ("snap", "snapshot")):
            case = "petri-%s-100-%s" % (verb, key)
            if case not in ms:
                continue
            yield Row("%s, %s" % (label, word), ms[case], "petri run", ms["petri-run-" + key], 2.0)
            for other, text in (("100000", "100,000 files"), ("gb", "1 GB of changes")):
                big = "petri-%s-%s-%s" % (verb, other, key)
                if big in ms:
                    yield SameRow("%s, %s, %s" % (label, text, word), ms[big], "100 files",
                                  ms[case])


# --- all of it ---------------------------------------------------------------------------------------

def rows(scratch, homes, who, args, timeit, drop_broken, checks):
    """(rows, notes, samples). The loops are those of the start-up cases."""
    execs, missing = exec_cases(scratch, homes)
    execs, broken = drop_broken(scratch, execs)
    notes = ["left out: " + m for m in missing + broken]
    samples = loop(execs, [timeit(scratch, execs, args.rounds, 2, 1)], checks)
    out = list(exec_rows(series(samples), who))
    out += client_rows(scratch, homes, who, args.rounds, checks.errors)

    found = sources(scratch, homes, args.full)
    forks = list(fork_cases(found))

    def turns():
        for turn in range(TURNS):
            make_sources(found)
            n = args.rounds * (turn + 1) // TURNS - args.rounds * turn // TURNS
            yield timeit(scratch, forks, n, 1, turn + 1)
    more = loop(forks, turns(), checks)
    out += fork_rows(series(more), who)
    for h in homes.values():
        h.remove_all()
    return out, notes, samples | more


def loop(cases, parts, checks):
    samples, by_name = {}, {c.name: c for c in cases}
    for part in parts:
        for s in part:
            checks.sample(by_name[s["case"]], s)
            if s["round"] >= 0:
                samples.setdefault(s["case"], []).append(s)
    return samples


def series(samples):
    return {k: Series([s["ms"] for s in v]) for k, v in samples.items()}
