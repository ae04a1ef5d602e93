"""petri run from odd surroundings: inherited signals, small limits, strange projects, petri in petri."""
import os
import resource
import signal
import subprocess

import pytest

from helpers import BIN, CANARY, MODE, ROOT, listing, read, tree, write


# --- what petri inherits ---------------------------------------------------------------------

def test_ignored_sigchld(petri):
    """A parent that ignores SIGCHLD makes wait() fail for those who don't reset it."""
    petri.run("--", "sh", "-c", "true; exit 4", timeout=15,
              preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)).ok(4)


def test_blocked_signals(petri):
    """All blocked outside: inside nothing is, and SIGTERM to petri still works."""
    def block():
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    r = petri.run("--", "grep", "-E", "Sig(Blk|Ign)", "/proc/self/status", preexec_fn=block).ok()
    assert [x.split()[1].strip("0") for x in r.out.splitlines()] == ["", ""], r
    p = petri.start("--", "sh", "-c", "echo ready; exec sleep 300", preexec_fn=block)
    assert p.stdout.readline() == b"ready\n"
    p.send_signal(signal.SIGTERM)
    assert p.wait(10) == 143


def test_nohup(petri):
    """SIGHUP ignored by the caller stays without effect, as nohup promises."""
    p = petri.start("--", "sh", "-c", "echo ready; read x; exit 6", stdin=subprocess.PIPE,
                    preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    assert p.stdout.readline() == b"ready\n"
    p.send_signal(signal.SIGHUP)
    p.communicate(b"\n", timeout=10)
    assert p.returncode == 6


@pytest.mark.parametrize("mask", [0o000, 0o077, 0o777])
def test_umask(petri, mask):
    """The caller's umask is no reason for the sandbox not to come up."""
    petri.run("--", "true", preexec_fn=lambda: os.umask(mask)).ok()
    petri.sh("umask 022; mkdir d && echo x >d/f && cat d/f", preexec_fn=lambda: os.umask(mask)).ok()


def test_few_descriptors(petri):
    """Twenty are enough, or petri says so; it never hangs."""
    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))
    r = petri.run("--", "echo", "ran", preexec_fn=few, timeout=20)
    assert r.rc == 0 and r.out == "ran\n" or r.rc == 125 and len(r.talk.splitlines()) == 1, r


def test_many_descriptors_inherited(petri):
    fds = [os.open("/dev/null", os.O_RDONLY) for _ in range(300)]
    r = petri.run("--", "sh", "-c", "ls /proc/$$/fd", pass_fds=fds).ok()
    for fd in fds:
        os.close(fd)
    assert r.out.split() == ["0", "1", "2"], r


def test_small_file_size_limit(petri):
    petri.run("--", "sh", "-c", "head -c 100000 /dev/zero >x; true",
              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))


def test_low_priority_is_inherited(petri):
    r = petri.run("--", "nice", preexec_fn=lambda: os.nice(7)).ok()
    assert int(r.out) == min(os.nice(0) + 7, 19)


def test_large_environment(petri):
    big = "x" * 60000
    r = petri.run("-e", f"BIG={big}", "-e", "NL=a\nb", "--", "sh", "-c", 'printf "%s" "$BIG" | wc -c; echo "$NL"').ok()
    assert r.out.split() == ["60000", "a", "b"]
    flags = [x for i in range(1000) for x in ("-e", f"V{i}={i}")]
    assert petri.run(*flags, "--", "sh", "-c", "echo $V999").ok().out == "999\n"


def test_too_long_is_an_error(petri):
    """Past what execve takes: an error, not a hang."""
    r = petri.run("-e", "A=" + "x" * 120000, *[x for i in range(14) for x in ("-e", f"B{i}=" + "y" * 100000)],
                  "--", "true", timeout=30)
    assert r.rc in (0, 125, 126), r


def test_stdout_closed_early_by_the_command(petri):
    petri.sh("exec >&- 2>&-; sleep 0.2; exit 9").ok(9)


def test_both_streams_to_one_pipe(petri):
    """A line each, the next when the last was seen: they are two pipes inside, whose order petri can't know."""
    r, w = os.pipe()
    p = petri.start("-q", "--", "sh", "-c", "for i in 1 2 3; do echo o$i; read x; echo e$i >&2; read x; done",
                    stdin=subprocess.PIPE, bufsize=0, stdout=w, stderr=w)
    os.close(w)
    with os.fdopen(r) as f:
        for line in ("o1", "e1", "o2", "e2", "o3", "e3"):
            assert f.readline() == line + "\n"
            p.stdin.write(b"next\n")
        assert f.read() == ""
    assert p.wait(10) == 0


def test_nonblocking_stdout(petri):
    """Somebody else made our stdout non-blocking: nothing is lost, and its mode stays."""
    r, w = os.pipe()
    os.set_blocking(w, False)
    p = petri.start("--max-output", "0", "--", "seq", "1", "200000", stdout=w)
    with os.fdopen(r, "rb") as f:
        mode = os.get_blocking(w)
        os.close(w)
        data = f.read()
    assert p.wait(10) == 0 and mode is False
    assert data == "".join(f"{i}\n" for i in range(1, 200001)).encode()


# --- strange projects ------------------------------------------------------------------------

