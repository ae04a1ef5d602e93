"""The image `host`: this machine's own programs and nothing else of the machine."""
import os
import re
import shutil
import socket
import subprocess

import pytest

from helpers import BIN, CANARY, read, tree, write


@pytest.mark.parametrize("program", ["python3 --version", "gcc --version", "git --version", "perl -v",
                                     "bash --version", "cmake --version", "make --version"])
def test_same_programs(petri, program):
    if not shutil.which(program.split()[0], path=petri.env["PATH"]):
        pytest.skip("not installed on this machine")
    outside = subprocess.run(program.split(), env=petri.env, capture_output=True, text=True).stdout
    assert petri.run("--", *program.split()).ok().out == outside


def test_compile_and_run(petri):
    petri.file("t.c", '#include <stdio.h>\nint main(void) { puts("compiled"); return 0; }\n')
    assert petri.sh("gcc -o /tmp/t t.c && /tmp/t && gcc -o t t.c && ./t").ok().out == "compiled\n" * 2


def test_python_with_its_packages(petri):
    petri.run("--", "python3", "-c", "import ssl, sqlite3, pwd, os; pwd.getpwuid(os.getuid())").ok()


def test_package_data_base_can_be_read(petri):
    outside = subprocess.run(["dpkg-query", "-W", "bash"], capture_output=True, text=True).stdout
    assert petri.run("--", "dpkg-query", "-W", "bash").ok().out == outside


def test_what_is_not_there(petri):
    """Other people's files, services' data, keys, logs, sockets."""
    r = petri.sh("ls -A /root /home /srv /boot /media /mnt /run /var/log /var/spool /var/mail /var/cache "
                 "/var/lib 2>/dev/null | grep -v :; ls /etc/ssh/ssh_host* /etc/ssl/private /etc/sudoers "
                 "/etc/crontab /etc/NetworkManager /etc/wireguard /lost+found 2>/dev/null; true").ok()
    names = set(r.out.split())
    allowed = {"dpkg", "apt", "user", "lock", "misc", "pam", "systemd", "ucf", "man", "debconf", "ldconfig",
               "apt", "proj", os.path.basename(petri.home)}
    me = petri.run("--", "id", "-un").ok().out.strip()
    assert names <= allowed | {me, ".pyenv", ".cargo", ".rustup"}, names - allowed
    for name in os.listdir("/home"):
        if name != me:
            assert name not in names, "another account's home shows"


def test_etc_is_an_allowlist(petri):
    """Nothing that only root may read, nothing with a host's or a person's identity."""
    r = petri.sh("find /etc -type f ! -readable 2>/dev/null; find /etc -name '*key*' -path '*private*'; "
                 "cat /etc/machine-id /etc/fstab 2>/dev/null").ok()
    assert set(r.out.split()) <= {"/etc/shadow", "/etc/gshadow"}, r


def test_system_is_read_only(petri):
    r = petri.sh("touch /usr/x /usr/bin/x /etc/x /opt/x /bin/x /var/lib/dpkg/x /x; rm -f /usr/bin/env; "
                 "ls /usr/bin/env").ok()
    assert r.out == "/usr/bin/env\n" and not os.path.exists("/usr/x")


# --- tool chains in the home -----------------------------------------------------------------

def tool(path, says):
    return write(path, f"#!/bin/sh\necho {says}\n", 0o755)


