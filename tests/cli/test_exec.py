"""petri exec and petri shell: commands in a sandbox that runs."""
import hashlib
import json
import os
import signal
import socket
import struct
import subprocess
import threading

import pytest

import proto
from helpers import Tty, wait_for, write


class Box:
    """The project's own sandbox, running."""

    def __init__(self, petri, *flags):
        self.petri = petri
        self.info = json.loads(petri.run("--json", *flags, sub="start").ok().outb)
        self.id, self.name = self.info["id"], self.info["name"]

    def exec(self, *args, **kw):
        return self.petri.run(*args, sub="exec", **kw)

    def sh(self, script, *flags, **kw):
        return self.exec(*flags, "--", "sh", "-c", script, **kw)

    def close(self):
        self.petri.run("-q", self.id, sub="stop")
        self.petri.run(self.id, sub="rm")


@pytest.fixture
def box(petri):
    b = Box(petri)
    yield b
    b.close()


@pytest.fixture
def tty(box):
    opened = []

    def open_tty(*args, sub="exec", **kw):
        t = Tty(box.petri, *args, sub=sub, **kw)
        opened.append(t)
        return t
    yield open_tty
    for t in opened:
        if t.p.poll() is None:
            t.p.kill()
        t.p.wait()
        t.close()


# --- results ------------------------------------------------------------------------------------------

def test_status_and_streams(box):
    r = box.sh("cat; echo err >&2; exit 7", input="in\n").ok(7)
    assert (r.out, r.err, r.talk) == ("in\n", "err\n", "")


def test_statuses(box):
    box.exec("--", "true").ok(0)
    box.sh("kill -9 $$").ok(137)
    assert "not found" in box.exec("--", "no-such-program").ok(127).talk
    assert "executed" in box.exec("--", "/etc/hostname").ok(126).talk
    assert "executed" in box.exec("--", "/tmp").ok(126).talk
    assert "'/no/such'" in box.exec("-w", "/no/such", "--", "true").ok(125).talk
    assert "timed out" in box.exec("--timeout", "200ms", "--", "sleep", "1000").ok(124).talk
    assert "-x" in box.exec("-x", "--", "true").ok(125).talk
    assert "no command" in box.exec().ok(125).talk
    assert "no command" in box.exec(box.name).ok(125).talk


def test_changes_stay_in_the_sandbox(box):
    box.sh("echo new >made; rm README; echo tmp >/tmp/there").ok()
    assert box.sh("cat made /tmp/there; ls").ok().out == "new\ntmp\nmade\npetri.json\n"
    assert sorted(os.listdir(box.petri.project)) == ["README", "petri.json"]


def test_words_arrive_as_they_are(box):
    words = ["", " ", "a b", "$HOME", "*", "\n", "--", "-x", "é", "'\""]
    out = box.exec("--", "printf", "%s|", *words).ok().out
    assert out == "".join(w + "|" for w in words)
    raw = subprocess.run([box.petri.start("--", "true", sub="exec").args[0], "exec", "--", "printf", "%s", b"\xff\x01"],
                         env=box.petri.env, cwd=box.petri.project, stdout=subprocess.PIPE)
    assert raw.stdout == b"\xff\x01"


def test_many_and_long_words(box):
    assert box.exec("--", "sh", "-c", "echo $#", "sh", *["x" * 1000] * 1000).ok().out == "1000\n"
    files = [write(box.petri.path(f"env{i}"), "".join(f"V{i}_{k}={'x' * 100000}\n" for k in range(10))) for i in range(5)]
    r = box.exec(*[f"--env-file={f}" for f in files], "--", "true").ok(125)
    assert "longer than" in r.talk and r.talk.count("\n") == 1, r
    r = box.exec(*[f"--env-file={f}" for f in files[:3]], "--", "true").ok(126)
    assert "'true'" in r.talk and r.talk.count("\n") == 1, r


