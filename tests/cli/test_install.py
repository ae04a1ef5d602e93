"""petri run -u 0: packages are installed in the sandbox, the machine keeps every byte."""
import os
import shutil
import signal
import subprocess

import pytest

from helpers import MODE, ROOT, descendants, listing, read, wait_for, write

pytestmark = pytest.mark.skipif(not (shutil.which("dpkg-deb") and os.path.exists("/var/lib/dpkg/status")),
                                reason="no Debian system")

# where the machine must not change, at all depths
WATCHED = ("/usr/bin", "/usr/share/doc", "/etc", "/var/lib/dpkg", "/var/lib/apt")
FIRST = 180  # seconds for a start that makes the directory layer, on a busy machine


def deb(petri, name="hello-petri", version="1.0", files=(), scripts=(), conffiles=""):
    """A package in the project; its file name."""
    top = petri.path(f"pkg-{name}-{version}")
    write(f"{top}/DEBIAN/control", f"Package: {name}\nVersion: {version}\nArchitecture: all\n"
          "Maintainer: petri <petri@example.org>\nDescription: a package for tests\n")
    if conffiles:
        write(f"{top}/DEBIAN/conffiles", conffiles)
    for script, text in scripts:
        write(f"{top}/DEBIAN/{script}", "#!/bin/sh\nset -e\n" + text, 0o755)
    for path, text, mode in files:
        write(top + path, text, mode)
    for d, dirs, _ in os.walk(top):
        os.chmod(d, 0o755)
    out = f"{name}_{version}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", top, os.path.join(petri.project, out)],
                   check=True, stdout=subprocess.DEVNULL)
    return out


def hello(petri, version="1.0"):
    return deb(petri, version=version, conffiles="/etc/hello-petri.conf\n",
               files=[("/usr/bin/hello-petri", "#!/bin/sh\necho hello; cat /etc/hello-petri.conf\n", 0o755),
                      ("/usr/share/hello-petri/data", f"data {version}\n", 0o644),
                      ("/etc/hello-petri.conf", "a setting\n", 0o644)],
               scripts=[("postinst", 'echo "postinst $1"\ntouch /var/lib/misc/hello-petri /usr/lib/hello-petri.done\n'),
                        ("prerm", "rm -f /usr/lib/hello-petri.done\n")])


def machine():
    """What the watched directories are made of: path -> inode, mode, owner, size, times."""
    seen = {}
    for top in WATCHED:
        for d, dirs, files in os.walk(top):
            for n in dirs + files + ["."]:
                p = os.path.join(d, n)
                try:
                    st = os.lstat(p)
                except OSError:
                    continue
                seen[p] = (st.st_ino, st.st_mode, st.st_uid, st.st_gid, st.st_size, st.st_mtime_ns, st.st_ctime_ns)
    return seen


def unchanged(action):
    """Others may install packages here meanwhile: only what differs every time is petri's doing."""
    changed = None
    for _ in range(3):
        before = machine()
        action()
        after = machine()
        diff = {p for p in before.keys() | after.keys() if before.get(p) != after.get(p)}
        changed = diff if changed is None else changed & diff
        if not changed:
            break
    assert not changed, f"petri changed the machine: {sorted(changed)[:20]}"
    assert not any("hello-petri" in p for p in machine())
    assert b"hello-petri" not in read("/var/lib/dpkg/status")


def test_dpkg(petri):
    pkg = hello(petri)
    results = []

    def install():
        results.append(petri.sh(f"dpkg -i {pkg} && hello-petri && cat /usr/share/hello-petri/data && "
                                "stat -c '%u:%g %a' /usr/bin/hello-petri /etc/hello-petri.conf /usr/share/hello-petri && "
                                "dpkg -s hello-petri | grep Status && dpkg -V hello-petri && test -e /usr/lib/hello-petri.done",
                                "-u", "0", timeout=FIRST).ok())

    unchanged(install)
    out = results[-1].out
    assert "postinst configure" in out
    assert out.endswith("hello\na setting\ndata 1.0\n0:0 755\n0:0 644\n0:0 755\nStatus: install ok installed\n"), out
    # gone with the sandbox
    assert petri.sh("dpkg -s hello-petri; hello-petri", "-u", "0", timeout=FIRST).rc == 127


