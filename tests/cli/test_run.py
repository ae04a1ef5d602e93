"""petri run: exit status, streams, signals, environment."""
import hashlib
import os
import pwd
import signal
import subprocess
import time

import pytest

from helpers import BIN, CANARY, MODE, ROOT, UID, descendants, patience, place, read, wait_for, write


# --- exit status -----------------------------------------------------------------------------

@pytest.mark.parametrize("status", [0, 1, 7, 42, 124, 125, 255])
def test_status_of_the_command(petri, status):
    petri.sh(f"exit {status}").ok(status)


@pytest.mark.parametrize("sig", ["TERM", "KILL", "SEGV", "ABRT", "HUP", "PIPE", "USR1"])
def test_status_of_a_killed_command(petri, sig):
    petri.sh(f"kill -{sig} $$; sleep 5").ok(128 + getattr(signal, "SIG" + sig))


def test_command_not_found(petri):
    r = petri.run("--", "no-such-command-here").ok(127)
    assert "no-such-command-here" in r.talk and r.talk.count("\n") == 1 + other_lines(r)
    petri.run("--", "./no/such/path").ok(127)
    petri.run("--", "/no/such/path").ok(127)


def other_lines(r):
    """Notes that have nothing to do with the mistake (network, limits)."""
    return sum(1 for x in r.talk.splitlines() if "network" in x or "limit" in x or "cgroup" in x)


def test_command_not_executable(petri):
    petri.file("plain", "no program\n", 0o644)
    petri.file("noexec", "#!/bin/sh\necho ran\n", 0o644)
    petri.file("badinterp", "#!/no/such/interpreter\n", 0o755)
    petri.file("garbage", b"\x7fELF\0\0\0\0 this is no program", 0o755)
    for name in ("plain", "noexec", "garbage"):
        r = petri.run("--", f"./{name}").ok(126)
        assert name in r.talk and "ran" not in r.out, r
    petri.run("--", "/usr").ok(126)  # a directory
    petri.run("--", "./badinterp").ok(127)  # as a shell says it


def test_script_without_interpreter_line(petri):
    """What execvp does: a file that is no program and has no #! is not run by guessing."""
    petri.file("script", "echo ran\n", 0o755)
    r = petri.run("--", "./script")
    assert (r.rc, r.out) in ((0, "ran\n"), (126, "")), r


def test_command_found_by_path_inside(petri):
    petri.file("bin/mine", "#!/bin/sh\necho found me\n", 0o755)
    r = petri.run("-e", f"PATH={petri.project}/bin:/usr/bin:/bin", "--", "mine").ok()
    assert r.out == "found me\n"


def test_arguments_are_kept(petri):
    args = ["", "a b", "$HOME", "*", "-x", "--", "\n", "ü", "'\"\\"]
    r = petri.run("--", "printf", "[%s]", *args).ok()
    assert r.out == "".join(f"[{a}]" for a in args)


def test_flags_after_the_command_are_the_commands(petri):
    r = petri.run("echo", "-e", "X=1", "--timeout", "1").ok()
    assert "--timeout 1" in r.out


def test_non_utf8_argument(petri):
    r = petri.run("--", "printf", "%s", b"\xff\xfe".decode("utf-8", "surrogateescape")).ok()
    assert r.outb == b"\xff\xfe"


# --- streams ---------------------------------------------------------------------------------

def test_stdout_and_stderr_stay_apart(petri):
    r = petri.sh("echo to-out; echo to-err >&2; echo out2").ok()
    assert r.out == "to-out\nout2\n" and r.err == "to-err\n"


def test_streams_at_once(petri):
    """What is written is there to be read, though the command goes on, on both streams, without a
    newline too."""
    p = petri.start("-q", "--", "sh", "-c", "printf one; printf ERR1 >&2; read x; printf two; printf ERR2 >&2",
                    stdin=subprocess.PIPE, bufsize=0)
    for stream, word in ((p.stdout, b"one"), (p.stderr, b"ERR1")):
        seen = b""
        while not seen.endswith(word):
            data = stream.read(4096)
            assert data, (seen, "ended before", word)
            seen += data
    assert p.communicate(b"go on\n", timeout=20) == (b"two", b"ERR2") and p.returncode == 0


def test_stdin_binary_and_eof(petri):
    data = os.urandom(10 << 20)
    r = petri.sh("sha256sum; echo after-eof", input=data).ok()
    assert r.out.split()[0] == hashlib.sha256(data).hexdigest()
    assert r.out.endswith("after-eof\n")


