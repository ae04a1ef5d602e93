"""petri doctor, in worlds where one thing at a time is switched off, each with its positive twin.

Worlds are made of namespaces: a root of its own (unshare -Urm), and, where doctor must be an ordinary
user, one more user namespace below it (WORLD ... USER). Refusals of the kernel come from a seccomp
filter (refuse.py).
"""
import json
import os
import pty
import re
import shutil
import subprocess
import sys

import pytest

import helpers
from helpers import BIN

REQUIRED = {"parts", "userns", "namespaces", "calls", "proc", "seccomp", "overlay"}
IDS = REQUIRED | {"kernel", "container", "store", "project", "network", "names", "subuid", "cgroup",
                  "linger", "memory", "disk", "landlock", "kvm", "runtimes"}
REFUSE = os.path.join(helpers.HERE, "refuse.py")
MARKED = os.path.exists("/.dockerenv")
# Before 6.6 an ordinary user's overlay can't have its changes on a tmpfs.
OLD = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) < (6, 6)

# Runs as root of its own world: $1 is a script, the rest the command.
WORLD = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec",
         'eval "$1"; shift; exec "$@"', "sh"]
USER = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]


def world(script):
    return WORLD + [script]


def refuse(*what):
    return [sys.executable, REFUSE, ",".join(what), "--"]


class Doctor:
    def __init__(self, p):
        self.rc, self.talk = p.returncode, p.stderr
        self.json = json.loads(p.stdout)
        self.checks = {c["id"]: c for c in self.json["checks"]}

    def __getitem__(self, name):
        return self.checks[name]

    def expect(self, name, status, value="", fix=""):
        c = self.checks[name]
        assert c["status"] == status, c
        assert value in c["value"], c
        assert fix in (c["fix"] or ""), c
        if status != "ok":
            assert c["means"], f"no consequence: {c}"
        return self


    def expect_required(self):
        """All that every sandbox needs is there, on an old kernel with a restriction."""
        for name in REQUIRED:
            assert self[name]["required"], name
            if not (name == "overlay" and OLD and self[name]["status"] == "limited"):
                self.expect(name, "ok")


@pytest.fixture
def doctor(petri):
    def run(*wrap, env=None, cwd=None):
        full = dict(petri.env)
        full.pop("container", None)
        full.update(env or {})
        p = subprocess.run([*wrap, BIN, "doctor", "--json"], env=full, cwd=cwd or petri.project,
                           capture_output=True, text=True, timeout=120, check=False)
        assert p.returncode in (0, 1) and p.stdout, p
        d = Doctor(p)
        assert d.json["ok"] == (d.rc == 0)
        return d
    return run


# --- the whole -------------------------------------------------------------------------------

def test_here(doctor):
    d = doctor()
    assert d.rc == 0 and d.talk == ""
    assert d.json["kernel"] == os.uname().release
    assert IDS <= set(d.checks)
    d.expect_required()
    for c in d.checks.values():
        assert c["status"] in ("ok", "limited", "missing"), c
        assert c["tried"] and (c["status"] == "ok" or c["means"]), f"no consequence: {c}"


def test_empty_environment(petri):
    p = subprocess.run([BIN, "doctor", "--json"], env={}, cwd="/", capture_output=True, text=True,
                       timeout=120, check=False)
    assert {c["id"] for c in json.loads(p.stdout)["checks"]} >= IDS


