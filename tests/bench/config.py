"""What configuration costs: reading and merging five files at a start, and a file of 1 MB."""
import json
import os
import statistics

from live import loop, series
from others import Case
from report import FigureRow
from scratch import Fail, chown_tree, put

FIVE_MS, BIG_MS, BIG_MB = 0.3, 20.0, 16.0  # goals
TIMES = 4          # so many samples more than of others: the difference is small against the start's own spread
BIG = 1 << 20

COMMON = {"resources": {"memory": "2G", "cpus": 2.0, "pids": 256}, "network": {"policy": "none", "deny": ["a.example"]},
          "bypass_tools": [], "keep_alive": True, "env": {"STAGE": "bench"}}
AGENTS = {name: {"sandbox": {"resources": {"memory": "1G"}, "env": {"AGENT": name}}}
          for name in ("code", "explore", "review")}
MODELS = {"provider": {"p%d" % i: {"models": {"m%d" % k: {"name": "model", "limit": k} for k in range(10)}}
                       for i in range(10)}}


def commented(text):
    return "// of the benchmark\n" + text.replace('"resources"', '/* limits */ "resources"')


def five_files(home, project):
    """Three of the user's, two of the project's, as people have them: nothing in them changes the sandbox."""
    files = {os.path.join(home, "wonopcode/wonopcode.json"): {"sandbox": COMMON, "agent": AGENTS} | MODELS,
             os.path.join(home, "wonopcode/config.json"): {"sandbox": COMMON} | MODELS,
             os.path.join(home, "petri/config.json"): {"sandbox": COMMON, "agent": AGENTS},
             os.path.join(project, "wonopcode.json"): {"sandbox": COMMON, "agent": AGENTS} | MODELS,
             os.path.join(project, "petri.json"): {"sandbox": COMMON, "agent": AGENTS}}
    for path, value in files.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        put(path, commented(json.dumps(value, indent=2)))
    return len(files)


def small_project(scratch, name):
    top = scratch.path(name)
    os.makedirs(os.path.join(top, "home"))
    os.makedirs(os.path.join(top, "project"))
    with open(scratch.path("probe"), "rb") as src, open(os.path.join(top, "project/probe"), "wb") as dst:
        dst.write(src.read())
    os.chmod(dst.name, 0o755)
    return top


def more_of(samples, with_it, without):
    """The median of what a case costs more than another in the same round, ms."""
    before = {s["round"]: s["ms"] for s in samples[without.name]}
    return statistics.median(s["ms"] - before[s["round"]] for s in samples[with_it.name])


def five_rows(scratch, petri, key, user, word, rounds, timeit, checks):
    """The start itself, and a command that does nothing but read configuration: its own spread is smaller."""
    cases = []
    for name in ("five", "none"):
        top = small_project(scratch, "config-%s-%s" % (name, key))
        if name == "five":
            five_files(os.path.join(top, "home"), os.path.join(top, "project"))
        chown_tree(top, user)
        for what, argv in (("run", ["run", "-q", "--network", "none", "--", "./probe"]),
                           ("config get", ["config", "get", "enabled"])):
            cases.append(Case("config-%s-%s-%s" % (name, what.replace(" ", "-"), key), [petri, *argv], user,
                              os.path.join(top, "project")))
            cases[-1].env["XDG_CONFIG_HOME"] = os.path.join(top, "home")
    p = user.run(["env", "XDG_CONFIG_HOME=" + cases[0].env["XDG_CONFIG_HOME"], petri, "config", "check"], cases[0].cwd)
    if p.returncode or p.stdout.count("ok ") != 5:
        raise Fail("five files: " + (p.stderr or p.stdout).strip()[-300:])
    samples = loop(cases, [timeit(scratch, cases, rounds * TIMES, 2, 1)], checks)
    ms = series(samples)
    for k, what in enumerate(("run", "config get")):
        five, none = cases[k], cases[k + 2]
        yield FigureRow("five configuration files over none, petri %s, %s" % (what, word), more_of(samples, five, none),
                        "ms", FIVE_MS, note="%s against %s" % (ms[five.name].text(), ms[none.name].text()))


def big_text():
    """Values that are all read and judged, 1 MB of them."""
    one = {"sandbox": {"resources": {"memory": "1G", "cpus": 1.5, "pids": 100}, "mounts": {"hide": [".env", "*.pem"]},
                       "network": {"policy": "allowlist", "allow": ["a.example", "*.b.example:443"]}}}
    line = json.dumps(one)
    n = BIG // (len(line) + 20)
    return '{"agent": {\n' + ",\n".join('"agent%06d": %s' % (i, line) for i in range(n)) + "\n}}\n"


def big_rows(scratch, petri, user, word, rounds, timeit, checks):
    top = scratch.path("config-big")
    os.mkdir(top)
    put(os.path.join(top, "big"), big_text())
    put(os.path.join(top, "empty"), "{}\n")
    cases = [Case("config-" + name, [petri, "config", "check", name], user, top) for name in ("big", "empty")]
    samples = loop(cases, [timeit(scratch, cases, rounds, 2, 1)], checks)
    rss = [max(s["rss_kb"] for s in samples[c.name]) for c in cases]
    note = "petri config check of %.2f MB against that of an empty object" % (
        os.path.getsize(os.path.join(top, "big")) / BIG)
    return [FigureRow("a configuration of 1 MB, " + word, more_of(samples, *cases), "ms", BIG_MS, note=note),
            FigureRow("a configuration of 1 MB, memory, " + word,
                      (rss[0] - rss[1]) / 1024, "MB", BIG_MB, note=note)]


def rows(scratch, petri, users, who, rounds, timeit, checks):
    done = []
    for key, u in users.items():
        done += five_rows(scratch, petri, key, u, who[key], rounds, timeit, checks)
    return done + big_rows(scratch, petri, users["self"], who["self"], rounds, timeit, checks)