def test_stdin_comes_back_unchanged(petri):
    data = bytes(range(256)) * 4096
    assert petri.run("--max-output", "100M", "--", "cat", input=data).ok().outb == data


def test_stdin_piecewise(petri):
    """Each piece arrives when it is written, not at the end."""
    p = petri.start("--", "sh", "-c", "while read x; do echo got $x; done", stdin=subprocess.PIPE)
    for word in (b"a", b"b", b"c"):
        p.stdin.write(word + b"\n")
        p.stdin.flush()
        assert p.stdout.readline() == b"got " + word + b"\n"
    p.stdin.close()
    assert p.wait(10) == 0


def test_no_stdin(petri):
    assert petri.sh("cat; echo end").ok().out == "end\n"
    assert petri.sh("cat; echo end", "-i").ok().out == "end\n"


def test_stdin_closed(petri):
    """petri itself started without descriptors 0, 1 or 2."""
    for closed in ("0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"):
        p = subprocess.run(["sh", "-c", f'"$0" run -- sh -c "cat; exit 7" {closed}', BIN],
                           env=petri.env, cwd=petri.project, timeout=patience(30), stdin=subprocess.DEVNULL,
                           capture_output=True)
        assert p.returncode == 7, (closed, p)


def test_command_that_ignores_stdin(petri):
    petri.run("--", "true", input=b"x" * (1 << 20)).ok()


def test_stdin_that_never_ends(petri):
    """The command is over, so petri is, though nobody closed its stdin."""
    r, w = os.pipe()
    p = petri.start("--", "echo", "hi", stdin=r)
    os.close(r)
    try:
        out, _ = p.communicate(timeout=10)
    finally:
        os.close(w)
    assert out == b"hi\n" and p.returncode == 0


def test_reader_goes_away(petri):
    """`petri run -- yes | head -1` ends."""
    p = petri.start("--max-output", "1T", "--", "yes")
    assert p.stdout.readline() == b"y\n"
    p.stdout.close()
    assert p.wait(10) != 0


def test_slow_reader_loses_nothing(petri):
    p = petri.start("--max-output", "100M", "--", "sh", "-c", "seq 1 300000")
    time.sleep(0.3)
    out, _ = p.communicate(timeout=30)
    assert out == "".join(f"{i}\n" for i in range(1, 300001)).encode() and p.returncode == 0


def test_default_cap_of_a_pipe(petri):
    """A pipe's reader gets 10 MiB and a mark; a file gets everything; 0 takes the cap away."""
    r = petri.run("--", "head", "-c", "12M", "/dev/zero").ok()
    assert r.outb[:10 << 20] == bytes(10 << 20) and len(r.outb) < (10 << 20) + 200
    assert b"truncated" in r.outb[10 << 20:]
    assert len(petri.run("--max-output", "0", "--", "head", "-c", "12M", "/dev/zero").ok().outb) == 12 << 20
    with open(petri.path("out"), "wb") as f:
        assert petri.start("--", "head", "-c", "12M", "/dev/zero", stdout=f).wait(30) == 0
    assert os.path.getsize(petri.path("out")) == 12 << 20


def test_quiet(petri):
    r = petri.run("-q", "--", "sh", "-c", "echo out; echo err >&2").ok()
    assert (r.out, r.errb) == ("out\n", b"err\n")
    assert petri.run("-q", "--", "no-such-command-here").ok(127).talk.count("\n") == 1


def test_output_just_before_exit(petri):
    for _ in range(10):
        r = petri.sh("head -c 200000 /dev/zero; echo last >&2").ok()
        assert len(r.outb) == 200000 and r.err == "last\n"


def test_background_child_does_not_hold_petri(petri):
    r = petri.sh("sleep 300 & echo hi").ok()
    assert r.out == "hi\n"


def test_host_files_are_not_handed_in(petri):
    """stdout is a file of the host's: inside it is a pipe, and no other descriptor came along."""
    target = petri.path("out.txt")
    secret = open(write(petri.path("secret"), CANARY))
    with open(target, "wb") as f:
        p = petri.start("--", "sh", "-c", "for i in 0 1 2; do readlink /proc/self/fd/$i; done; ls /proc/$$/fd",
                        stdout=f, pass_fds=[secret.fileno()])
        assert p.wait(20) == 0
    secret.close()
    lines = read(target).decode().split()
    assert all(x.startswith(("pipe:", "socket:", "/dev/null")) for x in lines[:3]), lines
    assert lines[3:] == ["0", "1", "2"], lines


