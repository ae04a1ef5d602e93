"""Figures, goals, the table and the JSON file."""
import json
import os
import platform
import statistics
import subprocess


def quantile(values, q):
    v = sorted(values)
    return v[min(len(v) - 1, int(q * len(v)))]


class Series:
    """The samples of one case, in ms."""

    def __init__(self, values):
        self.values = values
        self.median = statistics.median(values)
        self.p95 = quantile(values, 0.95)
        self.quartiles = (quantile(values, 0.25), quantile(values, 0.75))

    def text(self):
        return "%s / %s" % (digits(self.median), digits(self.p95))


def digits(ms):
    return "%.2f" % ms if ms < 10 else "%.1f" % ms if ms < 100 else "%.0f" % ms


REACHED = {None: "-", True: "yes", False: "**no**"}


class Row:
    """One line: petri (or inside) against a peer (or the host), and whether the goal is reached."""

    def __init__(self, case, petri, peer_name, peer, goal=None, note="", cgroup=None):
        self.case, self.petri, self.peer_name, self.peer = case, petri, peer_name, peer
        self.goal, self.note, self.cgroup = goal, note, cgroup
        self.ratio = petri.median / peer.median
        self.goal_text = "-" if goal is None else "<= %s" % fraction(goal)
        self.reached = None if goal is None else self.ratio <= goal

    def cells(self):
        return [self.case, self.petri.text(), self.peer_name, self.peer.text(),
                "%.3f" % self.ratio if self.ratio < 0.2 else "%.2f" % self.ratio, self.goal_text,
                REACHED[self.reached],
                digits(self.cgroup) if self.cgroup is not None else "-"]

    def data(self):
        return {"case": self.case, "peer": self.peer_name, "ratio": round(self.ratio, 4),
                "goal": self.goal_text, "reached": self.reached, "note": self.note,
                "petri_median_ms": self.petri.median, "petri_p95_ms": self.petri.p95,
                "peer_median_ms": self.peer.median, "peer_p95_ms": self.peer.p95}


class SameRow(Row):
    """Goal: the same within noise, that is, medians within 10% or overlapping quartiles."""

    def __init__(self, case, big, small_name, small):
        super().__init__(case, big, small_name, small)
        a, b = big.quartiles, small.quartiles
        self.goal_text = "same"
        self.reached = abs(self.ratio - 1) <= 0.1 or (a[0] <= b[1] and b[0] <= a[1])


class FigureRow:
    """A figure without a peer: so many per second, so much memory each."""

    def __init__(self, case, value, unit, goal=None, at_least=False, note=""):
        self.case, self.value, self.unit, self.note = case, value, unit, note
        self.goal_text = "-" if goal is None else "%s %g %s" % (">=" if at_least else "<=", goal,
                                                                unit)
        self.reached = None if goal is None else value >= goal if at_least else value <= goal

    def cells(self):
        return [self.case, "%s %s" % (digits(self.value), self.unit), "-", "-", "-",
                self.goal_text, REACHED[self.reached], "-"]

    def data(self):
        return {"case": self.case, "value": round(self.value, 4), "unit": self.unit,
                "goal": self.goal_text, "reached": self.reached, "note": self.note}


def fraction(goal):
    return "1/%d" % round(1 / goal) if goal < 0.5 else "%.2f" % goal


HEAD = ["case", "petri, median / p95 ms", "against", "median / p95 ms", "ratio", "goal", "reached",
        "cgroup ms"]


def table(rows):
    lines = [HEAD] + [r.cells() for r in rows]
    width = [max(len(x[i]) for x in lines) for i in range(len(HEAD))]
    out = ["| " + " | ".join(c.ljust(w) for c, w in zip(line, width)) + " |" for line in lines]
    out.insert(1, "|" + "|".join("-" * (w + 2) for w in width) + "|")
    return "\n".join(out)


def first_line(*argv):
    try:
        p = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           check=False)
        return p.stdout.strip().split("\n")[0]
    except OSError:
        return None


def machine():
    cpu = "unknown"
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        for line in f:
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    with open("/etc/os-release", encoding="utf-8") as f:
        os_name = dict(x.rstrip().split("=", 1) for x in f if "=" in x)["PRETTY_NAME"].strip('"')
    fs = first_line("findmnt", "-no", "FSTYPE", "-T", "/var/tmp")
    virt = first_line("systemd-detect-virt", "--vm")
    return {"cpu": cpu, "cores": os.cpu_count(), "kernel": platform.release(), "os": os_name,
            "filesystem": fs, "virtual": virt, "load": os.getloadavg()[0], "load_end": None,
            "cgroups": "v1" if os.path.isdir("/sys/fs/cgroup/pids") else "v2"}


def machine_text(m):
    return ("%(os)s, kernel %(kernel)s, %(cores)d cores (%(cpu)s, %(virtual)s), %(filesystem)s, "
            "cgroup %(cgroups)s, load %(load).1f at the start, %(load_end).1f at the end" % m)


def save(path, data):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(data, f, indent=1)
        f.write("\n")


def into_doc(path, text):
    """Replaces what stands between the two marks of a document."""
    begin, end = "<!-- bench -->", "<!-- /bench -->"
    with open(path, encoding="utf-8") as f:
        doc = f.read()
    head, rest = doc.split(begin, 1)
    tail = rest.split(end, 1)[1]
    with open(path, "w", encoding="utf-8") as f:
        f.write(head + begin + "\n" + text + "\n" + end + tail)
