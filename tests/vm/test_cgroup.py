"""Control groups on v2, in a machine where the surroundings may be changed. Runs there as root."""
import errno
import os
import subprocess
import time

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
UNIT = os.path.join(HERE, "unit-cgroup")
FREEZE = os.path.join(HERE, "unit-freeze")
USER_MANAGER = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service"


def read(path):
    with open(path) as f:
        return f.read()


def sh(script, **kw):
    r = subprocess.run(["sh", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, timeout=120, **kw)
    return r.returncode, r.stdout


# A session of its own: su from within root's session would stay in that one.
SESSION = ["systemd-run", "-q", "--pipe", "--wait", "--collect", "su", "-l", "tester", "-c"]


def as_user(script):
    return sh(f"exec {' '.join(SESSION)} '{script}'")


def hold(argv):
    """Starts a program that makes a group and keeps it until a line comes; returns its leaf, too."""
    p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    words = p.stdout.readline().split()
    assert words and words[0] == "v2", words
    return p, words[1]


def left():
    found = []
    for top, dirs, _ in os.walk("/sys/fs/cgroup"):
        found += [os.path.join(top, d) for d in dirs if d == "petri" or d.startswith("petri-t-")]
    return found


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    for _ in range(600):  # systemd removes a scope when it hears that it is empty
        if not left():
            break
        time.sleep(0.1)
    assert not left()


def test_freeze_as_root():
    rc, out = sh(FREEZE)
    assert rc == 0 and "cgroup v2" in out, out


def test_freeze_as_a_user():
    rc, out = as_user(FREEZE)
    assert rc == 0 and "cgroup v2" in out, out


def test_root_in_a_session():
    rc, out = sh(f"PETRI_TEST_CGROUP=1 {UNIT}")
    assert rc == 0 and "cgroup v2" in out, out


def test_root_goes_to_the_top():
    rc, out = sh(f"{UNIT} memory")
    assert rc == 0 and out.startswith("v2 /sys/fs/cgroup/petri/petri-t-ask."), out


def test_root_in_a_delegated_service_stays_below_it():
    script = ("D=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup); mkdir $D/inner; "
              f"echo 0 >$D/inner/cgroup.procs; {UNIT} memory && PETRI_TEST_CGROUP=1 {UNIT}")
    rc, out = sh(f"systemd-run -q --pipe --wait -p Delegate=yes --unit deleg sh -c '{script}'")
    assert rc == 0, out
    assert "v2 /sys/fs/cgroup/system.slice/deleg.service/petri/petri-t-ask." in out, out


def test_root_in_a_delegated_service_that_has_processes():
    rc, out = sh(f"systemd-run -q --pipe --wait -p Delegate=yes {UNIT} cpus")
    assert rc == 0 and "v2 /sys/fs/cgroup/petri/" in out, out


def test_the_manager_cannot_take_a_controller_away():
    """What makes a group of our own at the top safe: systemd's -cpu is refused while a leaf lives."""
    p, leaf = hold([UNIT, "hold"])
    fd = os.open("/sys/fs/cgroup/cgroup.subtree_control", os.O_WRONLY)
    with pytest.raises(OSError) as e:
        os.write(fd, b"-cpu")
    os.close(fd)
    assert e.value.errno == errno.EBUSY and os.path.exists(f"{leaf}/cpu.max")
    p.communicate("\n")


def test_limits_survive_daemon_reload():
    p, leaf = hold([UNIT, "hold"])
    before = {f: read(f"{leaf}/{f}") for f in ("memory.max", "cpu.max", "pids.max")}
    sh("systemctl daemon-reload; systemd-run -q --wait -p CPUWeight=50 true; systemctl daemon-reload")
    after = {f: read(f"{leaf}/{f}") for f in before}
    p.communicate("\n")
    assert before == after and before["memory.max"] == "67108864\n", (before, after)


def test_container_whose_top_group_has_processes():
    rc, out = sh("systemd-run -q --pipe --wait -p Delegate=yes unshare -Cm sh -c "
                 f"'umount -l /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; {UNIT} memory'")
    assert rc == 1 and "error unsupported the limit for memory" in out and "container" in out, out


def test_read_only_cgroups():
    rc, out = sh("unshare -m sh -c 'mount -o remount,bind,ro /sys/fs/cgroup; "
                 f"{UNIT} pids; {UNIT} memory'")
    assert rc == 1 and out.startswith("rlimit") and "error unsupported" in out, out


def test_user_in_a_session_gets_a_scope():
    rc, out = as_user(f"{UNIT} memory")
    assert rc == 0 and out == f"v2 {USER_MANAGER}/app.slice/petri-t-ask.scope/box\n", out
    rc, out = as_user(f"PETRI_TEST_CGROUP=1 {UNIT}")
    assert rc == 0 and "cgroup v2" in out, out


def test_user_without_an_environment_gets_a_scope():
    rc, out = as_user(f"env -i {UNIT} memory")
    assert rc == 0 and "petri-t-ask.scope" in out, out


def test_user_below_the_manager_needs_no_scope():
    rc, out = as_user(f"systemd-run -q --user --scope {UNIT} cpus")
    assert rc == 0 and out.startswith(f"v2 {USER_MANAGER}/app.slice/petri/petri-t-ask."), out


def test_user_over_the_bus(manager):
    with masked("/run/user/1000/systemd/private"):
        rc, out = as_user(f"{UNIT} memory")
    assert rc == 0 and "petri-t-ask.scope" in out, out


def test_user_manager_does_not_answer(manager):
    with masked("/run/user/1000/systemd/private"), masked("/run/user/1000/bus"):
        rc, out = as_user(f"{UNIT} memory")
        assert rc == 1 and "error unsupported" in out and "enable-linger" in out, out
        rc, out = as_user(f"{UNIT} pids")
        assert rc == 0 and out == "rlimit \n", out


def test_user_manager_hangs(manager):
    pid = sh("systemctl show -P MainPID user@1000.service")[1].strip()
    os.kill(int(pid), 19)
    try:
        start = time.monotonic()
        rc, out = sh(f"setpriv --reuid 1000 --regid 1000 --clear-groups {UNIT} memory")
        assert rc == 1 and "within 5 s" in out and time.monotonic() - start < 60, out
    finally:
        os.kill(int(pid), 18)


def test_two_of_the_same_name():
    """The manager says no to the second: an error with its words, nothing left."""
    p, leaf = hold([*SESSION, f"{UNIT} hold"])
    assert "petri-t-ask.scope" in leaf
    rc, out = as_user(f"{UNIT} memory")
    p.communicate("\n")
    assert rc == 1 and "made no scope: " in out and "petri-t-ask.scope" in out, out


def test_killed_keeper_leaves_no_scope():
    p, leaf = hold([*SESSION, f"exec {UNIT} hold"])
    assert "petri-t-ask.scope" in leaf
    sh("pkill -KILL -x unit-cgroup")
    p.communicate()


def test_user_without_the_cpu_controller():
    os.makedirs("/etc/systemd/system/user@.service.d", exist_ok=True)
    with open("/etc/systemd/system/user@.service.d/test.conf", "w") as f:
        f.write("[Service]\nDelegate=\nDelegate=memory pids\n")
    sh("systemctl daemon-reload; loginctl terminate-user tester; systemctl stop user@1000.service")
    try:
        rc, out = as_user(f"{UNIT} memory")
        assert rc == 0 and out.startswith("v2 "), out
        rc, out = as_user(f"{UNIT} cpus")
        assert rc == 1 and "Delegate=cpu memory pids" in out, out
    finally:
        os.unlink("/etc/systemd/system/user@.service.d/test.conf")
        sh("systemctl daemon-reload; systemctl stop user@1000.service")


@pytest.fixture
def manager():
    """A user manager that outlives the single sessions of a test."""
    sh("loginctl enable-linger tester; systemctl start user@1000.service")
    yield
    sh("loginctl disable-linger tester")


class masked:
    def __init__(self, path):
        self.path = path

    def __enter__(self):
        assert sh(f"mount --bind /dev/null {self.path}")[0] == 0

    def __exit__(self, *_):
        sh(f"umount {self.path}")