@pytest.fixture
def home(petri):
    """A home with tool chains as their installers make them, and the tokens that lie beside."""
    h = petri.home
    tool(f"{h}/.cargo/bin/cargo", "cargo")
    write(f"{h}/.cargo/config.toml", CANARY)
    tool(f"{h}/.nvm/versions/node/v20/bin/node", "node")
    write(f"{h}/.nvm/.npmrc", CANARY)
    tool(f"{h}/.pyenv/shims/python9", "pyenv")
    tool(f"{h}/go/bin/gotool", "go")
    tool(f"{h}/.volta/bin/volta", "volta")
    tool(f"{h}/.local/share/pipx/venvs/black/bin/black", "pipx")
    os.makedirs(f"{h}/.local/bin")
    os.symlink(f"{h}/.local/share/pipx/venvs/black/bin/black", f"{h}/.local/bin/black")
    tool(f"{h}/odd/place/oddtool", "odd")
    write(f"{h}/odd/private", CANARY)
    dirs = [".cargo/bin", ".nvm/versions/node/v20/bin", ".pyenv/shims", "go/bin", ".volta/bin", ".local/bin",
            "odd/place"]
    petri.env["PATH"] = ":".join([f"{h}/{d}" for d in dirs] + ["/usr/bin", "/bin"])
    return h


def test_tools_of_the_home_are_found(petri, home):
    """In the first run and in those that share what the second one made."""
    for _ in range(3):
        r = petri.sh(f"cargo; node; python9; gotool; volta; black; oddtool; ls -A {home}/.local/bin").ok()
        assert r.out.split() == ["cargo", "node", "pyenv", "go", "volta", "pipx", "odd", "black"], r


def test_tools_of_the_home_in_a_sandbox_that_stays(petri, home):
    petri.own_store(kept=True)
    for verb in ("start", "restart"):
        petri.run("-q", sub=verb).ok()
        r = petri.run("--", "sh", "-c", "cargo; black", sub="exec").ok()
        assert r.out.split() == ["cargo", "pipx"], r
    petri.run("-f", "proj-1", sub="rm").ok()


@pytest.mark.user
def test_local_bin_of_the_user(petri):
    """Of the account's own home, which is the home inside too."""
    petri.own_store(kept=True)
    mine = petri.env["HOME"] = os.path.expanduser("~")
    link = f"{mine}/.local/bin/petri-test-black"
    petri.env["PATH"] = f"{mine}/.local/bin:/usr/bin:/bin"
    os.makedirs(os.path.dirname(link), exist_ok=True)
    os.symlink(tool(f"{mine}/.local/share/pipx/venvs/petri-test/bin/black", "pipx"), link)
    look = ("--", "sh", "-c", "petri-test-black; touch ~/.local/bin/mine; ls ~/.local/bin/mine")
    try:
        for _ in range(3):
            assert petri.run(*look).ok().out.split() == ["pipx", f"{mine}/.local/bin/mine"]
        petri.run("-q", sub="start").ok()
        assert petri.run(*look, sub="exec").ok().out.split() == ["pipx", f"{mine}/.local/bin/mine"]
        petri.run("-f", "proj-1", sub="rm").ok()
    finally:
        os.unlink(link)
        shutil.rmtree(f"{mine}/.local/share/pipx/venvs/petri-test")


@pytest.mark.root
def test_local_bin_of_the_projects_owner(petri, home):
    petri.own_store(kept=True)
    users = petri.path("passwd")
    shutil.copy("/etc/passwd", users)
    with open(users, "a", encoding="ascii") as f:
        f.write(f"ada:x:4321:4321::{home}:/bin/sh\n")
    for top, dirs, files in os.walk(petri.base):
        for name in [top, *(os.path.join(top, n) for n in dirs + files)]:
            if not name.startswith(petri.store):
                os.lchown(name, 4321, 4321)

    def as_root(*words):
        r = subprocess.run(["unshare", "-m", "sh", "-c", f'mount --bind {users} /etc/passwd && exec "$@"', "sh", BIN,
                            *words], env=petri.env, cwd=petri.project, capture_output=True, text=True, timeout=60)
        assert r.returncode == 0, r
        return r.stdout
    for _ in range(3):
        assert as_root("run", "--", "sh", "-c", "black; touch ~/.local/bin/mine; ls ~/.local/bin").split() == [
            "pipx", "black", "mine"]
    as_root("start", "-q")
    assert as_root("exec", "--", "sh", "-c", "black; touch ~/.local/bin/mine; ls ~/.local/bin").split() == [
        "pipx", "black", "mine"]
    as_root("rm", "-f", "proj-1")