def test_store_inside_the_project(petri):
    """petri's own store below the project is not shown."""
    petri.store = petri.env["PETRI_HOME"] = os.path.join(petri.project, "store")
    petri.run("--", "true").ok()
    r = petri.sh("ls -A; ls store 2>/dev/null | wc -l").ok()
    assert r.out.split()[-1] == "0", r


def test_project_of_somebody_else(petri):
    """A directory of the system's can be looked at; writes don't reach it."""
    r = petri.sh("ls | head -1; touch new 2>/dev/null; true", "--workspace", "/usr/share/perl5",
                 cwd="/usr/share/perl5").ok()
    assert r.out and not os.path.exists("/usr/share/perl5/new")


def test_project_file_that_can_not_be_read(petri):
    petri.file("closed", CANARY, 0o000)
    r = petri.sh("ls; cat closed; echo end")
    assert "end" in r.out and "closed" in r.out, r
    assert CANARY not in r.out or ROOT, r
    copy = petri.sh("ls", "--workspace-mode", "copy")
    if MODE != "root":
        assert copy.rc == 0 or "closed" in copy.talk, copy


def test_deep_tree_inside(petri):
    """A tree deeper than any path: made, counted, and gone afterwards."""
    script = "import os\nfor i in range(3000):\n os.mkdir('d'); os.chdir('d')\nopen('f', 'w').close()\n"
    j = petri.json("--", "python3", "-c", script, rc=0, timeout=60)
    assert j["changes"]["added"] in (1, 0), j["changes"]
    assert listing(petri.project) == ["README", "petri.json"]


def test_deep_tree_is_removed_with_a_kept_sandbox(petri):
    petri.own_store(kept=True)
    script = "import os\nfor i in range(1800):\n os.mkdir('d'); os.chdir('d')\nprint(os.environ['SANDBOX_ID'])\n"
    ident = petri.run("--keep", "--", "python3", "-c", script).ok().out.strip()
    petri.run(ident, sub="rm").ok()
    assert listing(os.path.join(petri.store, "sandboxes")) == []


def test_deep_project(petri):
    here = os.getcwd()
    os.chdir(petri.project)
    for _ in range(1500):
        os.mkdir("d")
        os.chdir("d")
    os.chdir(here)
    try:
        petri.run("--", "ls").ok()
        petri.run("--hide", "*.pem", "--", "ls").ok()
        r = petri.run("--workspace-mode", "copy", "--", "ls", timeout=60)
        assert r.rc in (0, 125) and len(r.talk.splitlines()) <= 2, r
    finally:
        subprocess.run(["rm", "-rf", os.path.join(petri.project, "d")], check=True)


@pytest.mark.parametrize("pattern", ["keys/", "./keys", "keys//", "keys/.", "sub/../keys", ".//keys", "keys/./a", "keys//a"])
def test_hide_untidy_names(petri, pattern):
    """However it is written, it is hidden, or refused: never seen."""
    petri.file("keys/a", CANARY)
    petri.file("sub/b", "")
    r = petri.sh("cat keys/a", "--hide", pattern)
    assert CANARY not in r.out, r


def test_hide_pattern_where_the_path_has_pattern_characters(petri):
    d = petri.path("odd [dir] *?\\x")
    write(f"{d}/petri.json", "{}")
    write(f"{d}/a.pem", CANARY)
    write(f"{d}/.env", CANARY)
    r = petri.sh("cat a.pem .env; ls -A", "--hide", "*.pem", "--hide", ".e*", cwd=d)
    assert r.out == "petri.json\n", r


def test_hide_all_dot_files(petri):
    petri.file(".env", CANARY)
    r = petri.sh("cat .env; ls -A", "--hide", ".*")
    assert r.rc == 0 and r.out == "README\npetri.json\n", r


def test_hide_through_a_link(petri):
    """The name of a link hides the link; its target needs its own name."""
    petri.file("real", CANARY)
    os.symlink("real", os.path.join(petri.project, "link"))
    r = petri.sh("cat link; readlink link", "--hide", "link")
    assert r.out == "", r


def test_nested_volumes(petri):
    write(petri.path("a", "f"), "a")
    write(petri.path("b", "f"), "b")
    r = petri.sh("cat /v/f /v/in/f", "-v", f"{petri.path('a')}:/v:ro", "-v", f"{petri.path('b')}:/v/in")
    assert r.rc == 125 or r.out == "ab", r  # no place for the inner one is an honest answer
    assert sorted(os.listdir(petri.path("a"))) in (["f"], ["f", "in"])


def test_many_files_are_no_slower_to_refuse(petri):
    """A mistake is told before anything is looked at or made."""
    before = tree(petri.project)
    petri.run("--workspace-mode", "copy", "--timeout", "nonsense", "--", "true").ok(125)
    assert tree(petri.project) == before


# --- petri in petri --------------------------------------------------------------------------

def test_petri_in_petri(petri):
    """A sandbox can't make sandboxes: one line, status 125, no hang."""
    for name in ("petri", "petri-init", "petri-gateway"):
        src = os.path.join(os.path.dirname(BIN), name)
        if not os.path.exists(src):
            return
        write(os.path.join(petri.project, name), read(src), 0o755)
    r = petri.sh("cd ~ && mkdir p && cd p && /workspace/petri run -- echo NESTED; echo rc=$?", timeout=30)
    assert "NESTED" not in r.out and "rc=125" in r.out and "petri:" in r.talk, r
