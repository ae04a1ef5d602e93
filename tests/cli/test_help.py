"""Help, man pages, completion and mistakes on the command line: all from the descriptors."""
import json
import os
import pty
import re
import shutil
import subprocess

import pytest

from helpers import BIN
from test_config import schema_keys

SHELLS = ["bash", "zsh", "fish"]


def petri(*args, **kw):
    kw.setdefault("env", {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "TERM": "xterm"})
    return subprocess.run([BIN, *args], capture_output=True, text=True, timeout=120, check=False, **kw)


def commands():
    """The names in the overview."""
    return re.findall(r"^  ([a-z]+) {2,}\S", petri("--help").stdout, re.M)


def subcommands(name):
    part = petri(name, "--help").stdout.partition("\nCommands\n")[2].partition("\n\n")[0]
    return re.findall(r"^  ([a-z]+) ", part, re.M)


def options(*path):
    part = petri(*path, "--help").stdout.partition("\nOptions\n")[2]
    return set(re.findall(r"^  (?:-\w, |    )--([a-z-]+)", part, re.M))


def test_overview():
    p = petri("--help")
    assert p.returncode == 0 and p.stderr == ""
    assert p.stdout.startswith("petri: copies of your project")
    assert {"run", "image", "doctor", "help", "completion", "version"} <= set(commands())
    assert p.stdout == petri().stdout == petri("-h").stdout == petri("help").stdout
    assert max(map(len, p.stdout.splitlines())) <= 80
    for line in re.findall(r"^  petri (\w+)", p.stdout, re.M):
        assert line in commands(), f"the overview shows a command that is not there: {line}"


def test_version():
    p = petri("--version")
    assert p.returncode == 0 and re.fullmatch(r"petri \d+\.\d+\.\d+\n", p.stdout) and not p.stderr
    assert petri("-V").stdout == petri("version").stdout == p.stdout
    assert json.loads(petri("version", "--json").stdout)["version"] == p.stdout.split()[1]


def test_version_reads_nothing():
    """No file is opened, no memory asked for before the answer."""
    strace = shutil.which("strace")
    if not strace:
        return
    p = subprocess.run([strace, "-e", "trace=openat,open,write", BIN, "--version"],
                       capture_output=True, text=True, timeout=120, check=False)
    calls = [x for x in p.stderr.splitlines() if not x.startswith("+++")]
    if "ld.so" not in p.stderr:  # statically linked
        assert [c.split("(")[0] for c in calls] == ["write"], p.stderr


@pytest.mark.parametrize("name", commands())
def test_help_of_each(name):
    p = petri(name, "--help")
    assert p.returncode == 0 and p.stderr == ""
    assert p.stdout.startswith(f"petri {name}: ") and f"\nUsage  petri {name}" in p.stdout
    assert petri("help", name).stdout == p.stdout
    for sub in subcommands(name):
        q = petri(name, sub, "--help")
        assert q.returncode == 0 and q.stdout.startswith(f"petri {name} {sub}: ")
        assert petri("help", name, sub).stdout == q.stdout
    assert "\033" not in p.stdout


def on_a_terminal(*args, **env):
    master, slave = pty.openpty()
    subprocess.run([BIN, *args], stdin=slave, stdout=slave, stderr=slave, timeout=120, check=False,
                   env={"TERM": "xterm", **env})
    os.close(slave)
    out = b""
    try:
        while chunk := os.read(master, 65536):
            out += chunk
    except OSError:
        pass
    os.close(master)
    return out


def test_colour():
    assert b"\033[1m" in on_a_terminal("--help")
    assert b"\033[1m" in on_a_terminal("--help", NO_COLOR="")
    assert b"\033" not in on_a_terminal("--help", NO_COLOR="1")
    assert b"\033" not in on_a_terminal("--help", TERM="dumb")


# --- mistakes --------------------------------------------------------------------------------