def test_apt(petri):
    pkg = hello(petri)

    def install():
        r = petri.sh(f"apt-get install -y ./{pkg} && hello-petri && apt-get remove -y hello-petri && "
                     "! test -e /usr/bin/hello-petri && test -e /etc/hello-petri.conf && echo DONE",
                     "-u", "0", timeout=FIRST).ok()
        assert "hello\na setting\n" in r.out and r.out.endswith("DONE\n"), r

    unchanged(install)


def test_upgrade_and_purge_of_own_package(petri):
    one, two = hello(petri), hello(petri, "2.0")
    r = petri.sh(f"dpkg -i {one} && dpkg -i {two} && cat /usr/share/hello-petri/data && dpkg -P hello-petri && "
                 "! test -e /etc/hello-petri.conf && ! test -e /usr/share/hello-petri && echo GONE",
                 "-u", "0", timeout=FIRST).ok()
    assert "data 2.0\n" in r.out and r.out.endswith("GONE\n"), r


def test_dependency_that_is_missing(petri):
    """apt's own word for it, not a failure of petri's."""
    top = deb(petri, name="needs-petri")
    r = petri.sh(f"dpkg-deb -R {top} x && echo 'Depends: no-such-petri' >>x/DEBIAN/control && "
                 "dpkg-deb -b x y.deb && apt-get install -y ./y.deb", "-u", "0", timeout=FIRST)
    assert r.rc == 100 and "no-such-petri" in r.out + r.err, r


def host_package():
    """A package of this machine with few scripts, and a plain file of it."""
    for name in ("media-types", "netbase", "tzdata", "sensible-utils", "bash-completion"):
        path = f"/usr/share/doc/{name}/copyright"
        if os.path.exists(f"/var/lib/dpkg/info/{name}.list") and os.path.isfile(path) and not os.path.islink(path):
            return name, path
    pytest.skip("none of the known small packages is installed")


def test_upgrade_of_the_machines_package(petri):
    """Root's sandboxes can; in an ordinary user's the old file is nobody's, and dpkg says so."""
    name, path = host_package()
    pkg = deb(petri, name=name, version="99999:1", files=[(path, "another one\n", 0o644)])
    results = []

    def upgrade():
        results.append(petri.sh(f"dpkg --force-depends -i {pkg}; echo status $?; cat {path} | tail -1",
                                "-u", "0", timeout=FIRST).ok())

    unchanged(upgrade)
    r = results[-1]
    if ROOT:
        assert r.out.endswith("status 0\nanother one\n"), r
    else:
        assert "status 1\n" in r.out and "another one" not in r.out, r
        assert "unable to make backup link" in r.err, r


def test_user_with_an_id_of_its_own(petri):
    """Packages that make accounts need more than one id."""
    pkg = deb(petri, name="account-petri", files=[("/usr/share/account-petri/x", "x\n", 0o644)],
              scripts=[("postinst", "useradd -r -s /bin/false petri-daemon\n"
                        "chown petri-daemon /usr/share/account-petri/x\n")])
    r = petri.sh(f"dpkg -i {pkg} && stat -c %U /usr/share/account-petri/x", "-u", "0", timeout=FIRST)
    if MODE == "single":
        assert r.rc == 1 and "chown" in r.err, r
    else:
        assert r.ok().out.endswith("petri-daemon\n"), r


def test_system_belongs_to_root_inside(petri):
    r = petri.sh("stat -c %u:%g /usr /usr/bin /usr/share /etc /etc/passwd /var/lib/dpkg /var/lib/dpkg/status "
                 "/var/lib/apt", "-u", "0", timeout=FIRST).ok()
    assert set(r.out.split()) == {"0:0"}, r


