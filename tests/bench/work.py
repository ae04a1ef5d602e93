"""Work inside a sandbox against the same work on the host: a C build and `git status`."""
import json
import os

from report import Row, Series
from scratch import Fail

BUILD_FILES = 40
GIT_RUNS = 5


def spec(name, argv, cwd, path="/usr/bin:/bin"):
    lines = ["case " + name, "cwd " + cwd, "env PATH=" + path, "env HOME=/nonexistent"]
    return "\n".join(lines + ["arg " + a for a in argv]) + "\n"


def samples(user, argv, cwd):
    """Runs a timeit somewhere; returns wall and CPU ms of its samples after the warm-up."""
    p = user.run(argv, cwd)
    if p.returncode:
        raise Fail("%s: exit %d: %s" % (" ".join(argv[:4]), p.returncode, p.stderr.strip()[-300:]))
    got = [json.loads(line) for line in p.stdout.splitlines()]
    bad = [s for s in got if s["rc"]]
    if bad:
        raise Fail("%s: exit %d: %s" % (bad[0]["case"], bad[0]["rc"], bad[0]["err"].strip()[-300:]))
    return [(s["ms"], s["user_ms"] + s["sys_ms"]) for s in got if s["round"] >= 0]


def in_turn(places, turns):
    """[(name, function)] -> name -> (wall, CPU), each place once per turn."""
    found = {name: [] for name, _ in places}
    for _ in range(turns):
        for name, f in places:
            found[name] += f()
    return {k: (Series([x[0] for x in v]), Series([x[1] for x in v])) for k, v in found.items()}


def compare(case, got, goal):
    """One row per kind of user. On a busy machine the ratio of CPU times is the steadier one."""
    host, host_cpu = got["host"]
    for who in ("user", "root"):
        if who in got:
            wall, cpu = got[who]
            yield Row("%s, %s" % (case, who), wall, "host", host, goal, note="CPU time x %.2f" % (
                cpu.median / host_cpu.median))


def places_for(petri, users, top, timer):
    """The host, and a sandbox for each kind of user, all on the same files."""
    owner = users.get("user", users["self"])
    cmd = ["sh", "-c", "exec ./timeit %s <spec" % timer]
    inside = [petri, "run", "--network", "none", "--", *cmd]
    places = [("host", lambda: samples(owner, cmd, top)),
              ("user", lambda: samples(owner, inside, top))]
    if users["self"].uid == 0:
        places.append(("root", lambda: samples(users["self"], inside, top)))
    return places


def write_spec(top, owner, text):
    path = os.path.join(top, "spec")
    with open(path, "w", encoding="ascii") as f:
        f.write(text)
    if owner.uid != os.geteuid():
        os.chown(path, owner.uid, owner.gid)


def build_rows(scratch, petri, users, rounds):
    owner = users.get("user", users["self"])
    top = scratch.c_project("build", BUILD_FILES, owner)
    write_spec(top, owner, spec("build", ["/usr/bin/make", "-s", "clean", "all"], top))
    got = in_turn(places_for(petri, users, top, "-n 1 -w 0 -g 0"), max(3, rounds // 12))
    return list(compare("C build, %d files" % BUILD_FILES, got, 1.1))


def git_rows(scratch, petri, users, rounds, files, goal):
    owner = users.get("user", users["self"])
    top = scratch.project(files, owner)
    write_spec(top, owner, spec("git", ["/usr/bin/git", "status", "--porcelain"], top))
    scratch.git(top, owner)
    timer = "-n %d -w 1 -g 5" % GIT_RUNS
    got = in_turn(places_for(petri, users, top, timer), max(2, rounds // 25))
    return list(compare("git status, second run, {:,} files".format(files), got, goal))


def rows(scratch, petri, users, rounds):
    return (build_rows(scratch, petri, users, rounds)
            + git_rows(scratch, petri, users, rounds, 10000, 1.1)
            + git_rows(scratch, petri, users, rounds, 100000, 1.3))