@pytest.mark.parametrize("word,hints", [
    ("rnu", ["run"]), ("docter", ["doctor"]), ("verison", ["version"]), ("imag", ["image"]),
    ("images", None), ("xyzzyxyzzy", []), ("", []), ("--verison", ["version"]), ("\033[31m", []),
])
def test_unknown_command(word, hints):
    p = petri(word)
    if hints is None:
        assert "no petri command" not in p.stderr  # an alias
        return
    assert p.returncode == 2 and p.stdout == ""
    assert len(p.stderr.splitlines()) == 1 and p.stderr.startswith("petri: ")
    assert "petri --help" in p.stderr and "\033" not in p.stderr
    assert re.findall(r"mean '(\w+)'", p.stderr) == hints


def test_two_names():
    """At most two names, the nearest first."""
    p = petri("dun")
    near = re.search(r"\(did you mean (.*)\?\)", p.stderr)
    assert near and near.group(1).split(" or ")[0] == "'run'"
    assert near.group(1).count("'") <= 4


@pytest.mark.parametrize("args,rc,words", [
    (["run", "--memroy", "1G", "true"], 125, ["--memroy", "--memory", "petri run --help"]),
    (["run", "--mem", "1G", "true"], 125, ["unknown option '--mem'"]),  # no abbreviations
    (["run", "-Z", "true"], 125, ["'-Z'"]),
    (["run", "--memory"], 125, ["--memory", "needs a value"]),
    (["run", "-m"], 125, ["-m", "needs a value"]),
    (["run", "--read-only=yes", "true"], 125, ["--read-only", "takes no value", "yes"]),
    (["version", "--jsno"], 2, ["--json"]),
    (["version", "more"], 2, ["more"]),
    (["image", "lss"], 2, ["lss", "'ls'"]),
    (["help", "nothing"], 2, ["nothing"]),
    (["help", "imag"], 2, ["image"]),
    (["help", "image", "lz"], 2, ["lz", "ls"]),
    (["help", "--man", "nothing"], 2, ["nothing"]),
    (["help", "--man-all", "/proc/nothing"], 1, ["/proc/nothing"]),
    (["completion"], 2, ["bash, zsh or fish"]),
    (["completion", "tcsh"], 2, ["tcsh"]),
    (["completion", "bash", "zsh"], 2, ["one shell"]),
])
def test_mistakes(args, rc, words):
    p = petri(*args)
    assert p.returncode == rc and p.stdout == "", p
    assert len(p.stderr.splitlines()) == 1 and p.stderr.startswith("petri: ")
    for w in words:
        assert w in p.stderr, p.stderr


def test_full_disk():
    """An answer that did not arrive is a failure."""
    for args in (["--version"], ["--help"], ["doctor"], ["completion", "bash"]):
        with open("/dev/full", "w") as full:
            p = subprocess.run([BIN, *args], stdout=full, stderr=subprocess.PIPE, text=True,
                               timeout=120, check=False)
        assert p.returncode == 1, args


# --- man pages -------------------------------------------------------------------------------

def test_man_pages(tmp_path):
    out = tmp_path / "man"
    assert petri("help", "--man-all", str(out)).returncode == 0
    assert sorted(f.name for f in out.iterdir()) == sorted(
        ["petri.1"] + [f"petri-{c}.1" for c in commands()])
    for name in commands():
        page = (out / f"petri-{name}.1").read_text()
        assert page == petri("help", "--man", name).stdout
        assert page.startswith(f".TH PETRI\\-{name.upper()} 1 ")
        for path in [(name,)] + [(name, s) for s in subcommands(name)]:
            for o in options(*path):
                escaped = o.replace("-", "\\-")
                assert f"\\-\\-{escaped}\\fR" in page, f"{path} --{o} is not in its page"
    overview = (out / "petri.1").read_text()
    assert overview == petri("help", "--man", "petri").stdout
    for name in commands():
        assert f"petri\\-{name}\\fR(1)" in overview


def test_man_pages_are_clean(tmp_path):
    """The formatter has nothing to complain about."""
    petri("help", "--man-all", str(tmp_path))
    man = shutil.which("groff")
    for page in tmp_path.iterdir():
        text = page.read_text()
        for line in text.splitlines():
            assert re.match(r"\.(TH|SH|SS|TP|PP|nf|fi|br)\b|[^.']|$", line), line
        if man:
            p = subprocess.run([man, "-man", "-ww", "-Tutf8", str(page)], capture_output=True,
                               text=True, timeout=120, check=False)
            assert p.stderr == "", p.stderr


