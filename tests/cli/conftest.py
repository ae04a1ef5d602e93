import os
import subprocess
import tempfile

import pytest

import helpers
import nethosts


def pytest_configure(config):
    helpers.become_subreaper()
    config.addinivalue_line("markers", "root: needs root")
    config.addinivalue_line("markers", "user: needs an ordinary user")
    config.addinivalue_line("markers", "tmpfs: needs the disk limit of a tmpfs")
    config.addinivalue_line("markers", "ranges: needs more than one user id")
    config.addinivalue_line("markers", "cgroups: needs control groups")
    config.addinivalue_line("markers", "no_cgroups: needs a user who can have no control groups")


def pytest_collection_modifyitems(items):
    """A test for another kind of user is not a skipped test: it is not one of this run's."""
    wrong = {"user" if helpers.ROOT else "root", "no_cgroups" if helpers.CAN_LIMIT else "cgroups"}
    if helpers.MODE == "single":
        wrong.add("ranges")
    if helpers.WATCHED:
        wrong.add("tmpfs")
    items[:] = [i for i in items if not any(i.get_closest_marker(w) for w in wrong)]


def pytest_report_header():
    return (f"petri: {helpers.BIN}, weakened: {helpers.WEAK or 'none'}, "
            f"ids: {helpers.MODE}, cgroup {'v2' if helpers.CGROUP_V2 else 'v1'}")


def remove(top):
    """Removes a tree, also what belongs to the subordinate ids of this user."""
    as_all = ["unshare", "--user", "--map-auto", "--map-root-user"] if helpers.MODE == "sub" else []
    gone = [*as_all, "rm", "-rf", "--one-file-system", top]
    if subprocess.run(gone, stderr=subprocess.DEVNULL).returncode:
        subprocess.run([*as_all, "chmod", "-R", "u+rwx", top])
        subprocess.run(gone, check=True)


@pytest.fixture(scope="session")
def workdir():
    """A directory of this run on a real disk."""
    top = tempfile.mkdtemp(prefix="petri-cli-", dir="/var/tmp")
    yield top
    remove(top)


@pytest.fixture(scope="session")
def probes(workdir):
    """Small static programs that ask the kernel from inside a sandbox."""
    ready = os.environ.get("PETRI_TEST_PROBES")
    if ready:
        return ready
    out = os.path.join(workdir, "probes")
    os.makedirs(out)
    src = os.path.join(os.path.dirname(helpers.HERE), "probes")
    for name in sorted(os.listdir(src)):
        if name.endswith(".c"):
            subprocess.run(["cc", "-O1", "-static", "-D_GNU_SOURCE", "-o",
                            os.path.join(out, name[:-2]), os.path.join(src, name)], check=True)
    return out


@pytest.fixture(autouse=True)
def leakcheck():
    """After every test the machine is as it was before."""
    leaks = helpers.Leaks()
    yield leaks
    left = leaks.left()
    assert not left, f"left behind: {left}"


@pytest.fixture(scope="session")
def store(workdir):
    """petri's store for all tests of this run: its copy of /etc takes longer than most of them."""
    return os.path.join(workdir, "store")


@pytest.fixture
def petri(leakcheck, workdir, store):
    p = helpers.Petri(tempfile.mkdtemp(prefix="t-", dir=workdir), store)
    before = helpers.store_left(p.store)
    yield p
    p.close()
    if any(x.returncode < 0 for x in p.started):
        # petri was killed: what it could not remove goes with the next command
        p.run("--", "true").ok()
        p.close()
    left = [] if p.allow_kept else helpers.store_left(p.store, before)
    remove(p.base)
    assert not left, f"left in the store: {left}"


@pytest.fixture(scope="session")
def world(workdir):
    """The hosts of the network tests, made when the first of these runs."""
    made = nethosts.World(os.path.join(workdir, "world"), helpers.MODE)
    yield made
    alive = made.p.poll() is None
    made.close()
    assert alive, "the servers of the network tests did not last"
