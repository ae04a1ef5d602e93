"""The machine's clock is set back while a sandbox lives: nothing is overwritten, nothing hangs. Runs there as root."""
import os
import subprocess
import time

import pytest


def petri(*args, cwd, home):
    return subprocess.run(["petri", *args], cwd=cwd, env={**os.environ, "PETRI_HOME": home}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=300)


@pytest.fixture
def project(tmp_path):
    top = tmp_path / "proj"
    top.mkdir()
    for name in ("mine", "theirs", "both"):
        (top / name).write_text("1\n")
    was, since = time.time(), time.monotonic()
    yield str(top), str(tmp_path / "home")
    petri("rm", "-f", "proj-1", cwd=top, home=str(tmp_path / "home"))
    time.clock_settime(time.CLOCK_REALTIME, was + time.monotonic() - since)


def test_clock_set_back(project):
    top, home = project
    assert petri("start", cwd=top, home=home).returncode == 0
    assert petri("exec", "--", "sh", "-c", "echo 2 > mine; echo 2 > both", cwd=top, home=home).returncode == 0
    time.clock_settime(time.CLOCK_REALTIME, time.time() - 3600)
    # the host's own edits now have times before the sandbox was made
    for name in ("theirs", "both"):
        with open(os.path.join(top, name), "w") as f:
            f.write("host\n")
    r = petri("promote", "-y", cwd=top, home=home)
    texts = {n: open(os.path.join(top, n)).read() for n in ("mine", "theirs", "both")}
    # what the host wrote stays; what can't be told is a conflict, never a guess
    assert texts["theirs"] == "host\n" and texts["both"] == "host\n", (texts, r)
    assert texts["mine"] in ("1\n", "2\n") and r.returncode != 0, (texts, r)
    assert "petri:" in r.stderr and "Traceback" not in r.stderr
    # time-outs and the life of the sandbox do not depend on that clock
    assert petri("exec", "--timeout", "1s", "--", "sleep", "60", cwd=top, home=home).returncode == 124
    assert petri("status", cwd=top, home=home).returncode == 0
    assert petri("stop", cwd=top, home=home).returncode == 0
