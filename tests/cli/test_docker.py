"""petri in a real docker container: a plain one says what is missing, with those options it works.

A docker daemon of our own runs for the time of these tests, without network, in its own directory.
"""
import json
import os
import shlex
import shutil
import subprocess
import tempfile

import pytest

from helpers import BIN, wait_for
from test_doctor import helper_program

DOCKERD, DOCKER = shutil.which("dockerd"), shutil.which("docker", path="/usr/bin:/usr/local/bin")
BUSYBOX = shutil.which("busybox")

pytestmark = [pytest.mark.root,
              pytest.mark.skipif(not (DOCKERD and DOCKER and BUSYBOX),
                                 reason="needs docker.io and busybox-static")]

JOB = """mkdir -p /tmp/p && cd /tmp/p && echo before >f || exit 9
/petri/petri run -q -- sh -c 'echo after >f; echo new >g; cat f; id -u'
echo "status $?"; cat f; ls
"""


class Docker:
    def __init__(self, top):
        self.env = {"DOCKER_HOST": f"unix://{top}/sock", "HOME": top, "PATH": "/usr/bin:/bin:/sbin"}
        self.top = top

    def call(self, *args, **kw):
        return subprocess.run([DOCKER, *args], env=self.env, capture_output=True, timeout=120,
                              check=False, **kw)

    def run(self, options, *command):
        p = self.call("run", "--rm", "--network=none", f"--volume={self.top}/petri:/petri:ro",
                      *options, "petri-test", *command, text=True)
        assert p.returncode != 125 or "docker:" not in p.stderr, p.stderr
        return p

    def doctor(self, options=()):
        p = self.run(options, "/petri/petri", "doctor", "--json")
        report = json.loads(p.stdout)
        assert report["ok"] == (p.returncode == 0)
        return report["ok"], {c["id"]: c for c in report["checks"]}

    def works(self, options):
        """Whether a sandbox runs and leaves the project alone."""
        p = self.run(options, "sh", "-c", JOB)
        ran = p.stdout.endswith("status 0\nbefore\nf\n")
        assert ran or p.stdout.endswith("status 125\nbefore\nf\n"), p
        return ran


@pytest.fixture(scope="module")
def docker():
    top = tempfile.mkdtemp(prefix="petri-test-docker-", dir="/var/tmp")
    log = open(os.path.join(top, "log"), "wb")
    daemon = subprocess.Popen(
        [DOCKERD, "--iptables=false", "--ip6tables=false", "--bridge=none", f"--data-root={top}/data",
         f"--exec-root={top}/exec", f"--host=unix://{top}/sock", f"--pidfile={top}/pid"],
        stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        d = Docker(top)
        wait_for(lambda: d.call("version").returncode == 0 or daemon.poll() is not None, what="dockerd")
        os.makedirs(f"{top}/root/bin")
        for name in ("usr/bin", "etc", "lib", "tmp"):
            os.makedirs(f"{top}/root/{name}")
        os.chmod(f"{top}/root/tmp", 0o1777)
        shutil.copy(BUSYBOX, f"{top}/root/bin/busybox")
        for name in ("sh", "cat", "ls", "id", "mkdir"):
            os.symlink("busybox", f"{top}/root/bin/{name}")
        tar = subprocess.run(["tar", "-C", f"{top}/root", "-c", "."], stdout=subprocess.PIPE,
                             check=True)
        assert d.call("import", "-", "petri-test", input=tar.stdout).returncode == 0
        os.makedirs(f"{top}/petri")
        shutil.copy(BIN, f"{top}/petri/petri")
        for name in ("petri-init", "petri-gateway"):
            shutil.copy(helper_program(name), f"{top}/petri")
        os.chmod(top, 0o755)
        yield d
    finally:
        daemon.terminate()
        daemon.wait(60)
        log.close()
        # dockerd mounts this over itself, and does not always take it down
        subprocess.run(["umount", f"{top}/data"], stderr=subprocess.DEVNULL, check=False)
        shutil.rmtree(top)


def test_plain_container(docker):
    """What is missing is named, with one command that changes all of it; petri run refuses."""
    ok, checks = docker.doctor()
    assert not ok
    assert checks["container"]["value"].startswith("docker")
    assert checks["userns"]["status"] == "missing" and "seccomp" in checks["userns"]["value"]
    assert checks["userns"]["fix"].startswith("docker run ") and checks["userns"]["means"]
    assert checks["container"]["fix"] == checks["userns"]["fix"]
    assert not docker.works([])


def test_the_options_that_doctor_names(docker):
    """Started as doctor says, once, a sandbox runs; and doctor knows it."""
    fix = docker.doctor()[1]["container"]["fix"]
    words = shlex.split(fix)
    assert words[:2] == ["docker", "run"] and words[-1] == "..."
    options = words[2:-1]
    ok, checks = docker.doctor(options)
    assert ok, checks
    assert docker.works(options)
    # an ordinary user there needs no capability at all
    assert docker.works([*options, "-u", "1000:1000", "-e", "PETRI_HOME=/tmp/petri", "--cap-drop=ALL",
                         "--security-opt=no-new-privileges"])


@pytest.mark.parametrize("option", ["seccomp", "systempaths"])
def test_each_of_them_is_needed(docker, option):
    """Doctor and run agree on every subset with one option less."""
    words = shlex.split(docker.doctor()[1]["container"]["fix"])[2:-1]
    pairs = [words[i:i + 2] for i in range(0, len(words), 2)]
    rest = [p for p in pairs if not any(w.startswith(option) for w in p)]
    assert len(rest) == len(pairs) - 1
    options = [w for p in rest for w in p]
    ok, checks = docker.doctor(options)
    assert not ok and not docker.works(options)
    assert any(c["fix"] for c in checks.values() if c["required"] and c["status"] == "missing")