def test_tools_come_without_secrets(petri, home):
    before = tree(home)
    r = petri.sh(f"cat {home}/.cargo/credentials.toml {home}/.cargo/config.toml {home}/.nvm/.npmrc "
                 f"{home}/.npmrc {home}/odd/private {home}/.ssh/id_rsa; grep -r CANARY {home}; "
                 f"echo x >{home}/.cargo/bin/cargo; rm -f {home}/go/bin/gotool; touch {home}/.pyenv/shims/new")
    assert CANARY not in r.out, r
    assert tree(home) == before


def test_path_can_not_bring_secrets_in(petri):
    """PATH is a wish, not a key: a home, a credentials directory or / in it stay out."""
    h = petri.home
    os.symlink(f"{h}/.ssh", f"{h}/innocent")
    tool(f"{h}/toplevel", "top")
    petri.env["PATH"] = f"{h}:{h}/.ssh:{h}/innocent:{h}/.aws:/:/run:/proc/self/root:.:/usr/bin:/bin"
    r = petri.sh(f"cat {h}/.ssh/id_rsa {h}/innocent/id_rsa {h}/.aws/credentials {h}/.netrc; ls -A {h}; echo $PATH")
    assert CANARY not in r.out and ".ssh" not in r.out.replace(r.out.splitlines()[-1], ""), r
    assert ":.:" not in r.out


def test_variables_of_tool_chains(petri, home):
    os.makedirs(f"{home}/.rustup/toolchains/stable")
    petri.env.update({"NVM_DIR": f"{home}/.nvm", "PYENV_ROOT": f"{home}/.pyenv", "RUSTUP_HOME": f"{home}/.rustup",
                      "JAVA_HOME": "/nowhere/java", "GOPATH": f"{home}/nothing-there"})
    r = petri.run("--", "env").ok()
    got = dict(x.split("=", 1) for x in r.out.splitlines() if "=" in x)
    assert got.get("NVM_DIR") == f"{home}/.nvm" and got.get("PYENV_ROOT") == f"{home}/.pyenv", r
    assert "JAVA_HOME" not in got and "GOPATH" not in got, r


# --- user 0 ----------------------------------------------------------------------------------

def build_deb(petri):
    d = petri.path("deb")
    write(f"{d}/DEBIAN/control", "Package: petri-hello\nVersion: 1\nArchitecture: all\nMaintainer: t <t@t>\n"
                                 "Description: a package to try things with\n")
    write(f"{d}/DEBIAN/postinst", "#!/bin/sh\nset -e\necho configured >/etc/petri-hello.conf\n", 0o755)
    write(f"{d}/usr/bin/petri-hello", "#!/bin/sh\necho hello from a package\n", 0o755)
    out = os.path.join(petri.project, "hello.deb")
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", d, out], check=True, stdout=subprocess.DEVNULL)
    return out


@pytest.mark.root
def test_install_a_package(petri):
    """apt-get install of a local .deb works for user 0, and the host stays as it was."""
    build_deb(petri)
    before = read("/var/lib/dpkg/status"), [os.stat(d).st_mtime_ns for d in ("/usr/bin", "/etc", "/var/lib/dpkg")]
    r = petri.sh("apt-get install -y --no-install-recommends ./hello.deb >/tmp/log 2>&1 || cat /tmp/log; "
                 "petri-hello; cat /etc/petri-hello.conf; dpkg-query -W petri-hello", "-u", "0", timeout=120).ok()
    assert "hello from a package\nconfigured\n" in r.out, r
    assert not os.path.exists("/usr/bin/petri-hello") and not os.path.exists("/etc/petri-hello.conf")
    assert before == (read("/var/lib/dpkg/status"),
                      [os.stat(d).st_mtime_ns for d in ("/usr/bin", "/etc", "/var/lib/dpkg")])


