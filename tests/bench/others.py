"""The programs petri is compared with: how each is called for the same job.

Each function returns a Case, or raises Fail with the reason why this peer can't be measured here.
The job is always: start the probe in new namespaces, with the host's system directories and the
project inside where the program can do that, and with petri's default limits where it knows limits.
"""
import json
import os
import re
import shutil
import subprocess
import time

from scratch import HERE, Fail, sh

BINDS = ("/usr", "/opt", "/var/lib/dpkg", "/var/lib/apt", "/etc")
UNIFIED = "/sys/fs/cgroup/unified"
LIMITS = ["--memory", "2g", "--memory-swap", "2g", "--cpus", "2", "--pids-limit", "256"]
TAG = "petri-bench-%d-" % os.getpid()
# Raising a hard limit needs a capability that root lacks in some VMs; these are below any default.
ULIMITS = ["--ulimit", "nofile=1024:4096", "--ulimit", "nproc=1024:1024"]


class Case:
    """One command line for timeit; `held` is the same one for a probe that waits, or None."""

    def __init__(self, name, argv, user, cwd, held=None, umount=None):
        self.name, self.argv, self.user, self.cwd = name, list(argv), user, cwd
        self.held, self.umount = held, umount
        self.env, self.random = {}, False      # more variables; the job is `probe echo`
        self.before, self.after = [], []       # command lines outside the clock

    def spec(self):
        lines = ["case " + self.name, "cwd " + self.cwd]
        if self.user.uid != os.geteuid():
            lines += ["uid %d" % self.user.uid, "gid %d" % self.user.gid]
        if self.umount:
            lines.append("umount " + self.umount)
        if self.random:
            lines.append("random 1")
        lines += ["env %s=%s" % kv for kv in (self.user.env() | self.env).items()]
        for key, commands in (("before", self.before), ("after", self.after)):
            lines += ["%s %s" % (key, w) for argv in commands for w in [*argv, ";"]]
        return "\n".join(lines + ["arg " + a for a in self.argv]) + "\n"

    def start_held(self):
        argv = self.held
        if self.umount:
            argv = ["unshare", "-m", "sh", "-c", 'umount -l "$0" && exec "$@"', self.umount] + argv
        ids = {} if self.user.uid == os.geteuid() else {
            "user": self.user.uid, "group": self.user.gid, "extra_groups": []}
        # Pipes throughout: OCI runtimes chown their stdio to the container's user.
        return subprocess.Popen(argv, cwd=self.cwd, env=self.user.env(), stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **ids)


def which(name, first=()):
    for p in first:
        if os.access(p, os.X_OK):
            return p
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if not found:
        raise Fail("%s is not installed (make bench-peers)" % name)
    return found


def root_links():
    return [(n, os.readlink("/" + n)) for n in ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
            if os.path.islink("/" + n)]


def probe_case(name, argv, probe, user, cwd, umount=None):
    """A case whose last word is the probe."""
    argv = [*argv, probe]
    return Case(name, argv, user, cwd, held=[*argv, "hold", TAG + name], umount=umount)


def bwrap(name, user, project):
    argv = [which("bwrap"), "--unshare-all", "--die-with-parent", "--new-session"]
    for d in BINDS:
        if os.path.isdir(d):
            argv += ["--ro-bind", d, d]
    for n, target in root_links():
        argv += ["--symlink", target, "/" + n]
    argv += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run",
             "--tmpfs", user.home, "--bind", project, "/workspace", "--bind", project, project,
             "--chdir", project]
    return probe_case(name, argv, os.path.join(project, "probe"), user, project)


def seccomp_profile():
    """petri's own profile in OCI's form, read from the lists it is compiled from."""
    with open(os.path.join(HERE, "../../oci/gen/seccomp_gen.c"), encoding="utf-8") as f:
        src = f.read()

    def names(table):
        m = re.search(table + r"\[\] = \{(.*?)\n\};", src, re.S)
        if not m:
            raise Fail("no table '%s' in oci/gen/seccomp_gen.c: others.py must learn why" % table)
        return re.findall(r'"(\w+)"', m.group(1))

    def arg(index, value, op, two=0):
        return {"index": index, "value": value, "valueTwo": two, "op": "SCMP_CMP_" + op}

    allow = {"action": "SCMP_ACT_ALLOW"}
    eperm = {"action": "SCMP_ACT_ERRNO", "errnoRet": 1}
    new_ns = [0x20000] + [1 << b for b in range(25, 31)]
    rules = [dict(allow, names=names("allowed")), dict(eperm, names=names("refused")),
             dict(allow, names=["prlimit64"]),
             dict(allow, names=["clone"], args=[arg(0, sum(new_ns), "MASKED_EQ", 0)])]
    rules += [dict(eperm, names=["clone"], args=[arg(0, n, "MASKED_EQ", n)]) for n in new_ns]
    rules += [dict(allow if f in (1, 2, 10, 16) else eperm, names=["socket"],
                   args=[arg(0, f, "EQ")]) for f in range(46)]
    arch = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}[os.uname().machine]
    return {"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38, "architectures": [arch],
            "syscalls": rules}


