"""Mistakes: one line that names the value and the remedy, status 125, nothing created, nothing left."""
import os
import shutil
import subprocess
import tempfile

import pytest

import helpers
from helpers import BIN, listing, write


@pytest.fixture(scope="module")
def world(workdir):
    """One store for all mistakes: it was used once, and no mistake may change it."""
    p = helpers.Petri(tempfile.mkdtemp(prefix="bad-", dir=workdir))
    p.run("--", "true").ok()
    yield p
    p.close()


def refused(p, *args, rc=125, names=(), cwd=None):
    before = listing(p.store)
    r = p.run(*args, cwd=cwd, timeout=20)
    r.ok(rc)
    assert r.out == "" and r.err == "", r
    assert len(r.talk.splitlines()) == 1, f"one line\n{r!r}"
    for n in names:
        assert n in r.talk, f"'{n}' is not named\n{r!r}"
    assert listing(p.store) == before, "the store changed"
    return r


@pytest.mark.parametrize("args,names", [
    (["--no-such-flag", "--", "true"], ["no-such-flag"]),
    (["-Z", "--", "true"], ["Z"]),
    (["--timeot", "1", "--", "true"], ["timeot", "--timeout"]),
    (["--netwrok=none", "--", "true"], ["netwrok", "--network"]),
    ([], []),
    (["--"], []),
    (["-e"], ["-e"]),
    (["--timeout"], ["timeout"]),
    (["--json=x", "--", "true"], ["json"]),
    (["-d", "--", "true"], ["petri start", "petri exec -d"]),
    (["-v", "nosuch:/x", "--", "true"], ["nosuch", "no named volumes"]),
], ids=str)
def test_flags(world, args, names):
    refused(world, *args, names=names)


def test_missing_command_says_what_to_do(world):
    r = refused(world)
    assert "petri run" in r.talk


@pytest.mark.parametrize("flag", ["-m", "--memory", "--disk", "--max-output"])
@pytest.mark.parametrize("value", ["-1", "abc", "", "1X", "1.5.5G", "99999999999999999999", " 1G", "1e9"])
def test_sizes(world, flag, value):
    refused(world, f"{flag}={value}" if flag.startswith("--") else flag + value if value else flag,
            *([] if flag.startswith("--") or value else [""]), "--", "true", names=[value] if value else [])


@pytest.mark.parametrize("value", ["2GB", "1.5G", "2g", "2GiB", "1073741824", "900M"])
def test_good_sizes(world, value):
    world.run("--max-output", value, "--", "true").ok()
    if helpers.CAN_LIMIT:
        world.run("-m", value, "--", "true").ok()


@pytest.mark.parametrize("value", ["0.5G", "512MB", "64m", "16777216"])
def test_good_disks(world, value):
    world.run("--disk", value, "--", "true").ok()


def test_disk_that_can_not_be_enforced(world):
    refused(world, "--disk", "100T", "--", "true", names=["--disk", "100T"])


@pytest.mark.parametrize("flag,value", [
    ("--cpus", "0"), ("--cpus", "-1"), ("--cpus", "abc"), ("--cpus", ""), ("--cpus", "1e3"),
    ("--pids-limit", "0"), ("--pids-limit", "x"), ("--pids-limit", "-5"), ("--pids-limit", "1.5"),
    ("--timeout", "x"), ("--timeout", "-1"), ("--timeout", "1y"), ("--timeout", ""),
    ("--workspace-mode", "cow"), ("--network", "bridge"), ("--network", ""),
    ("--env-file", "/no/such/file"), ("--image", "no-such-image"), ("--image", "../x"),
    ("--image", ""), ("--image", "a b"), ("--user", "no-such-user"), ("--user", "-1"),
    ("--user", "4294967295"), ("--user", "99999999999"), ("--user", ""), ("--user", "0:x"),
])
def test_values(world, flag, value):
    refused(world, f"{flag}={value}", "--", "true", names=[value] if value else [])


@pytest.mark.parametrize("what", ["file", "missing", "/", "fifo", "unreadable", "empty", "/proc", "/dev",
                                  "/sys", "/run", "store"])
def test_workspace(world, what):
    path = {"file": write(world.path("a-file"), "x"), "missing": world.path("missing"),
            "fifo": world.path("fifo"), "unreadable": world.path("closed"), "empty": "",
            "store": world.store}.get(what, what)
    if what == "fifo" and not os.path.exists(path):
        os.mkfifo(path)
    if what == "unreadable":
        if helpers.ROOT:
            return
        os.makedirs(path, exist_ok=True)
        os.chmod(path, 0)
    try:
        refused(world, "--workspace", path, "--", "true", names=[path] if path else [])
    finally:
        if what == "unreadable":
            os.chmod(path, 0o700)


def test_image_looks_like_docker(world):
    r = world.run("alpine", "sh").ok(127)
    assert "--image alpine" in r.talk and r.out == "", r
    r = world.run("ubuntu:24.04", "bash").ok(127)
    assert "--image ubuntu:24.04" in r.talk, r


@pytest.mark.parametrize("policy,near", [("host", "none"), ("bridge", "none"), ("Limited", "limited"),
                                         ("allow-list", "allowlist")])
def test_network_policies_that_do_not_exist(world, policy, near):
    refused(world, "--network", policy, "--", "true", names=[policy, near])