def test_new_files_anywhere(petri):
    petri.sh("for d in /usr /usr/bin /usr/lib /usr/local/bin /usr/share/doc /etc /etc/apt /var/lib/dpkg/info; do "
             "echo x >$d/hello-petri && mkdir $d/hello-petri.d && rm $d/hello-petri && rmdir $d/hello-petri.d || exit 1; "
             "done", "-u", "0", timeout=FIRST).ok()


def test_directories_of_the_machine_can_go(petri):
    unchanged(lambda: petri.sh("rm -r /usr/share/doc && mkdir /usr/share/doc && test -z \"$(ls -A /usr/share/doc)\"",
                               "-u", "0", timeout=FIRST).ok())
    petri.sh("test -n \"$(ls -A /usr/share/doc)\"", "-u", "0", timeout=FIRST).ok()


def test_secrets_stay_out(petri):
    """What not everybody on the machine may read is not in the layer, whoever made it."""
    r = petri.sh("cat /etc/shadow /var/lib/dpkg/lock; grep -c '[$]' /etc/shadow", "-u", "0", timeout=FIRST)
    assert r.out.splitlines()[-1] == "0", r


def layers(store):
    return sorted(n for n in os.listdir(os.path.join(store, "layers")) if n.startswith("dirs-"))


@pytest.mark.user
def test_layer_is_made_once_and_said_so(petri):
    petri.own_store()
    first = petri.run("-u", "0", "--", "true", timeout=FIRST).ok()
    second = petri.run("-u", "0", "--", "true", timeout=FIRST).ok()
    assert first.talk.count("preparing") == 1 and "preparing" not in second.talk, (first, second)
    for name in layers(petri.store):
        inside = os.listdir(os.path.join(petri.store, "layers", name))
        assert sorted(n.split("-")[0] for n in inside) == ["gen", "lock"], (name, inside)
    assert any("usr" in n for n in layers(petri.store))


@pytest.mark.user
def test_layer_is_not_made_for_others(petri):
    petri.own_store()
    petri.run("--", "true").ok()
    assert layers(petri.store) == []


@pytest.mark.user
def test_builders_at_the_same_time(petri):
    petri.own_store()
    started = [petri.start("-u", "0", "--", "touch", "/usr/bin/x") for _ in range(3)]
    assert [p.wait(FIRST) for p in started] == [0, 0, 0]


@pytest.mark.user
def test_killed_builders(petri):
    """Nothing half-made is used, and what is left goes with the next builder."""
    petri.own_store()
    top = os.path.join(petri.store, "layers")

    def half_made():
        return os.path.isdir(top) and [n for d in layers(petri.store)
                                       for n in os.listdir(os.path.join(top, d)) if n.startswith("tmp")]

    for sig in (signal.SIGINT, signal.SIGKILL):
        p = petri.start("-u", "0", "--", "sleep", "300")
        wait_for(lambda: half_made() or "sleep (S)" in descendants(p.pid).values(), what="a layer being built")
        p.send_signal(sig)
        assert p.wait(20) != 0
    petri.run("-u", "0", "--", "touch", "/usr/bin/x", timeout=FIRST).ok()
    assert not half_made()


@pytest.mark.user
def test_kept_sandbox_can_be_removed(petri):
    """The first of its store: -q says nothing of the layer, and the deadline does not count it."""
    petri.own_store(kept=True)
    pkg = hello(petri)
    r = petri.run("-q", "-u", "0", "--keep", "--name", "k", "--timeout", "60", "--", "dpkg", "-i", pkg,
                  timeout=FIRST).ok()
    assert r.talk == "", r
    petri.run("k", sub="rm").ok()
    assert listing(os.path.join(petri.store, "sandboxes")) == []