def test_documented(doctor):
    """Every check is in the page for users (the tests may be elsewhere without it)."""
    page = os.path.join(os.path.dirname(os.path.dirname(helpers.HERE)), "docs", "doctor.md")
    if not os.path.exists(page):
        return
    with open(page) as f:
        text = f.read().partition("## The checks")[2].partition("\n## ")[0]
    named = {w for line in text.splitlines() if line.startswith("| `")
             for w in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert set(doctor().checks) | {"idmap"} == named


def test_for_people(petri):
    r = petri.run(sub="doctor")
    r.ok()
    lines = r.out.splitlines()
    for line in lines[:-2]:
        assert re.match(r"(ok|limited|missing) {2,}\S|  +\S", line), line
    assert lines[-1].startswith("Sandboxes work here")
    assert "\033" not in r.out


def test_missing_for_people(petri):
    p = subprocess.run(refuse("unshare") + [BIN, "doctor"], env=petri.env, cwd=petri.project,
                       capture_output=True, text=True, timeout=120, check=False)
    assert p.returncode == 1
    assert re.search(r"^missing +user namespaces +\S", p.stdout, re.M)
    assert re.match(r"No sandbox can start here: 1 needed thing is missing, \d more could not be "
                    r"tried\.$", p.stdout.splitlines()[-1])
    assert p.stdout.count("missing ") == 1, "only the cause is shown"


@pytest.mark.parametrize("no_color", [None, "", "1"])
def test_colour_only_on_a_terminal(petri, no_color):
    env = dict(petri.env, **({} if no_color is None else {"NO_COLOR": no_color}))
    master, slave = pty.openpty()
    subprocess.run([BIN, "doctor"], env=env, stdin=slave, stdout=slave, stderr=slave, timeout=120,
                   check=False)
    os.close(slave)
    out = b""
    try:
        while chunk := os.read(master, 65536):
            out += chunk
    except OSError:
        pass
    os.close(master)
    assert (b"\033[" in out) == (no_color != "1")


@pytest.mark.parametrize("args", [["x"], ["--jsn"], ["--json=1"], ["-j"]])
def test_bad_words(petri, args):
    r = petri.run(*args, sub="doctor")
    r.ok(2)
    assert r.out == "" and len(r.talk.splitlines()) == 1


def test_quick(petri):
    """Below 100 ms; on a machine that is slow at everything, 200 times what a start costs. The best of
    some, side by side: the machine may be busy with something else."""
    took = {"doctor": [], "--version": []}
    for _ in range(10):
        for sub, times in took.items():
            times.append(petri.run(sub=sub).ok().seconds)
    assert min(took["doctor"]) < max(0.1, 200 * min(took["--version"])), took


def test_leaves_nothing(petri):
    """The store is not made, nothing is written beside it; mounts and cgroups: the leak check."""
    fresh = petri.path("fresh-store")
    before = helpers.tree(petri.home), os.listdir(petri.base)
    petri.run(sub="doctor", env={"PETRI_HOME": fresh}).ok()
    assert (helpers.tree(petri.home), os.listdir(petri.base)) == before
    os.makedirs(fresh, 0o700)
    petri.run(sub="doctor", env={"PETRI_HOME": fresh}).ok()
    assert os.listdir(fresh) == []


# --- user namespaces -------------------------------------------------------------------------

@pytest.mark.parametrize("left,status", [(0, "missing"), (50, "ok")])
def test_max_user_namespaces(doctor, left, status):
    d = doctor(*world(f"echo {left} >/proc/sys/user/max_user_namespaces"))
    if left:
        d.expect("userns", "ok")
    else:
        d.expect("userns", status, "max_user_namespaces=0", "sysctl -w user.max_user_namespaces=")
        assert d.rc == 1
        assert d["userns"]["tried"] and not d["namespaces"]["tried"]


def test_outer_limit_of_user_namespaces(doctor):
    """Here the number is fine; the namespace around allows no more."""
    script = "echo 1 >/proc/sys/user/max_user_namespaces"
    d = doctor(*world(script), *USER)
    d.expect("userns", "missing", "outer namespace")
    assert "max_user_namespaces=0" not in d["userns"]["value"]
    doctor(*world("echo 9 >/proc/sys/user/max_user_namespaces"), *USER).expect("userns", "ok")


def sysctls(**files):
    """A world whose /proc/sys/kernel says what we want (the kernel itself does not change)."""
    puts = "".join(f"echo {v} >/proc/sys/kernel/{k}; " for k, v in files.items())
    return world(f"mount -t tmpfs t /proc/sys/kernel; {puts}")


def test_unprivileged_userns_clone(doctor):
    off, on = sysctls(unprivileged_userns_clone=0), sysctls(unprivileged_userns_clone=1)
    d = doctor(*off, *USER, *refuse("unshare"))
    d.expect("userns", "missing", "unprivileged_userns_clone=0",
             "sudo sysctl -w kernel.unprivileged_userns_clone=1")
    assert d.rc == 1
    d = doctor(*on, *USER, *refuse("unshare"))
    assert "unprivileged_userns_clone" not in d.expect("userns", "missing")["userns"]["value"]
    doctor(*off, *USER).expect("userns", "ok")  # what works is never called switched off


@pytest.mark.parametrize("step", ["unshare", "maps"])
def test_apparmor_restriction(doctor, step):
    """Ubuntu: the namespace is refused, or it is made and its maps can't be written."""
    on = sysctls(apparmor_restrict_unprivileged_userns=1)
    off = sysctls(apparmor_restrict_unprivileged_userns=0)
    d = doctor(*on, *USER, *refuse(step))
    d.expect("userns", "missing", "AppArmor", "sudo apparmor_parser -r /etc/apparmor.d/petri")
    assert os.path.realpath(BIN) in d["userns"]["fix"]
    assert d.rc == 1
    d = doctor(*off, *USER, *refuse(step))
    assert "AppArmor" not in d.expect("userns", "missing")["userns"]["value"]
    doctor(*on, *USER).expect("userns", "ok")


@pytest.mark.parametrize("path,want", [
    (os.path.realpath(BIN), "sudo apparmor_parser -r /etc/apparmor.d/petri"),
    ("/usr/bin/other-petri", "sudo apparmor_parser -r /etc/apparmor.d/petri-local")])
def test_apparmor_profile_that_is_there(doctor, path, want):
    """The package's profile only has to be loaded; one for another path does not help."""
    script = sysctls(apparmor_restrict_unprivileged_userns=1)[-1]
    script += ("mount -t tmpfs t /etc; mkdir /etc/apparmor.d; "
               f"echo 'profile petri {path} flags=(unconfined) {{' >/etc/apparmor.d/petri")
    d = doctor(*world(script), *USER, *refuse("unshare"))
    assert d["userns"]["fix"].endswith(want)
    assert d["userns"]["fix"].startswith("sudo apparmor_parser" if "local" not in want else "printf")


@pytest.mark.parametrize("kind,word", [("docker", "docker run --security-opt seccomp=unconfined"),
                                       ("podman", "podman run --security-opt seccomp=unconfined"),
                                       ("lxc", "security.nesting true")])
def test_seccomp_of_a_container(doctor, kind, word):
    d = doctor(*world(":"), *USER, *refuse("unshare"), env={"container": kind})
    d.expect("userns", "missing", "seccomp", word)
    d.expect("container", "limited", kind, word)
    assert d.rc == 1
    d = doctor(*world(":"), *USER, *refuse("nothing"), env={"container": kind})
    d.expect("userns", "ok").expect("container", "ok", kind)
    assert d.rc == 0


def test_a_filter_that_kills(doctor):
    d = doctor(*refuse("kill"))
    assert d.rc == 1
    d.expect("userns", "missing", "signal 31")


def test_no_user_namespaces_in_the_kernel(doctor):
    d = doctor(*refuse("unshare:22"))
    d.expect("userns", "missing", "not in this kernel", "CONFIG_USER_NS")


def test_no_proc(doctor):
    d = doctor(*world("mount -t tmpfs t /proc"))
    d.expect("userns", "missing", "/proc is not mounted", "mount -t proc proc /proc")
    assert d.rc == 1


def test_chroot(petri):
    new = petri.path("newroot")
    for name in ("proc", "sys", "dev", "tmp"):
        os.makedirs(os.path.join(new, name))
    shutil.copy(BIN, new)
    into = f"mount --rbind /proc {new}/proc; mount --rbind /sys {new}/sys; "
    run = [*world(into), "chroot", new, "/" + os.path.basename(BIN), "doctor", "--json"]
    p = subprocess.run(run, env={"PATH": petri.env["PATH"], "PETRI_HOME": "/tmp/store"},
                       capture_output=True, text=True, timeout=120, check=False)
    Doctor(p).expect("userns", "missing", "chroot")
    # the same root, but entered as a root: pivot_root makes it no chroot
    into = (f"mount --rbind {new} {new}; cd {new}; mount --rbind /proc proc; mkdir -p old; "
            "pivot_root . old; cd /")
    run = [*WORLD[:-1], "sh", into, "/" + os.path.basename(BIN), "doctor", "--json"]
    p = subprocess.run(run, env={"PATH": petri.env["PATH"], "PETRI_HOME": "/tmp/store"},
                       capture_output=True, text=True, timeout=120, check=False)
    Doctor(p).expect("userns", "ok")


# --- other namespaces, /proc, seccomp --------------------------------------------------------

@pytest.mark.parametrize("name", ["mnt", "pid", "ipc", "uts", "net", "cgroup"])
def test_namespace_switched_off(doctor, name):
    d = doctor(*world(f"echo 0 >/proc/sys/user/max_{name}_namespaces"))
    d.expect("namespaces", "missing", f"{name}: ", f"user.max_{name}_namespaces=")
    assert d.rc == 1
    d = doctor(*world(f"echo 20 >/proc/sys/user/max_{name}_namespaces"))
    d.expect("namespaces", "ok")


@pytest.mark.parametrize("kind,word", [("docker", "--security-opt systempaths=unconfined"),
                                       ("podman", "--security-opt unmask=ALL")])
def test_covered_proc(doctor, kind, word):
    d = doctor(*world("mount -t tmpfs -o ro t /proc/sys"), *USER, env={"container": kind})
    d.expect("proc", "missing", "covered", word).expect("container", "limited", kind, word)
    assert d.rc == 1
    d = doctor(*world(":"), *USER, env={"container": kind})
    d.expect("proc", "ok").expect("container", "ok")
    assert d.rc == 0


def test_all_options_at_once(doctor):
    """One restart of the container must do, although only the first wall was met."""
    d = doctor(*world("mount -t tmpfs -o ro t /proc/sys"), *USER, *refuse("unshare"),
               env={"container": "docker"})
    assert d["container"]["fix"] == ("docker run --security-opt seccomp=unconfined "
                                     "--security-opt systempaths=unconfined ...")
    assert d["userns"]["fix"] == d["container"]["fix"]


@pytest.mark.parametrize("call", ["sethostname", "setns", "umount2", "pivot_root", "open_tree",
                                  "mount_setattr"])
def test_filtered_call(doctor, call):
    """Podman's filter, for one, allows namespaces and stops sethostname."""
    d = doctor(*refuse(call), env={"container": "podman"})
    d.expect("userns", "ok").expect("calls", "missing", f"{call} is refused by a seccomp filter",
                                    "podman run")
    assert "seccomp=unconfined" in d["calls"]["fix"] and d.rc == 1
    doctor(*refuse("nothing"), env={"container": "podman"}).expect("calls", "ok")


def test_no_seccomp(doctor):
    d = doctor(*refuse("seccomp:22"))
    d.expect("seccomp", "missing", "", "CONFIG_SECCOMP_FILTER")
    assert d.rc == 1


# --- files -----------------------------------------------------------------------------------

def test_store_on_a_disk_and_in_memory(doctor, petri):
    doctor(env={"PETRI_HOME": petri.path("deep", "er", "store")}).expect("store", "ok", " on ")
    mem = petri.path("mem")
    os.makedirs(mem)
    d = doctor(*world(f"mount -t tmpfs t {mem}"), env={"PETRI_HOME": mem + "/store"})
    assert "on tmpfs" in d["store"]["value"]


def test_store_on_overlay(doctor, petri):
    top = petri.path("ovl")
    for name in "luwo":
        os.makedirs(os.path.join(top, name))
    script = (f"cd {top}; mount -t overlay -o lowerdir=l,upperdir=u,workdir=w,userxattr o o; "
              f"cd {petri.project}")
    d = doctor(*world(script), *USER, env={"PETRI_HOME": top + "/o/store"})
    d.expect("store", "limited", "on overlay", "docker run" if MARKED else "PETRI_HOME=")
    assert d.rc == (1 if OLD else 0)
    if OLD:
        d.expect("overlay", "missing", "nor in the store", "PETRI_HOME=")
    d = doctor(*world(script), *USER, env={"PETRI_HOME": top + "/o/store", "container": "docker"})
    d.expect("store", "limited", "on overlay", f"docker run --tmpfs {top}/o/store:mode=1777")
    doctor(*world(script), *USER, env={"PETRI_HOME": top + "/store"}).expect("store", "ok")


def test_store_that_can_not_be(doctor, petri):
    ro = petri.path("ro")
    os.makedirs(ro)
    d = doctor(*world(f"mount -t tmpfs -o ro t {ro}"), env={"PETRI_HOME": ro + "/store"})
    d.expect("store", "missing", "read-only", "PETRI_HOME=")
    assert d.rc == 1
    d = doctor(env={"PETRI_HOME": "relative/store"})
    d.expect("store", "missing", "absolute path", "PETRI_HOME=")
    assert d.rc == 1


@pytest.mark.user
def test_store_of_somebody_else(doctor):
    d = doctor(env={"PETRI_HOME": "/var/lib/petri-nobody/x"})
    d.expect("store", "missing", "not writable", "PETRI_HOME=")


def casefold(top):
    """Commands that make a case-insensitive directory `top`/s; None: not in this kernel."""
    ways = [f"mount -t tmpfs -o casefold t {top}; mkdir {top}/s; chattr +F {top}/s"]
    if helpers.ROOT and os.path.exists("/sys/fs/ext4/features/casefold"):
        ways.append(f"truncate -s 64M {top}.img; mkfs.ext4 -q -O casefold {top}.img; "
                    f"mount -o loop {top}.img {top}; mkdir {top}/s; chattr +F {top}/s")
    for script in ways:
        wrap = ["unshare", "--mount", *WORLD[4:], script] if ".img" in script else world(script)
        if subprocess.run([*wrap, "true"], capture_output=True, check=False).returncode == 0:
            return wrap
    return None


def test_casefold(doctor, petri):
    fold = petri.path("fold")
    os.makedirs(fold)
    wrap = casefold(fold)
    if wrap:
        d = doctor(*wrap, env={"PETRI_HOME": fold + "/s"})
        assert "case-insensitive" in d["store"]["value"]
    assert "case-insensitive" not in doctor()["store"]["value"]


def test_no_overlay(doctor):
    d = doctor(*refuse("overlay"))
    assert d["overlay"]["status"] == "missing" and d.rc == 1
    assert "--workspace-mode" in d["overlay"]["means"]


def test_project_that_can_not_be_a_layer(doctor, petri):
    """Two overlays on top of each other are the most the kernel stacks."""
    top = petri.path("stack")
    for name in ("l", "u1", "w1", "o1", "u2", "w2", "o2"):
        os.makedirs(os.path.join(top, name))
    script = (f"cd {top}; mount -t overlay -o lowerdir=l,upperdir=u1,workdir=w1,userxattr o o1; "
              "mount -t overlay -o lowerdir=o1,upperdir=u2,workdir=w2,userxattr o o2; ")
    d = doctor(*world(script + f"cd {top}/o2"), *USER)
    d.expect("project", "limited", "on overlay", "--workspace-mode copy")
    assert d.rc == 0
    doctor(*world(script + f"cd {top}/o1"), *USER).expect("project", "ok", "on overlay")


# --- network ---------------------------------------------------------------------------------

def test_network(doctor):
    doctor().expect("network", "ok", "limited allowlist full")
    d = doctor(*world(":"), *USER, env={"container": "docker"})
    d.expect("network", "ok", "limited allowlist full")


def test_network_namespaces_used_up(doctor):
    """One is enough for a sandbox with --network none; a gateway needs one more."""
    d = doctor(*world("echo 1 >/proc/sys/user/max_net_namespaces"), *USER)
    d.expect("namespaces", "ok").expect("network", "limited", "network namespaces",
                                        "user.max_net_namespaces=")
    assert "--network none" in d["network"]["means"] and d.rc == 0


def test_network_without_a_cable(doctor):
    d = doctor(*refuse("route:93"))
    d.expect("network", "limited")
    assert "--network none" in d["network"]["means"] and d.rc == 0


def test_network_without_nftables(doctor):
    d = doctor(*refuse("netfilter:93"))
    d.expect("network", "limited", "none limited allowlist; not full: ", "modprobe nft_tproxy")
    assert "--network full" in d["network"]["means"] and d.rc == 0
    doctor(*refuse("nothing")).expect("network", "ok")


@pytest.mark.parametrize("text,status,word,fix",
                         [("nameserver 192.0.2.1\n", "ok", "/etc/resolv.conf", ""),
                          ("# nobody\n", "limited", "names no server", "nameserver")])
def test_names(doctor, petri, text, status, word, fix):
    conf = petri.path("resolv.conf")
    helpers.write(conf, text, 0o644)
    over = world(f"mount --bind {conf} $(readlink -f /etc/resolv.conf)")
    doctor(*over, *USER).expect("names", status, word, fix)


def test_names_that_can_not_be_read(doctor, petri):
    conf = petri.path("resolv.conf")
    helpers.write(conf, "nameserver 192.0.2.1\n", 0o000)
    over = world(f"mount --bind {conf} $(readlink -f /etc/resolv.conf)")
    doctor(*over, *USER).expect("names", "limited", "can't be read", "chmod a+r")


# --- ids -------------------------------------------------------------------------------------

def test_no_subuid_range(doctor):
    script = "mount --bind /dev/null /etc/subuid"
    doctor(*world(script), *USER).expect("subuid", "limited", "/etc/subuid", "--add-subuids")


def test_no_newuidmap(doctor):
    helper = shutil.which("newuidmap")
    assert helper, "the test needs uidmap installed"
    script = f"mount --bind /dev/null {helper}"
    doctor(*world(script), *USER).expect("subuid", "limited", "newuidmap is not installed",
                                         "apt install uidmap")


NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def as_nobody(petri, script, *wrap):
    """Real ids: only the true root can hand them out."""
    tmp = petri.path("nobody")
    os.makedirs(tmp, exist_ok=True)
    os.chown(tmp, 65534, 65534)
    for d in (petri.base, os.path.dirname(petri.base)):
        os.chmod(d, 0o755)
    ranges = petri.path("ranges")
    helpers.write(ranges, "daemon:100000:65536\nnobody:300000:65536\n")
    bind = f"mount --bind {ranges} /etc/subuid; mount --bind {ranges} /etc/subgid; "
    p = subprocess.run(["unshare", "--mount", "sh", "-ec", 'eval "$1"; shift; exec "$@"', "sh",
                        bind + script, *NOBODY, *wrap, BIN, "doctor", "--json"],
                       env=dict(petri.env, PETRI_HOME=tmp, HOME=tmp), cwd="/tmp",
                       capture_output=True, text=True, timeout=120, check=False)
    return Doctor(p)


@pytest.mark.root
def test_subids_for_real(petri):
    as_nobody(petri, ":").expect("subuid", "ok", "300000")
    d = as_nobody(petri, ":", "setpriv", "--no-new-privs")
    d.expect("subuid", "limited", "no_new_privs")
    copy = petri.path("newuidmap")
    shutil.copy(shutil.which("newuidmap"), copy)
    os.chmod(copy, 0o755)
    d = as_nobody(petri, f"mount --bind {copy} {shutil.which('newuidmap')}")
    d.expect("subuid", "limited", "not set-uid", "chmod u+s")
    d = as_nobody(petri, "mount -t tmpfs -o mode=755 t /etc; "
                         "echo nobody:x:65534:65534::/:/bin/sh >/etc/passwd")
    d.expect("subuid", "limited", "no range")


@pytest.mark.root
def test_free_range(petri):
    """The range that the fix names is nobody else's."""
    other = petri.path("others")
    helpers.write(other, "daemon:100000:65536\nbin:400000:65536\n")
    d = as_nobody(petri, f"mount --bind {other} /etc/subuid; mount --bind {other} /etc/subgid")
    d.expect("subuid", "limited", "no range",
             "--add-subuids 465536-531071 --add-subgids 465536-531071 nobody")


@pytest.mark.root
def test_ordinary_user_works(petri):
    d = as_nobody(petri, ":")
    assert d.rc == 0
    d.expect_required()
    assert "idmap" not in d.checks


@pytest.mark.root
def test_idmap(doctor):
    doctor().expect("idmap", "ok")
    d = doctor(*refuse("mount_setattr"))
    d.expect("idmap", "limited", "/usr")


@pytest.mark.root
def test_root_of_a_container(doctor):
    """Root without the rights of root, as in a container: petri works as for an ordinary user."""
    d = doctor("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin",
               env={"container": "docker"})
    d.expect("userns", "ok").expect("overlay", "limited" if OLD else "ok").expect("proc", "ok")
    d.expect("idmap", "limited", "/usr")
    assert d.rc == 0


# --- limits, linger, room --------------------------------------------------------------------

@pytest.mark.root
def test_cgroups(doctor):
    doctor().expect("cgroup", "ok", "memory cpus pids")


def test_no_cgroups(doctor):
    d = doctor(*world("mount -t tmpfs t /sys/fs/cgroup"), *USER)
    d.expect("cgroup", "limited", "pids (rlimit)")
    assert d["cgroup"]["fix"] and "memory" in d["cgroup"]["means"]
    assert d.rc == 0


def test_linger(doctor, petri):
    passwd = petri.path("passwd")
    helpers.write(passwd, "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n")
    script = (f"mount --bind {passwd} /etc/passwd; mount -t tmpfs t /run; "
              "mkdir -p /run/systemd/system; mount -t tmpfs t /var/lib; "
              "mkdir -p /var/lib/systemd/linger; ")
    d = doctor(*world(script), *USER)
    d.expect("linger", "limited", "off", "loginctl enable-linger alice")
    d = doctor(*world(script + ": >/var/lib/systemd/linger/alice"), *USER)
    d.expect("linger", "ok", "on")
    d = doctor(*world(script + "rm -r /run/systemd"), *USER)
    d.expect("linger", "ok", "not needed")


@pytest.mark.parametrize("mib,status", [(100, "limited"), (1000, "limited"), (8000, "ok")])
def test_memory(doctor, petri, mib, status):
    info = petri.path("meminfo")
    helpers.write(info, f"MemTotal: 99999999 kB\nMemAvailable:   {mib * 1024} kB\n")
    d = doctor(*world(f"mount --bind {info} /proc/meminfo"))
    d.expect("memory", status, "available", "-m" if status != "ok" else "")


@pytest.mark.parametrize("size,status", [("1M", "limited"), ("2G", "ok")])
def test_disk(doctor, petri, size, status):
    small = petri.path("small")
    os.makedirs(small)
    d = doctor(*world(f"mount -t tmpfs -o size={size} t {small}"),
               env={"PETRI_HOME": small + "/store"})
    d.expect("disk", status, "free", "PETRI_HOME" if status != "ok" else "")


# --- extras ----------------------------------------------------------------------------------

def test_old_kernel(doctor):
    d = doctor("setarch", "--uname-2.6")
    d.expect("kernel", "missing", "2.6.", "6.1")
    assert d.rc == 1
    doctor().expect("kernel", "ok", os.uname().release)


def test_landlock(doctor):
    doctor(*refuse("landlock:38")).expect("landlock", "limited", "not available")
    doctor(*refuse("landlock:95")).expect("landlock", "limited", "switched off", "lsm=")
    with open("/sys/kernel/security/lsm") if os.path.exists("/sys/kernel/security/lsm") else \
            open("/dev/null") as f:
        if "landlock" in f.read():
            doctor().expect("landlock", "ok", "ABI")


def test_kvm(doctor, petri):
    if os.path.exists("/dev/kvm"):
        d = doctor(*world("mount --bind /dev/null /dev/kvm"))
        d.expect("kvm", "limited", "makes no machine")
    d = doctor(*world("mount -t tmpfs t /dev"), *USER)
    d.expect("kvm", "limited", "no /dev/kvm", "--device /dev/kvm" if MARKED else "modprobe kvm")
    assert d.rc == 0


def test_runtimes(doctor, petri):
    helpers.write(petri.path("bin", "runsc"), "#!/bin/sh\n", 0o755)
    helpers.write(petri.path("bin2", "runsc"), "#!/bin/sh\n", 0o644)
    path = petri.env["PATH"]
    have = bool(shutil.which("runsc", path=path))
    assert "runsc" in doctor(env={"PATH": petri.path("bin") + ":" + path})["runtimes"]["value"]
    d = doctor(env={"PATH": petri.path("bin2") + ":" + path})
    assert ("runsc" in d["runtimes"]["value"]) == have
    d.expect("runtimes", "ok", "libcrun")


def helper_program(name):
    """Beside petri in a build tree, in libexec where it is installed."""
    top = os.path.dirname(os.path.realpath(BIN))
    places = [os.path.join(top, name), os.path.join(top, "..", "libexec", "petri", name)]
    return next(p for p in places if os.path.exists(p))


def test_parts(petri):
    alone = petri.path("alone")
    os.makedirs(alone)
    shutil.copy(BIN, alone)
    p = subprocess.run([os.path.join(alone, os.path.basename(BIN)), "doctor", "--json"],
                       env=petri.env, capture_output=True, text=True, timeout=120, check=False)
    d = Doctor(p)
    installed = d["parts"]["status"] == "ok"
    assert (d.rc == 0) == installed
    if not installed:
        d.expect("parts", "missing", "petri-init", "install")
    for name, status in (("petri-init", "limited"), ("petri-gateway", "ok")):
        shutil.copy(helper_program(name), alone)
        p = subprocess.run([os.path.join(alone, os.path.basename(BIN)), "doctor", "--json"],
                           env=petri.env, capture_output=True, text=True, timeout=120, check=False)
        d = Doctor(p)
        assert d.rc == 0
        d.expect("parts", "ok" if installed else status,
                 alone if installed or status == "ok" else "petri-gateway")