@pytest.mark.parametrize("args", [
    ["run", "--json", "--nosuch"], ["run", "--json"], ["exec", "--json"], ["fork", "-n", "0", "--json"],
    ["fsck", "--json", "x"], ["history", "--json", "x"], ["kill", "--json"], ["fs", "read", "--json"],
    ["fs", "read", "a", "b", "--json"], ["cp", "a", "b", "--json"],
])
def test_mistakes_as_json(args):
    r = petri(*args)
    assert r.returncode in (2, 125) and len(r.stderr.splitlines()) == 1
    e = json.loads(r.stdout)["error"]
    assert e["code"] == "usage" and "petri: " + e["message"] == r.stderr.strip()


# --- completion ------------------------------------------------------------------------------

def bash(*words):
    """What bash offers for the last word."""
    script = ('source <("$PETRI" completion bash); compopt() { :; }; COMP_WORDS=("$@"); '
              'COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _petri; printf "%s\\n" "${COMPREPLY[@]}"')
    p = subprocess.run(["bash", "--norc", "-c", script, "_", "petri", *words], text=True, timeout=120,
                       env={"PETRI": BIN, "PATH": os.path.dirname(BIN) + ":/usr/bin:/bin"},
                       capture_output=True, check=False)
    assert p.stderr == "", p.stderr
    return set(p.stdout.split())


def test_bash_commands_and_options():
    assert bash("") == set(commands()) | {"--help", "--version"}
    assert bash("doc") == {"doctor"}
    for name in commands():
        subs = subcommands(name)
        long = {o for o in bash(name, "-") if o.startswith("--")}
        assert long == {"--" + o for o in options(name)}, name
        if subs:
            assert bash(name, "") == set(subs)
        for s in subs:
            long = {o for o in bash(name, s, "-") if o.startswith("--")}
            assert long == {"--" + o for o in options(name, s)}, (name, s)


@pytest.mark.parametrize("words,want", [
    (["run", "--workspace-mode", ""], {"overlay", "copy", "bind"}),
    (["run", "--workspace-mode", "=", "c"], {"copy"}),
    (["run", "--workspace-mode", "="], {"overlay", "copy", "bind"}),
    (["completion", ""], set(SHELLS)),
    (["completion", "f"], {"fish"}),
    (["run", "-m", "5M", "--works"], {"--workspace", "--workspace-mode", "--workspace-path"}),
    (["run", "-m", ""], set()),
    (["run", "--", "--js"], set()),
    (["run", "make", "--js"], set()),
    (["run", "-u", "roo"], {"root"}),
    (["run", "--workspace", "/us"], {"/usr"}),
    (["run", "cat", "/etc/host.con"], {"/etc/host.conf"}),
    (["run", "--image", "hos"], {"host"}),
    (["help", "do"], {"doctor"}),
    (["nothing", ""], set()),
    (["config", "get", "resources.m"], {"resources.memory"}),
    (["config", "set", "--user", "mounts.r"], {"mounts.readonly"}),
    (["config", "unset", "promotion"], {"promotion.auto"}),
])
def test_bash_values(words, want):
    assert bash(*words) == want


def test_bash_programs():
    assert "env" in bash("run", "-m", "5M", "en") and "env" in bash("run", "--", "en")


@pytest.mark.parametrize("shell", SHELLS)
def test_keys_are_completed(shell):
    """Those of the key table, after get, set and unset."""
    keys = [k["x-petri"]["key"] for k in schema_keys(json.loads(petri("config", "schema").stdout))]
    script = petri("completion", shell).stdout
    assert len(keys) > 30 and script.count(" ".join(keys)) == 3


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_script(shell):
    """It names every command and option; a shell that is here also reads it."""
    script = petri("completion", shell)
    assert script.returncode == 0 and script.stderr == ""
    for name in commands():
        assert re.search(rf"\b{name}\b", script.stdout)
        for o in options(name) - {"help"}:
            assert re.search(rf"(--|-l ){o}\b", script.stdout), (name, o)
    if shutil.which(shell):
        p = subprocess.run([shell, "-n"], input=script.stdout, capture_output=True, text=True,
                           timeout=120, check=False)
        assert p.returncode == 0 and p.stderr == "", p.stderr
