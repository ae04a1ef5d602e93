"""Many sandboxes of one project at once: how fast they come, what they weigh, what they slow down."""
import json
import statistics
import time

from live import loop, series, start
from report import FigureRow, Row, SameRow
from scratch import Fail

HUNDRED, THOUSAND = 100, 1000
PER_SECOND, MEGABYTES = 150, 1.0
IDLE = 10       # seconds until memory is looked at
REPEAT = 3
SAMPLES = 20    # of ls, exec and fork, with few and with many


def available_mb():
    """The middle of some looks: other programs come and go."""
    looks = []
    for _ in range(5):
        with open("/proc/meminfo", encoding="ascii") as f:
            looks += [int(x.split()[1]) / 1024 for x in f if x.startswith("MemAvailable:")]
        time.sleep(0.1)
    return statistics.median(looks)


def fork(home, project, n):
    """n forks of `many`; (their names, seconds)."""
    t0 = time.monotonic()
    out = home.do("fork", "-n", str(n), "--json", "many", cwd=project, timeout=900)
    took = time.monotonic() - t0
    names = [f["name"] for f in json.loads(out)["forks"]]
    if len(set(names)) != n:
        raise Fail("fork -n %d made %d" % (n, len(set(names))))
    return names, took


def ask_each(home, project, names, errors):
    """Each writes its own name; when all have, each is asked for it, and for what its source had."""
    for verb in ("put", "check"):
        for name in names:
            p = home.run([home.petri, "exec", name, "--", "./probe", verb, "token", name], project)
            if p.returncode:
                errors.append("%s: %s: %s" % (name, verb, (p.stdout + p.stderr).strip()[-200:]))
    for name in names:
        p = home.run([home.petri, "exec", name, "--", "./probe", "check", "of-source", "1"], project)
        if p.returncode:
            errors.append("%s: %s" % (name, (p.stdout + p.stderr).strip()[-200:]))


def remove(home, names):
    for i in range(0, len(names), 100):
        home.do("rm", "-f", *names[i:i + 100], timeout=600)


def hundred(home, project, word, errors):
    rates, weights = [], []
    for _ in range(REPEAT):
        before = available_mb()
        names, took = fork(home, project, HUNDRED)
        rates.append(HUNDRED / took)
        ask_each(home, project, names, errors)
        time.sleep(IDLE)
        weights.append((before - available_mb()) / HUNDRED)
        remove(home, names)
        time.sleep(2)
    yield FigureRow("fork -n %d, %s" % (HUNDRED, word), statistics.median(rates), "per second",
                    PER_SECOND, at_least=True)
    yield FigureRow("fork -n %d, memory each, %s" % (HUNDRED, word), statistics.median(weights),
                    "MB", MEGABYTES)


def everyday(home, project):
    """What must not get slower."""
    put = [home.petri, "exec", "many", "--", "./probe", "put", "token", "@A@"]
    check = [home.petri, "exec", "one-@A@", "--", "./probe", "check", "token", "@A@"]
    return [home.case("petri-ls", ["ls"], project),
            home.case("petri-exec", ["exec", "-e", "PROBE=@E@", "many", "--", "./probe", "echo",
                                     "@A@", "@S@"], project, random=True),
            home.case("petri-fork", ["fork", "--name", "one-@A@", "many"], project, before=[put],
                      after=[check, [home.petri, "rm", "-f", "one-@A@"]])]


def thousand(scratch, home, project, word, timeit, checks):
    cases = everyday(home, project)

    def sample():
        return series(loop(cases, [timeit(scratch, cases, SAMPLES, 2, 1)], checks))

    few = sample()
    before = available_mb()
    names, took = fork(home, project, THOUSAND)
    many = sample()
    yield FigureRow("fork -n %d, %s" % (THOUSAND, word), THOUSAND / took, "per second")
    ask_each(home, project, names, checks.errors)
    time.sleep(IDLE)
    yield FigureRow("fork -n %d, memory each, %s" % (THOUSAND, word),
                    (before - available_mb()) / THOUSAND, "MB", MEGABYTES)
    for verb in ("exec", "fork"):
        yield SameRow("%s, %d running, %s" % (verb, THOUSAND, word), many["petri-" + verb],
                      "1 running", few["petri-" + verb])
    yield Row("ls, %d running, %s" % (THOUSAND, word), many["petri-ls"], "1 running",
              few["petri-ls"])
    remove(home, names)


def rows(scratch, homes, who, full, timeit, checks):
    out, notes = [], []
    for key, home in homes.items():
        project = scratch.project(100, home.user)
        start(home, "many", project)
        home.do("exec", "many", "--", "./probe", "put", "of-source", "1", cwd=project)
        out += hundred(home, project, who[key], checks.errors)
        if full:
            try:
                out += thousand(scratch, home, project, who[key], timeit, checks)
            except Fail as e:
                text = "%d at once, %s: %s" % (THOUSAND, who[key], e)
                # a limit of the kernel that petri names is a result
                (notes if "as the kernel allows" in text else checks.errors).append(text)
        home.remove_all()
    return out, notes