def test_stdout_file_keeps_its_owner_and_mode(petri):
    target = write(petri.path("out.txt"), "", 0o640)
    before = os.stat(target)
    with open(target, "ab") as f:
        assert petri.start("--", "echo", "x", stdout=f, stderr=f).wait(20) == 0
    after = os.stat(target)
    assert (before.st_uid, before.st_gid, before.st_mode) == (after.st_uid, after.st_gid, after.st_mode)


# --- signals ---------------------------------------------------------------------------------

@pytest.mark.parametrize("sig", ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2"])
def test_signal_reaches_the_command(petri, probes, sig):
    place(probes, "signals", petri.project)
    number = getattr(signal, "SIG" + sig)
    p = petri.start("--", "./signals", int(number))
    assert p.stdout.readline() == b"ready\n"
    p.send_signal(number)
    out, err = p.communicate(timeout=15)
    assert (p.returncode, out) == (33, f"got {int(number)}\n".encode()), err


@pytest.mark.parametrize("sig", ["TERM", "INT"])
def test_signal_reaches_a_shells_trap(petri, sig):
    """A trap's turn comes when the shell's own child is over, which has the signal too."""
    p = petri.start("--", "sh", "-c", f"trap 'echo got {sig}; exit 33' {sig}; echo ready; sleep 300; echo no")
    assert p.stdout.readline() == b"ready\n"
    wait_for(lambda: "sleep (S)" in descendants(p.pid).values(), what="the shell's child")
    p.send_signal(getattr(signal, "SIG" + sig))
    out, err = p.communicate(timeout=15)
    assert (p.returncode, out) == (33, f"got {sig}\n".encode()), err


@pytest.mark.parametrize("sig", ["TERM", "INT", "HUP"])
def test_signal_ends_a_command_that_has_no_handler(petri, sig):
    p = petri.start("--", "sh", "-c", "echo ready; exec sleep 300")
    assert p.stdout.readline() == b"ready\n"
    p.send_signal(getattr(signal, "SIG" + sig))
    assert p.wait(15) == 128 + getattr(signal, "SIG" + sig)


def test_signal_may_be_ignored_by_the_command(petri, probes):
    """They are passed on in their order: when the second is there, the first was."""
    place(probes, "signals", petri.project)
    p = petri.start("--", "sh", "-c", f"trap '' INT; exec ./signals {int(signal.SIGUSR2)}")
    assert p.stdout.readline() == b"ready\n"
    p.send_signal(signal.SIGINT)
    p.send_signal(signal.SIGUSR2)
    assert p.wait(15) == 33


def test_command_starts_with_clean_signals(petri):
    """What petri blocks or ignores for itself is not inherited; nor what its own parent ignores."""
    r = petri.run("--", "grep", "-E", "Sig(Blk|Ign):", "/proc/self/status").ok()
    assert [x.split()[1].strip("0") for x in r.out.splitlines()] == ["", ""], r


def test_stopped_petri_is_no_danger(petri):
    p = petri.start("--", "sh", "-c", "echo ready; sleep 0.3; echo done")
    assert p.stdout.readline() == b"ready\n"
    p.send_signal(signal.SIGSTOP)
    time.sleep(0.2)
    p.send_signal(signal.SIGCONT)
    assert p.stdout.readline() == b"done\n" and p.wait(10) == 0


# --- environment -----------------------------------------------------------------------------

def test_host_environment_is_not_inherited(petri):
    r = petri.run("--", "env", env={"LC_TOKEN": CANARY, "LC_TIME": "C"}).ok()
    assert "LC_TIME=C" in r.out.splitlines()
    names = {x.split("=")[0] for x in r.out.splitlines()}
    assert CANARY not in r.out
    assert "PETRI_HOME" not in names and {"PATH", "HOME", "SANDBOX_ID"} <= names, r


def test_home_inside_exists_and_is_writable(petri):
    petri.sh('cd && touch mine && test -O mine && test "$HOME" = "$PWD"').ok()


def test_env_flag(petri):
    r = petri.run("-e", "A=1", "-e", "B=x y=z", "-eC=3", "--env", "D=", "--", "env").ok()
    lines = r.out.splitlines()
    assert {"A=1", "B=x y=z", "C=3", "D="} <= set(lines)


def test_env_flag_passes_a_variable_by_name(petri):
    r = petri.run("-e", "MY_SECRET_TOKEN", "-e", "NOT_SET_OUTSIDE", "--", "env").ok()
    assert f"MY_SECRET_TOKEN={CANARY}" in r.out and "NOT_SET_OUTSIDE" not in r.out


def test_env_last_one_wins(petri):
    r = petri.run("-e", "A=1", "-e", "A=2", "--", "env").ok()
    assert [x for x in r.out.splitlines() if x.startswith("A=")] == ["A=2"]


def test_env_file(petri):
    f = write(petri.path("vars"), "# comment\n\nA=1\nB=two words\nMY_SECRET_TOKEN\nC='q'\n")
    r = petri.run("--env-file", f, "-e", "A=flag", "--", "env").ok()
    lines = r.out.splitlines()
    assert {"A=flag", "B=two words", f"MY_SECRET_TOKEN={CANARY}", "C='q'"} <= set(lines), r
    assert not any("comment" in x for x in lines)


@pytest.mark.parametrize("value", ["=x", ""])
def test_env_bad(petri, value):
    r = petri.run("-e", value, "--", "true").ok(125)
    assert "env" in r.talk or "-e" in r.talk, r


def test_env_file_missing_or_bad(petri):
    assert "nowhere" in petri.run("--env-file", petri.path("nowhere"), "--", "true").ok(125).talk
    f = write(petri.path("vars"), "=bad\n")
    assert "vars" in petri.run("--env-file", f, "--", "true").ok(125).talk
    assert petri.run("--env-file", petri.path("."), "--", "true").rc == 125


def test_stripped_environment(petri):
    """From `env -i`, without XDG_*, HOME and PATH: only the store is named (tests share the machine)."""
    p = subprocess.run([BIN, "run", "--", "sh", "-c", "echo $HOME; id -u; true"],
                       env={"PETRI_HOME": petri.store}, cwd=petri.project, timeout=patience(30),
                       stdin=subprocess.DEVNULL, capture_output=True)
    assert p.returncode == 0 and p.stdout.strip(), p


def test_wholly_empty_environment(petri):
    """The real thing, with the user's own store."""
    p = subprocess.run([BIN, "run", "--", "echo", "works"], env={}, cwd=petri.project,
                       timeout=patience(30), stdin=subprocess.DEVNULL, capture_output=True)
    assert (p.returncode, p.stdout) == (0, b"works\n"), p


def test_cwd_removed(petri):
    d = petri.path("gone")
    os.mkdir(d)
    p = subprocess.run(["sh", "-c", 'rmdir "$PWD" && exec "$0" run -- pwd', BIN],
                       env=petri.env, cwd=d, timeout=patience(30), stdin=subprocess.DEVNULL, capture_output=True)
    assert p.returncode == 125 and p.stderr.startswith(b"petri:"), p


def test_working_directory_flag(petri):
    os.makedirs(os.path.join(petri.project, "sub/dir"))
    assert petri.run("-w", "/tmp", "--", "pwd").ok().out == "/tmp\n"
    assert petri.run("-w", f"{petri.project}/sub", "--", "pwd").ok().out == f"{petri.project}/sub\n"
    r = petri.run("-w", "/workspace/sub", "--", "sh", "-c", "pwd; ls").ok()
    assert r.out == "/workspace/sub\ndir\n"


def test_working_directory_missing(petri):
    """docker makes it; petri says so and runs nothing, or makes it: never a run somewhere else."""
    r = petri.run("-w", "/no/such/dir", "--", "pwd")
    assert (r.rc, r.out) in ((125, ""), (127, ""), (126, ""), (0, "/no/such/dir\n")), r


# --- who -------------------------------------------------------------------------------------

def test_user_inside_is_the_user_outside(petri):
    r = petri.sh("id -u; id -g; id -un; id -G | wc -w; stat -c %u README").ok()
    uid, gid, name, groups, owner = r.out.split()
    if ROOT:
        assert (uid, gid) == ("1000", "1000") and name not in ("root", "nobody")
    else:
        assert (int(uid), int(gid)) == (UID, os.getgid())
        assert name == pwd.getpwuid(UID).pw_name
    assert owner == uid, r


@pytest.mark.root
def test_root_becomes_the_projects_owner(petri):
    for d, dirs, files in os.walk(petri.project):
        for n in dirs + files + ["."]:
            os.chown(os.path.join(d, n), 1500, 1600)
    r = petri.sh("id -u; id -g; stat -c %u:%g README; echo x >new; stat -c %u:%g new").ok()
    assert r.out.split() == ["1500", "1600", "1500:1600", "1500:1600"], r


def test_user_flag(petri):
    me = petri.run("--", "id", "-u").ok().out.strip()
    assert petri.run("-u", me, "--", "id", "-u").ok().out.strip() == me


def test_user_zero(petri):
    r = petri.sh("id -u; id -g; grep CapEff /proc/self/status", "-u", "0")
    if MODE == "single" and r.rc == 125:
        assert "subuid" in r.talk, r
        return
    r.ok()
    uid, gid, _, caps = r.out.split()
    assert (uid, gid) == ("0", "0")
    # CHOWN DAC_OVERRIDE FOWNER FSETID SETGID SETUID and nothing else
    assert int(caps, 16) == 0b11011011, r


def test_user_by_name(petri):
    me = petri.run("--", "id", "-un").ok().out.strip()
    if not ROOT:  # a name of the host's
        assert petri.run("-u", me, "--", "id", "-un").ok().out.strip() == me
    if MODE != "single":
        assert petri.run("-u", "root", "--", "id", "-u").ok().out == "0\n"


def test_user_unknown(petri):
    r = petri.run("-u", "no-such-user", "--", "id").ok(125)
    assert "no-such-user" in r.talk and r.out == ""


def test_user_other_id(petri):
    """With a range of ids any user; with a single one only that."""
    r = petri.run("-u", "1234:1235", "--", "sh", "-c", "id -u; id -g")
    if MODE == "single":
        r.ok(125)
        assert "subuid" in r.talk, r
    else:
        assert r.ok().out == "1234\n1235\n", r


def test_names_inside(petri):
    """No stranger's account under our id, no accounts of other people."""
    r = petri.sh("getent passwd | awk -F: '$3 >= 1000 && $3 < 60000 {print $1 \":\" $3}'; whoami").ok()
    lines = r.out.split()
    assert len(lines) == 2, r
    assert lines[0].split(":")[0] == lines[1]


def test_hostname_differs(petri):
    assert petri.run("--", "uname", "-n").ok().out.strip() != os.uname().nodename


def test_sandbox_id_and_name(petri):
    r = petri.sh("echo $SANDBOX_ID; echo $SANDBOX_NAME", "--name", "my-box").ok()
    ident, name = r.out.split()
    assert ident.isalnum() and name == "my-box"


def test_two_at_once(petri):
    a = petri.start("--", "sh", "-c", "echo a >README; echo ready; read x; cat README", stdin=subprocess.PIPE)
    assert a.stdout.readline() == b"ready\n"
    assert petri.run("--", "cat", "README").ok().out == "a project\n"
    assert a.communicate(b"\n", timeout=10)[0] == b"a\n" and a.returncode == 0


def test_many_at_once(petri):
    ps = [petri.start("--", "sh", "-c", f"echo {i}; exit {i}") for i in range(8)]
    for i, p in enumerate(ps):
        out, err = p.communicate(timeout=30)
        assert (p.returncode, out) == (i, f"{i}\n".encode()), err


# --- timeout ---------------------------------------------------------------------------------

@pytest.mark.parametrize("script", [
    "sleep 300",
    "trap '' TERM INT HUP; sleep 300; sleep 300",
    "setsid sleep 300 & sleep 300",
    "setsid sh -c 'trap \"\" TERM; sleep 300; sleep 300' & trap '' TERM; sleep 300; sleep 300",
    "(sh -c '(sleep 300 &) ; setsid sh -c \"sleep 300 & sleep 300\" &' &) ; sleep 300",
    "sh -c 'kill -STOP $$'; sleep 300",
    "while :; do sh -c : & wait; done",
], ids=["plain", "ignores-term", "setsid", "setsid-ignores", "double-fork", "stopped", "busy"])
def test_timeout_kills_everything(petri, script):
    r = petri.bash("echo begun; " + script, "--timeout", "2").ok(124)
    assert r.out == "begun\n"
    assert "timed out" in r.talk, r
    wait_for(lambda: not [n for n in descendants().values() if "sleep" in n], what="the end of all")


def test_timeout_not_reached(petri):
    petri.sh("sleep 0.1; exit 3", "--timeout", "30s").ok(3)


def test_timeout_on_a_flood(petri):
    """The deadline holds while output pours and nobody reads."""
    p = petri.start("--timeout", "1", "--max-output", "1T", "--", "yes")
    time.sleep(2.5)
    out, _ = p.communicate(timeout=10)
    assert p.returncode == 124