def test_environment(box):
    f = box.petri.path("vars")
    write(f, "# comment\nFROM_FILE=1 2\nHOST_ONE\n\nBOTH=file\n")
    out = box.exec("-e", "A=b=c", "-e", "HOST_TWO", "-e", "NOT_SET", "-e", "BOTH=flag", "--env-file", f, "--", "env",
                   env={"HOST_ONE": "one", "HOST_TWO": "two", "HOST_THREE": "three"}).ok().out.splitlines()
    got = dict(line.split("=", 1) for line in out)
    assert (got["FROM_FILE"], got["HOST_ONE"], got["HOST_TWO"], got["A"], got["BOTH"]) == ("1 2", "one", "two", "b=c", "flag")
    assert got["SANDBOX_ID"] == box.id and got["SANDBOX_NAME"] == box.name
    assert "HOST_THREE" not in got and "NOT_SET" not in got and "MY_SECRET_TOKEN" not in got
    assert "NAME" in box.exec("-e", "=x", "--", "true").ok(125).talk
    assert "no-such-file" in box.exec("--env-file", "no-such-file", "--", "true").ok(125).talk


def test_directory(box):
    box.petri.file("a/b/c.txt", "c")
    here = os.path.join(box.petri.project, "a", "b")
    assert box.exec("--", "pwd").ok().out.strip() == box.petri.project
    assert box.exec("--", "sh", "-c", "pwd; cat c.txt", cwd=here).ok().out == here + "\nc"
    assert box.exec("-w", "a", "--", "pwd").ok().out.strip() == os.path.join(box.petri.project, "a")
    assert box.exec("-w", "/tmp", "--", "pwd", cwd=here).ok().out.strip() == "/tmp"


def test_user(box):
    own = box.sh("id -u; id -un").ok().out
    for user in own.split():
        assert box.sh("id -u; id -un", "-u", user).ok().out == own
    assert "no-such-user" in box.exec("-u", "no-such-user", "--", "true").ok(125).talk
    assert "UID" in box.exec("-u", "a:b", "--", "true").ok(125).talk


# --- which sandbox --------------------------------------------------------------------------------------

def test_which_is_the_sandbox_which_the_command(box):
    assert box.exec(box.name, "--", "echo", "1").ok().out == "1\n"
    assert box.exec(box.name, "echo", "2").ok().out == "2\n"
    assert box.exec(box.id, "echo", "3").ok().out == "3\n"
    assert box.exec(box.id[:6], "--", "echo", "4").ok().out == "4\n"
    assert box.exec("echo", "5").ok().out == "5\n"
    assert box.exec("echo", "6", "--", "x").ok().out == "6 -- x\n"
    assert box.exec("--", "echo", box.name, "--").ok().out == box.name + " --\n"
    elsewhere = box.petri.path("home")
    assert box.exec(box.name, "--", "echo", "7", cwd=elsewhere).ok().out == "7\n"
    assert box.exec("--", "echo", "8", cwd=elsewhere, env={"PETRI_SANDBOX": box.name}).ok().out == "8\n"


def test_two_sandboxes(box):
    other = Box(box.petri, "--name", "other")
    try:
        box.sh("echo mine >who")
        box.exec("other", "--", "sh", "-c", "echo theirs >who").ok()
        assert box.exec("--", "cat", "who").ok().out == "mine\n"
        assert box.exec("other", "--", "cat", "who").ok().out == "theirs\n"
        near = box.exec("othr", "--", "true").ok(125)
        assert "no sandbox 'othr' (did you mean 'other'?); petri ls lists them" in near.talk
    finally:
        other.close()


def test_project_ends_at_its_marker(box):
    """A project within the project is not the outer one: its own sandbox is made."""
    inner = os.path.join(box.petri.project, "inner")
    write(os.path.join(inner, "petri.json"), "{}\n")
    got = box.exec("--json", "--", "pwd", cwd=inner).ok().json
    try:
        assert got["id"] != box.id and got["stdout"].strip() == inner
    finally:
        box.petri.run("-q", got["id"], sub="stop")
        box.petri.run(got["id"], sub="rm")


