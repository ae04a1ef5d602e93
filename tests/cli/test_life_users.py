"""Who commands are in a sandbox that stays, who PID 1 is, and that it can be reached when its sockets were removed."""
import os
import shutil

import pytest

from helpers import wait_for
from life import life  # noqa: F401

ROOT = os.geteuid() == 0
# Root's sandboxes have many ids, an ordinary user's a single one: each has tests of its own.
many_ids = (lambda f: f) if ROOT else (lambda f: None)
single_id = (lambda f: None) if ROOT else (lambda f: f)
CAPS = "grep -E '^Cap(Eff|Prm|Bnd|Inh|Amb)' /proc/self/status | grep -vc 0000000000000000"


@many_ids
def test_pid_1_is_nobody_else(life):
    life.start()
    uid = life.out("grep ^Uid /proc/1/status").split()[1]
    assert uid not in ("0", life.out("id -u").strip())
    # neither it nor the supervisor can be touched
    assert life.sh("kill -9 1").rc != 0
    assert life.sh("kill -STOP $PPID").rc != 0
    assert life.sh("kill -0 $PPID").rc != 0
    assert life.out("echo alive") == "alive\n"
    assert life(*"exec -u".split(), uid, "--", "id").rc == 125


@many_ids
@pytest.mark.parametrize("user", ["0", "33:34", "nobody"])
def test_exec_as_another_user(life, user):
    life.start()
    want = {"0": "0 0", "33:34": "33 34", "nobody": "65534 65534"}[user]
    assert life.out('echo "$(id -u) $(id -g)"', "-u", user) == want + "\n"
    assert life.sh(CAPS, "-u", user).out == "0\n"  # no capability, whoever it is
    assert life.out("touch /tmp/mine; stat -c '%u %g' /tmp/mine", "-u", user) == want + "\n"


@many_ids
def test_user_0_of_a_sandbox_for_user_0(life):
    life.start("-u", "0")
    assert life.out("grep ^CapEff /proc/self/status").split()[1] == "00000000000000db"
    assert life.out("grep ^CapBnd /proc/self/status").split()[1] == "00000000000000db"
    assert life.sh("touch /usr/x", "-u", "1000").rc != 0
    life.out("touch /usr/x; chown 1000:1000 /usr/x")


@single_id
def test_a_single_id_is_the_only_one(life):
    life.start()
    assert life.out("id -u", "-u", str(os.getuid())) == f"{os.getuid()}\n"
    r = life("exec", "-u", "0", "--", "id")
    assert r.rc == 125 and "user '0'" in r.talk


def test_commands_have_nothing_of_pid_1(life):
    life.start()
    assert life.sh(CAPS).out == "0\n"
    assert life.out("grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status | cut -f2").split() == ["1", "2"]
    # when memory runs out, they go first
    assert int(life.out("cat /proc/self/oom_score_adj")) >= 100
    assert int(life.out("cat /proc/1/oom_score_adj")) < 100


def test_sockets_are_made_again(life):
    """The run directory of a user may be removed while sandboxes run."""
    life.start()
    life.out("sleep 300 & echo kept > kept")
    keeper = life.keeper()
    shutil.rmtree(os.path.join(life.petri.store, "run"))
    wait_for(lambda: life("exec", "--", "true").rc == 0, what="new sockets")
    assert life.out("cat kept") == "kept\n" and life.keeper() == keeper