def test_network_none(world):
    world.run("--network", "none", "--", "true").ok()
    world.run("--network=none", "--", "true").ok()


def test_repeated_single_flags(world):
    """The last one wins, as everywhere."""
    assert world.run("-w", "/usr", "-w", "/tmp", "--", "pwd").ok().out == "/tmp\n"


def test_flags_of_docker_are_known(world):
    world.run("--rm", "-i", "--", "true").ok()


def test_mistakes_in_a_fresh_store_leave_none(world):
    fresh = world.path("fresh-store")
    for args in (["--no-such-flag"], ["-m", "abc", "--", "true"], []):
        world.run(*args, env={"PETRI_HOME": fresh}).ok(125)
        assert not os.path.exists(fresh), args


def test_store_that_is_not_ours(world):
    link, plain = world.path("store-link"), write(world.path("store-file"), "x")
    os.symlink("/tmp", link)
    for bad in (link, plain, "relative/store", ""):
        r = world.run("--", "true", env={"PETRI_HOME": bad})
        if bad in ("relative/store", ""):  # taken as unset, or refused; never made in the project
            assert not os.path.exists(os.path.join(world.project, "relative")), bad
            continue
        assert r.rc == 125 and bad in r.talk and len(r.talk.splitlines()) == 1, r


@pytest.mark.root
def test_store_of_another_user(world):
    d = world.path("others-store")
    os.makedirs(d)
    os.chown(d, 12345, 12345)
    r = world.run("--", "true", env={"PETRI_HOME": d}).ok(125)
    assert d in r.talk, r


def test_store_is_private(world):
    for top, dirs, _ in os.walk(world.store):
        assert os.stat(top).st_mode & 0o077 == 0 or "layers" in top, top
        break
    assert os.stat(world.store).st_mode & 0o777 == 0o700


def test_hostile_text_in_messages(world):
    """What the user typed is shown, never obeyed by the terminal."""
    r = world.run("--image", "a\x1b]52;c;QUJD\x07b\u202e", "--", "true").ok(125)
    assert b"\x1b" not in r.errb and "\u202e" not in r.talk
    r = world.run("--", "\x1b[31mnope").ok(127)
    assert b"\x1b" not in r.errb


def test_unknown_command_of_petri(world):
    r = world.run("rnu", sub=None)
    assert r.rc == 2 and "run" in r.talk and len(r.talk.splitlines()) == 1, r


def test_help(world):
    r = world.run("--help").ok()
    for flag in ("--env", "--env-file", "--workdir", "--user", "--volume", "--memory", "--cpus", "--pids-limit",
                 "--disk", "--timeout", "--max-output", "--image", "--network", "--workspace",
                 "--workspace-mode", "--read-only", "--hide", "--name", "--label", "--keep", "--json"):
        assert flag in r.out, flag


def test_very_long_command_line(world):
    big = "x" * 100000
    assert world.run("--", "sh", "-c", "printf %s \"$1\" | wc -c", "sh", big).ok().out.strip() == "100000"
    many = [str(i) for i in range(5000)]
    assert world.run("--", "sh", "-c", "echo $#", "sh", *many).ok().out == "5000\n"


def test_long_project_path(world):
    d = world.project
    for i in range(12):
        d = os.path.join(d, "n" * 200)
    os.makedirs(d)
    r = world.run("--", "pwd", cwd=d).ok()
    assert r.out == d + "\n"
    shutil.rmtree(os.path.join(world.project, "n" * 200))


def test_odd_project_names(world):
    for name in ("with space", "new\nline", "com,ma", "co:lon", "back\\slash", "quote'\"", "-dash", "ü", "a=b"):
        d = world.path("odd", name)
        write(os.path.join(d, "petri.json"), "{}")
        write(os.path.join(d, "file"), "found")
        r = world.run("--", "sh", "-c", "cat file; echo x >new; pwd", cwd=d).ok()
        assert r.out == "found" + d + "\n", (name, r)
        assert not os.path.exists(os.path.join(d, "new"))


def test_non_utf8_project_name(world):
    d = os.fsencode(world.base) + b"/odd/\xff\xfe"
    os.makedirs(d)
    with open(d + b"/petri.json", "w") as f:
        f.write("{}")
    p = subprocess.run([BIN, "run", "--json", "--", "pwd"], cwd=d, env=world.env, capture_output=True,
                       stdin=subprocess.DEVNULL, timeout=120)
    assert p.returncode == 0, p


def test_stdout_full(world):
    """Nowhere to write: an error, not a success."""
    for stream in ("stdout", "stderr"):
        with open("/dev/full", "wb") as f:
            p = world.start("--", "sh", "-c", "echo x; echo y >&2", **{stream: f})
            talk = b"".join(x or b"" for x in p.communicate(timeout=60))
            assert p.returncode == 125 and (stream == "stderr" or b"output of the command was lost" in talk), talk
    with open("/dev/full", "wb") as f:  # its own status, where that tells as well
        assert world.start("--", "sh", "-c", "echo x; exit 3", stdout=f).wait(60) == 3
    with open("/dev/full", "wb") as f:
        p = world.start("--json", "--", "echo", "x", stdout=f)
        assert p.wait(20) != 0