def test_made_on_first_use(petri):
    r = petri.run("--json", "--", "cat", "README", sub="exec").ok().json
    assert r["stdout"] == "a project\n"
    again = petri.run("--json", "--", "true", sub="exec").ok().json
    assert again["id"] == r["id"]
    petri.run("-q", r["id"], sub="stop").ok()
    petri.run(r["id"], sub="rm").ok()


def test_first_use_tells_what_a_start_notes(petri):
    config = os.path.join(petri.project, "petri.json")
    with open(config, "w", encoding="ascii") as f:
        f.write('{"sandbox": {"network": "full"}}')
    try:
        told = [petri.run("--", "true", sub="exec").ok().talk for _ in range(2)]
        petri.run("-f", "proj-1", sub="rm").ok()
        told.append(petri.run("-q", "--", "true", sub="exec").ok().talk)
        petri.run("-f", "proj-1", sub="rm").ok()
        notes = petri.run("--json", sub="start").ok().json["notes"]
    finally:
        petri.run("-f", "proj-1", sub="rm")
        os.unlink(config)
    assert "waits: network.policy" in told[0] and told[1:] == ["", ""], told
    assert [n for n in notes if "waits: network.policy" in n], notes
    assert sorted(f"petri: {n}" for n in notes) == sorted(told[0].splitlines())


BAD = ["../x", "-rf", "x" * 4096, ".", "..", "a/b", "a b", "é", "a\nb", "\x1b[31m", "_x", "x" * 64]


@pytest.mark.parametrize("name", BAD, ids=[f"{i}" for i in range(len(BAD))])
def test_bad_names(petri, name):
    r = petri.run("--json", "--", "true", sub="exec", env={"PETRI_SANDBOX": name}).ok(125)
    assert r.json["error"]["code"] == "invalid", r
    assert r.talk.count("\n") == 1 and len(r.talk) < 300 and "\x1b" not in r.talk, r


def test_unknown_and_stopped(box):
    for name in ("nobody", "0123456789ab", "beef"):
        r = box.exec("--json", name, "--", "true").ok(125)
        assert r.json["error"]["code"] == "not_found" and "petri ls" in r.talk and r.talk.count("\n") == 1, r
    box.petri.run("-q", box.id, sub="stop").ok()
    for args in (("--",), (box.name, "--")):
        r = box.exec("--json", *args, "true").ok(125)
        assert r.json["error"]["code"] == "stopped", r
        assert r.talk == f"petri: sandbox '{box.name}' is stopped; petri start {box.name}\n", r


def test_a_store_deep_in_the_tree(petri):
    """Longer than a socket's name may be."""
    petri.own_store()
    petri.store = petri.env["PETRI_HOME"] = petri.path("d" * 60, "e" * 60, "store")
    os.makedirs(os.path.dirname(petri.store))
    b = Box(petri)
    try:
        assert b.exec("--", "echo", "deep").ok().out == "deep\n"
        b.exec("-d", "--", "true").ok()
    finally:
        b.close()


# --- JSON -----------------------------------------------------------------------------------------------

def test_json(box):
    j = box.sh("echo out; echo err >&2; exit 3", "--json").ok(3).json
    assert (j["id"], j["name"], j["exit_code"], j["signal"]) == (box.id, box.name, 3, None)
    assert (j["stdout"], j["stderr"], j["timed_out"], j["events"], j["held_open"]) == ("out\n", "err\n", False, [], False)
    assert j["truncated"] == {"stdout": False, "stderr": False}
    assert j["wall_ms"] >= 0 and j["cpu_ms"] >= 0 and j["peak_memory_bytes"] > 0
    j = box.sh("printf '\\377'; kill -TERM $$", "--json").ok(143).json
    assert j["signal"] == 15 and j["stdout_base64"] == "/w==" and j["exit_code"] == 143
    j = box.sh("head -c 2000 /dev/zero | tr '\\0' x", "--json", "--max-output", "1000").ok().json
    assert j["truncated"]["stdout"] and j["stdout"] == "x" * 1000 and j["events"] == [{"type": "output_truncated"}]
    j = box.exec("--json", "--timeout", "100ms", "--", "sleep", "1000").ok(124).json
    assert j["timed_out"] and j["events"] == [{"type": "timeout"}] and j["signal"] == 9
    r = box.exec("--json", "--", "no-such-program").ok(127)
    assert r.json["error"]["code"] == "not_found"