def bundle_config(project, cgroup, args):
    def bind(src, dst, *opts):
        return {"destination": dst, "source": src, "type": "bind",
                "options": ["rbind", "nosuid", "nodev", *opts]}

    def tmpfs(dst, *opts):
        return {"destination": dst, "source": "tmpfs", "type": "tmpfs",
                "options": ["nosuid", *opts]}

    ids = [{"containerID": 0, "hostID": 1000000, "size": 65536}]
    mounts = [bind(d, d, "ro") for d in BINDS if os.path.isdir(d)]
    mounts += [bind(project, "/workspace"), bind(project, project),
               {"destination": "/proc", "source": "proc", "type": "proc"},
               tmpfs("/dev", "mode=755"),
               {"destination": "/dev/pts", "source": "devpts", "type": "devpts",
                "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]},
               tmpfs("/dev/shm", "nodev", "mode=1777"), tmpfs("/tmp", "nodev"),
               tmpfs("/run", "nodev"), tmpfs("/home/user", "nodev")]
    return {
        "ociVersion": "1.0.2", "hostname": "bench", "mounts": mounts,
        "root": {"path": "rootfs", "readonly": False},
        "process": {
            "terminal": False, "user": {"uid": 1000, "gid": 1000}, "cwd": "/", "args": args,
            "env": ["PATH=/usr/bin:/bin"], "noNewPrivileges": True,
            "capabilities": {k: [] for k in ("bounding", "effective", "permitted", "inheritable",
                                             "ambient")},
            "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 4096, "soft": 4096}]},
        "linux": {
            "namespaces": [{"type": t} for t in ("pid", "network", "ipc", "uts", "mount", "user",
                                                 "cgroup")],
            "uidMappings": ids, "gidMappings": ids, "cgroupsPath": cgroup,
            "resources": {"memory": {"limit": 2 << 30, "swap": 2 << 30}, "pids": {"limit": 256},
                          "cpu": {"quota": 200000, "period": 100000}},
            "seccomp": seccomp_profile(),
            "maskedPaths": ["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list",
                            "/proc/scsi", "/sys/firmware"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"]}}


def bundle(scratch, project, tag, args):
    top = scratch.path("bundle-" + tag)
    root = os.path.join(top, "rootfs")
    dirs = [d for d in BINDS if os.path.isdir(d)] + ["/proc", "/dev", "/sys", "/tmp", "/run",
                                                      "/home/user", "/workspace", project]
    for d in dirs:
        os.makedirs(root + d, exist_ok=True)
    for n, target in root_links():
        os.symlink(target, os.path.join(root, n))
    with open(os.path.join(top, "config.json"), "w", encoding="ascii") as f:
        json.dump(bundle_config(project, scratch.cgroup_parent + "/petri-bench-" + tag, args), f)
    return top


def runtime(name, scratch, user, project):
    """crun or runc. crun refuses the hybrid cgroup layout: it gets a view without `unified`."""
    prog = which(name)
    hide = name == "crun" and os.path.ismount(UNIFIED)
    probe = "/workspace/probe"
    argv = [prog, "--root", scratch.path(name + "-state")]
    if name == "crun":
        argv += ["--cgroup-manager", "cgroupfs"]
    plain = bundle(scratch, project, name, [probe])
    held = bundle(scratch, project, name + "-hold", [probe, "hold", TAG + name])
    return Case(name, argv + ["run", "-b", plain, "bench-" + name], user, "/",
                held=argv + ["run", "-b", held, "bench-hold-" + name],
                umount=UNIFIED if hide else None)


def image_tar(scratch):
    top, tar = scratch.path("image"), scratch.path("image.tar")
    if not os.path.exists(tar):
        for d in ("bin", "etc", "proc", "dev", "sys", "tmp"):
            os.makedirs(os.path.join(top, d))
        shutil.copy(scratch.path("probe"), top)
        sh("tar", "-C", top, "-cf", tar, ".")
    return tar


def parent_option(scratch):
    return ["--cgroup-parent", scratch.cgroup_parent] if scratch.cgroup_parent else []


def once(prepare):
    """What a peer needs is set up once, whoever asks; a failure stays one."""
    done = {}

    def get(scratch):
        if scratch.dir not in done:
            try:
                done[scratch.dir] = prepare(scratch)
            except Fail as e:
                done[scratch.dir] = e
        if isinstance(done[scratch.dir], Fail):
            raise done[scratch.dir]
        return done[scratch.dir]
    return get


@once
def podman_up(scratch):
    """Its command line up to the verb, with the image in a store of its own."""
    argv = [which("podman"), "--root", scratch.path("podman/root"), "--runroot",
            scratch.path("podman/run"), "--tmpdir", scratch.path("podman/tmp"),
            "--cgroup-manager", "cgroupfs"]
    sh(*argv, "import", "-q", image_tar(scratch), "bench:latest")
    # Its storage keeps a mount of its own alive.
    scratch.at_end.append(lambda: subprocess.run(
        ["umount", "-l", scratch.path("podman/root/overlay")], stderr=subprocess.DEVNULL,
        check=False))
    return argv


@once
def docker_up(scratch):
    """The same; the daemon is one of our own and ends with us."""
    daemon = which("dockerd")
    client = which("docker", [os.path.join(os.path.dirname(daemon), "docker"), "/usr/bin/docker"])
    top = scratch.path("docker")
    os.mkdir(top)
    host = "unix://%s/sock" % top
    with open(os.path.join(top, "log"), "w", encoding="utf-8") as log:
        p = subprocess.Popen([daemon, "--iptables=false", "--ip6tables=false", "--bridge=none",
                              "--data-root", top + "/data", "--exec-root", top + "/exec",
                              "--pidfile", top + "/pid", "-H", host],
                             stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def end():
        p.terminate()
        try:
            p.wait(20)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
    scratch.at_end.append(end)
    for _ in range(100):
        if subprocess.run([client, "-H", host, "version"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False).returncode == 0:
            break
        if p.poll() is not None:
            raise Fail("dockerd ended: see its log")
        time.sleep(0.2)
    else:
        raise Fail("dockerd does not answer")
    sh(client, "-H", host, "import", image_tar(scratch), "bench:latest")
    return [client, "-H", host]


def podman_view():
    """crun, below podman, refuses the hybrid cgroup layout, too."""
    return UNIFIED if os.path.ismount(UNIFIED) else None


def podman(scratch, user):
    return probe_case("podman", podman_up(scratch) + [
        "run", "--rm", "--network", "none", *LIMITS, *ULIMITS, *parent_option(scratch),
        "localhost/bench:latest"], "/probe", user, "/", umount=podman_view())


def docker(scratch, user):
    return probe_case("docker", docker_up(scratch) + [
        "run", "--rm", "--network", "none", *LIMITS, *parent_option(scratch), "bench:latest"],
        "/probe", user, "/")


def exec_case(name, argv, user, umount=None):
    """An exec of `probe echo` by a peer that takes variables by -e."""
    case = Case(name, [*argv, "/probe", "echo", "@A@", "@S@"], user, "/", umount=umount)
    case.random = True
    return case


def podman_exec(scratch, user):
    argv, view, name = podman_up(scratch), podman_view(), TAG + "exec"
    hidden = ["unshare", "-m", "sh", "-c", 'umount -l "$0" && exec "$@"', view] if view else []
    sh(*hidden, *argv, "run", "-d", "--name", name, "--network", "none", *LIMITS, *ULIMITS,
       *parent_option(scratch), "localhost/bench:latest", "/probe", "pause")
    scratch.at_end.append(lambda: subprocess.run(
        [*hidden, *argv, "rm", "-f", "-t", "0", name], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, check=False))
    return exec_case("podman-exec", [*argv, "exec", "-i", "-e", "PROBE=@E@", name], user, view)


def docker_exec(scratch, user):
    argv, name = docker_up(scratch), TAG + "exec"
    sh(*argv, "run", "-d", "--name", name, "--network", "none", *LIMITS, *parent_option(scratch),
       "bench:latest", "/probe", "pause")
    scratch.at_end.append(lambda: subprocess.run(
        [*argv, "rm", "-f", name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        check=False))
    return exec_case("docker-exec", [*argv, "exec", "-i", "-e", "PROBE=@E@", name], user)


def cgroup_dirs():
    """The first two levels of every hierarchy, to see afterwards what the peers left there."""
    found = set()
    for top, dirs, _ in os.walk("/sys/fs/cgroup"):
        if top.count("/") >= 5:
            dirs.clear()
        found.update(os.path.join(top, d) for d in dirs)
    return found


def remove_cgroups(before):
    """Removes the empty parents that podman and docker leave; never one that was there before."""
    names = ("docker", "libpod_parent", "petri-bench-")
    for path in sorted(cgroup_dirs() - before, reverse=True):
        if os.path.basename(path).startswith(names):
            for d, _, _ in os.walk(path, topdown=False):
                try:
                    os.rmdir(d)
                except OSError:
                    pass