@pytest.mark.root
def test_user_zero_may_break_the_system_inside(petri):
    r = petri.sh("rm -rf /usr/share/perl5 /etc/ssl /opt/*; echo x >/usr/bin/git; mv /usr/include /usr/inc2; "
                 "ls /usr/share/perl5 2>/dev/null | wc -l", "-u", "0").ok()
    assert r.out.strip() == "0", r
    petri.run("--", "git", "--version").ok()
    assert os.listdir("/usr/share/perl5") and os.path.isdir("/usr/include")


@pytest.mark.ranges
def test_user_zero_owns_what_it_makes(petri):
    r = petri.sh("touch f; chown 0:0 f; stat -c %u:%g f; touch /tmp/t; chown 12:34 /tmp/t; stat -c %u:%g /tmp/t",
                 "-u", "0").ok()
    assert r.out.split() == ["0:0", "12:34"], r
    assert not re.search("f$", "\n".join(os.listdir(petri.project)))


@pytest.mark.root
@pytest.mark.parametrize("name", ["absolute", "relative"])
@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_SEQPACKET", "SOCK_DGRAM"])
def test_a_service_in_a_system_tree_is_dead_inside(petri, kind, name):
    """A server that listens below /opt, however it named its socket, can't be reached through the image."""
    d, here = f"/opt/petri-test-{os.getpid()}", os.getcwd()
    ask = ("import socket, sys\ns = socket.socket(socket.AF_UNIX, socket.%s)\n"
           "try:\n s.connect('%s/s'); print('CONNECTED')\nexcept OSError as e: print('no', e)") % (kind, d)
    os.mkdir(d)
    os.chmod(d, 0o755)
    try:
        with socket.socket(socket.AF_UNIX, getattr(socket, kind)) as s:
            os.chdir(d)
            s.bind("s" if name == "relative" else d + "/s")
            os.chdir(here)
            os.chmod(d + "/s", 0o777)
            if kind != "SOCK_DGRAM":
                s.listen(4)
            assert "CONNECTED" in subprocess.run(["python3", "-c", ask], capture_output=True, text=True, check=True).stdout
            r = petri.run("--", "python3", "-c", ask).ok()
    finally:
        os.chdir(here)
        shutil.rmtree(d)
    assert "CONNECTED" not in r.out and "refused" in r.out, r


SERVE = ("import socket, sys\ns = socket.socket(socket.AF_UNIX, getattr(socket, sys.argv[2]))\ns.bind(sys.argv[1])\n"
         "if sys.argv[2] != 'SOCK_DGRAM': s.listen(4)\nprint('up', flush=True)\nsys.stdin.read()\n")


@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_SEQPACKET", "SOCK_DGRAM"])
def test_a_service_with_namespaces_of_its_own(petri, kind):
    """As a container has them: its sockets are in no table here, and still reached by their path."""
    shared = os.path.join(petri.base, "shared")
    os.makedirs(shared + "/deep")
    os.chmod(shared, 0o777)
    project = os.path.join(shared, "deep")
    path = os.path.join(project, "s")
    argv = ["unshare", "-n" if os.getuid() == 0 else "-Urn", "python3", "-c", SERVE, path, kind]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout.readline() == "up\n"
        for flags in (("-v", f"{shared}:/x"), ("--workspace", project, "--workspace-mode", "bind")):
            r = petri.run(*flags, "--", "echo", "ran").ok(125)
            assert "socket of a running service" in r.talk and "ran" not in r.out, r
        server.stdin.close()
    # what nobody serves any more is only a name
    petri.run("-v", f"{shared}:/x", "--", "test", "-S", "/x/deep/s").ok()
    petri.run("--workspace", project, "--workspace-mode", "bind", "--", "true").ok()


def test_dev_has_an_end(petri):
    """Nothing else limits what an ordinary user's sandbox could put there."""
    script = "i=0; while [ $i -lt 2000 ] && true 2>/dev/null >/dev/x$i; do i=$((i+1)); done; echo $i"
    assert int(petri.sh(script, "-u", "0").ok().out) < 256