# --- bytes ----------------------------------------------------------------------------------------------

def test_much_in_and_out(box):
    data = os.urandom(1 << 20) * 12
    r = box.exec("--max-output", "0", "--", "cat", input=data).ok()
    assert hashlib.sha256(r.outb).digest() == hashlib.sha256(data).digest()


def test_all_of_it_reaches_a_slow_reader(box):
    """The command has long ended when its output is read; a file takes all of it by default."""
    p = box.petri.start("--", "sh", "-c", "head -c 60000 /dev/zero; echo >done", sub="exec")
    wait_for(lambda: box.exec("--", "test", "-e", "done").rc == 0, what="the command's end")
    out, _ = p.communicate()
    assert p.returncode == 0 and out == b"\0" * 60000
    f = box.petri.path("out")
    with open(f, "wb") as out:
        p = box.petri.start("--", "head", "-c", str(11 << 20), "/dev/zero", sub="exec", stdout=out)
        assert p.wait() == 0
    assert os.path.getsize(f) == 11 << 20


def test_output_is_cut(box):
    r = box.sh("yes | head -c 100000", "--max-output", "10k").ok()
    assert len(r.outb) < 11000 and "truncated after 10K" in r.out


def test_stdin_may_be_closed(box):
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        r = subprocess.run(["sh", "-c", f'"$0" exec -- sh -c "exit 5" {closed}', box.petri.start(
            "--", "true", sub="exec").args[0]], env=box.petri.env, cwd=box.petri.project)
        assert r.returncode == 5


def test_reader_that_goes_away(box):
    r = subprocess.run(["sh", "-c", '"$0" exec -- yes | head -n 1', box.petri.start("--", "true", sub="exec").args[0]],
                       env=box.petri.env, cwd=box.petri.project, stdout=subprocess.PIPE, timeout=120)
    assert r.stdout == b"y\n"


def test_many_at_once(box):
    ps = [box.petri.start("--", "sh", "-c", f"cat; exit {i}", sub="exec", stdin=subprocess.PIPE) for i in range(20)]
    for i, p in enumerate(ps):
        out, _ = p.communicate(b"%d" % i)
        assert (p.returncode, out) == (i, b"%d" % i)


# --- what stays and what ends -----------------------------------------------------------------------------

def alive(box, pid_file):
    return box.sh(f"kill -0 $(cat {pid_file})").rc == 0


def test_background_goes_on(box):
    """It holds the output open: said, not waited for."""
    r = box.sh("sleep 1000 & echo $! >pid; echo said").ok()
    assert r.out == "said\n" and r.talk.count("\n") == 1 and "background" in r.talk, r
    assert alive(box, "pid")
    assert box.sh("sleep 1000 >/dev/null 2>&1 & echo $! >pid2").ok().talk == ""
    assert alive(box, "pid2")
    assert box.sh("sleep 1000 & :", "--json").ok().json["held_open"]
    assert box.sh("sleep 1000 & :", "-q").ok().talk == ""


def test_background_that_writes_for_ever(box):
    r = box.sh("echo first; yes & sleep 0", "--max-output", "1000").ok()
    assert r.out.startswith("first\n") or "first\n" in r.out


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGSTOP])
def test_client_that_is_gone(box, sig):
    """The command and all that it started end with it, sessions of their own included; one that is only
    stopped keeps them."""
    p = box.petri.start("--", "sh", "-c", "setsid sleep 1000 & echo $! >a; echo $$ >b; exec sleep 1000", sub="exec")
    wait_for(lambda: box.sh("test -s a && test -s b").rc == 0, what="the command")
    os.kill(p.pid, sig)
    if sig == signal.SIGSTOP:
        assert alive(box, "a") and alive(box, "b")
        os.kill(p.pid, signal.SIGCONT)
        p.kill()
    p.wait()
    wait_for(lambda: not alive(box, "a") and not alive(box, "b"), what="the end of both")


def test_time_is_over_for_all_of_it(box):
    box.sh("setsid sleep 1000 & echo $! >a; trap '' TERM; sleep 1000", "--timeout", "300ms").ok(124)
    wait_for(lambda: not alive(box, "a"), what="the end of the child")


def test_signals_reach_the_command(box):
    p = box.petri.start("--", "sh", "-c", "trap 'exit 9' TERM; trap 'echo usr1' USR1; echo ready; "
                        "while :; do sleep 0.05; done", sub="exec")
    assert p.stdout.readline() == b"ready\n"
    p.send_signal(signal.SIGUSR1)
    assert p.stdout.readline() == b"usr1\n"
    p.send_signal(signal.SIGTERM)
    p.communicate()
    assert p.returncode == 9


def test_detached(box):
    r = box.exec("-d", "-e", "V=w", "-w", "/tmp", "--", "sh", "-c", "pwd >job.tmp; echo $V >>job.tmp; mv job.tmp job").ok()
    assert r.out.strip() and r.out.count("\n") == 1
    wait_for(lambda: box.exec("--", "test", "-e", "/tmp/job").rc == 0, what="the job")
    assert box.exec("--", "cat", "/tmp/job").ok().out == "/tmp\nw\n"
    assert json.loads(box.exec("-d", "--json", "--", "true").ok().outb)["job"]


# --- terminals --------------------------------------------------------------------------------------------

def test_terminal(tty):
    t = tty("--", "sh", "-c", "test -t 0 && test -t 1 && test -t 2 && echo IS-A-TTY; tty; stty size; exit 9",
            rows=31, cols=77)
    assert t.wait() == 9
    assert b"IS-A-TTY" in t.seen and b"/dev/pts/" in t.seen and b"31 77" in t.seen, t.seen
    assert t.restored()


def test_terminal_is_not_given_where_none_is(box, tty):
    box.sh("test -t 0 || test -t 1").ok(1)
    assert "terminal" in box.exec("-t", "--", "true").ok(125).talk
    t = tty("-T", "--", "sh", "-c", "test -t 0 || echo NO-TTY")
    assert t.wait() == 0 and b"NO-TTY" in t.seen


def test_ctrl_c_and_size(tty):
    t = tty("--", "sh", "-c", "trap 'exit 4' INT; while :; do stty size; sleep 0.05; done", rows=31, cols=77)
    t.expect(rb"31 77")
    t.resize(40, 100)
    t.expect(rb"40 100")
    t.send(b"\x03")
    assert t.wait() == 4
    assert t.restored()


def test_what_a_terminal_must_not_see(tty):
    t = tty("--", "printf", r"a\033[31mb\033]52;c;aGk=\007\033[6nc\n")
    assert t.wait() == 0
    assert b"\x1b[31m" in t.seen and b"52;" not in t.seen and b"\x1b[6n" not in t.seen, t.seen


def test_shell(tty):
    t = tty(sub="shell")
    t.send(b"echo $((6*7))-$-\n")
    t.expect(rb"42-\w*i")
    t.send(b"sh -c 'echo go; exec sleep 1000'\n")
    t.expect(rb"go\r\n")
    t.send(b"\x1a")
    t.expect(rb"Stopped")
    t.send(b"disown %1; exit 5\n")
    assert t.wait() == 5
    assert t.restored()


def test_shell_needs_a_terminal(box):
    r = box.petri.run(sub="shell")
    assert r.rc == 125 and "terminal" in r.talk and r.talk.count("\n") == 1, r
    assert "only a sandbox" in box.petri.run("a", "b", sub="sh").ok(125).talk


# --- a petri-init that lies ---------------------------------------------------------------------------------

class Liar:
    """Something at the place of a sandbox's socket."""

    def __init__(self, petri, answer):
        self.id = "0123456789ab"
        for d in ("names", f"run/{self.id}", f"sandboxes/{self.id}"):
            os.makedirs(os.path.join(petri.store, d), exist_ok=True)
        os.symlink(self.id, os.path.join(petri.store, "names", "liar"))
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(os.path.join(petri.store, "run", self.id, "sock"))
        self.listener.listen(8)
        self.answer = answer
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            try:
                s, _ = self.listener.accept()
            except OSError:
                return
            with proto.Conn(s) as c:
                try:
                    self.answer(c, c.recv())
                    s.settimeout(20)
                    while s.recv(65536):
                        pass
                except (OSError, EOFError):
                    pass

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(30)


@pytest.fixture
def liar(petri):
    petri.own_store(kept=True)
    made = []

    def make(answer):
        made.append(Liar(petri, answer))
        return made[-1]
    yield make
    for m in made:
        m.close()


def raw(kind, payload=b"", magic=proto.MAGIC, version=proto.VERSION, size=None):
    return proto.HEADER.pack(magic, version, kind, len(payload) if size is None else size) + payload


EXIT0 = proto.EXIT_FRAME.pack(0, 0, 0, 0)
LIES = {
    "magic": [raw(proto.STARTED, magic=1)],
    "long": [raw(proto.STARTED, size=5 << 20)],
    "short exit": [raw(proto.STARTED), raw(proto.EXIT, EXIT0[:8])],
    "twice": [raw(proto.STARTED), raw(proto.STARTED)],
    "failed after start": [raw(proto.STARTED), raw(proto.FAILED, struct.pack("=Ii", 3, 2))],
    "unknown": [raw(99, b"x" * 100)],
}


@pytest.mark.parametrize("what", sorted(LIES))
def test_nonsense(petri, liar, what):
    liar(lambda c, _: c.sock.sendall(b"".join(LIES[what])))
    r = petri.run("liar", "--", "true", sub="exec").ok(125)
    assert "nonsense" in r.talk and r.talk.count("\n") == 1, r


def test_an_end_without_a_start(petri, liar):
    """Code inside can kill who was about to say that the command runs."""
    liar(lambda c, _: c.sock.sendall(raw(proto.EXIT, proto.EXIT_FRAME.pack(9, 0, 0, 0))))
    petri.run("liar", "--", "true", sub="exec").ok(137)


def test_descriptors_nobody_asked_for(petri, liar):
    with open("/etc/passwd") as f:
        liar(lambda c, _: c.send(proto.STARTED, fds=[f.fileno(), f.fileno()]))
        r = petri.run("liar", "--", "true", sub="exec").ok(125)
    assert "nonsense" in r.talk, r


def test_another_version(petri, liar):
    liar(lambda c, _: c.sock.sendall(raw(proto.HELLO, struct.pack("=HH", 9, 8) + b"9.0\0", version=9)))
    r = petri.run("--json", "liar", "--", "true", sub="exec").ok(125)
    assert "started by petri 9.0," in r.talk and "petri restart liar" in r.talk and r.json["error"]["code"] == "unsupported", r


def test_hangs_up(petri, liar):
    liar(lambda c, _: c.close())
    r = petri.run("--json", "liar", "--", "true", sub="exec").ok(125)
    assert r.json["error"]["code"] == "stopped" and r.talk.count("\n") == 1, r


def test_a_deadline_that_nobody_keeps(petri, liar):
    liar(lambda c, _: c.send(proto.STARTED))
    petri.run("--timeout", "100ms", "liar", "--", "true", sub="exec").ok(124)


def test_output_that_cannot_be_written(box):
    with open("/dev/full", "wb") as f:
        p = box.petri.start(box.id, "--", "echo", "x", sub="exec", stdout=f)
        err = p.communicate(timeout=60)[1]
    assert p.returncode == 125 and b"output of the command was lost" in err, err
    box.sh("echo x").ok()
