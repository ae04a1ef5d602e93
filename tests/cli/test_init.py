"""petri-init by itself: PID 1 that serves clients. No petri, only its protocol (proto.py)."""
import contextlib
import errno
import os
import resource
import select
import shutil
import signal
import socket
import stat
import struct
import tempfile
import time

import pytest

import helpers
import proto
from proto import EXCLUSIVE, NOFOLLOW, PARENTS, RECURSIVE


@pytest.fixture
def base(workdir):
    d = tempfile.mkdtemp(prefix="init-", dir=workdir)
    yield d
    shutil.rmtree(d)


@pytest.fixture
def init(base):
    i = proto.Init(base).started()
    yield i
    i.close()


def alone(init):
    """Nothing is left but PID 1."""
    return helpers.wait_for(lambda: len(init.pids()) == 1)


@contextlib.contextmanager
def fails(stage, error):
    with pytest.raises(proto.Failed) as e:
        yield
    assert (e.value.stage, e.value.errno) == (stage, error)


def fs_fails(error):
    return fails(proto.STAGE_FS, error)


def sleeper(init, script="exec sleep 1000", **kw):
    """An exec that runs until something ends it, and the pid of its supervisor as it is inside."""
    x = init.exec("sh", "-c", f"echo $PPID; {script}", **kw)
    return x, x.out.readline().decode().strip()


# --- exec ------------------------------------------------------------------------------------

def test_streams_and_status(init):
    with init.exec("sh", "-c", "cat; echo oops >&2; exit 7", stdin=b"in\n") as x:
        assert (x.out.read(), x.err.read()) == (b"in\n", b"oops\n")
        assert x.wait() == (7 << 8, False)
        assert x.exit[3] > 0, "no memory was used?"
    assert init.run("sh", "-c", "kill -SEGV $$")[0] & 0x7f == signal.SIGSEGV


def test_environment_and_directory(init, base):
    os.mkdir(os.path.join(base, "sub"))
    show = ["sh", "-c", "echo $BASE $MORE; pwd"]
    at = os.fsencode(base)
    assert init.run(*show) == (0, b"base\n" + at + b"\n")
    assert init.run(*show, env=["BASE=new", "MORE=x"], cwd="sub") == (0, b"new x\n" + at + b"/sub\n")
    assert init.run(*show, env=["BAS=e"], cwd="/usr") == (0, b"base\n/usr\n")
    assert init.run("env", env=["BASE=2"])[1].count(b"BASE=") == 1


def test_what_can_not_start(init):
    with fails(proto.STAGE_EXEC, errno.ENOENT):
        init.run("no-such-command")
    with fails(proto.STAGE_EXEC, errno.EACCES):
        init.run("/etc/passwd")
    with fails(proto.STAGE_CHDIR, errno.ENOENT):
        init.run("true", cwd="missing")
    with fails(proto.STAGE_USER, errno.EPERM):
        init.run("true", uid=1001)
    with fails(proto.STAGE_USER, errno.EPERM):
        init.run("true", gid=0)
    assert init.run("id", "-u", uid=1000, gid=1000) == (0, b"1000\n")
    assert init.idle() == 0


def test_commands_get_nothing_of_ours(init):
    with sleeper(init)[0], init.files() as f:
        f.ask(proto.FS_STAT, ".")
        assert init.run("ls", "/proc/self/fd")[1].split() == [b"0", b"1", b"2", b"3"]
    state = init.run("cat", "/proc/self/status")[1].decode()
    for sigs in ("SigBlk", "SigIgn", "SigPnd"):
        assert f"{sigs}:\t0000000000000000" in state
    own = helpers.read("/proc/self/oom_score_adj").decode()
    assert int(init.run("cat", "/proc/self/oom_score_adj")[1]) == max(int(own), 100)
    with open(f"/proc/{init.pid1()}/oom_score_adj") as p:
        assert p.read() == own
    # its own files are its own, and those of PID 1 and of its supervisor are not
    assert init.run("head", "-c1", "/proc/self/environ")[0] == 0
    assert init.run("sh", "-c", "cat /proc/1/environ || cat /proc/$PPID/environ || cat /proc/1/maps")[0] != 0


def test_terminal(init):
    with init.exec("sh", "-c", "stty size; tty; read x; echo got $x; exit 5", tty=(33, 77)) as x:
        os.write(x.master, b"word\n")
        said = b""
        with contextlib.suppress(OSError):  # EIO: nobody has the other side any more
            while part := os.read(x.master, 4096):
                said += part
        assert b"33 77" in said and b"got word" in said and b"not a tty" not in said
        assert x.wait() == (5 << 8, False)


def test_signal(init):
    x, _ = sleeper(init)
    with x:
        x.kill(signal.SIGTERM)
        assert x.wait() == (signal.SIGTERM, False)
    x, _ = sleeper(init, "trap 'echo usr1' USR1; echo ready; while :; do sleep 0.05; done")
    with x:
        assert x.out.readline() == b"ready\n"
        x.sock.sendall(proto.HEADER.pack(proto.MAGIC, proto.VERSION, proto.SIGNAL, 4)[:7])
        time.sleep(0.05)  # a frame in two pieces
        x.sock.sendall((proto.HEADER.pack(proto.MAGIC, proto.VERSION, proto.SIGNAL, 4)
                        + struct.pack("=I", signal.SIGUSR1))[7:])
        assert x.out.readline() == b"usr1\n"
    alone(init)


def test_many_at_once(init):
    every = [init.exec("sh", "-c", f"read x; echo {i}; exit {i}", stdin=b"\n") for i in range(60)]
    for i, x in enumerate(every):
        with x:
            assert x.out.read() == b"%d\n" % i
            assert x.wait() == (i << 8, False)
    for i in range(200):
        assert init.run("sh", "-c", "exit $0", str(i))[0] == i << 8
    assert init.idle() == 0


def test_big_request(init):
    word = "x" * 100000
    env = [f"V{i}={word}" for i in range(10)]
    assert init.run("sh", "-c", "echo ${#V9} ${#1}", "sh", word, env=env) == (0, b"100000 100000\n")
    with fails(proto.STAGE_EXEC, errno.E2BIG):
        init.run("true", env=[f"V={word}{word}"])


# --- trees -----------------------------------------------------------------------------------

TREE = "setsid sh -c 'sleep 1000 & (setsid sleep 1000 &) ; sleep 1000' & (sleep 1000 &); sleep 1000"


def test_timeout_ends_the_tree(init):
    x, _ = sleeper(init, TREE, timeout_ms=700)
    with x:
        assert x.wait() == (signal.SIGKILL, True)
    assert init.idle() == 0
    init.resume()
    assert init.run("true", timeout_ms=60000)[0] == 0


def test_client_gone_ends_the_tree(init):
    for script in (TREE, "trap '' HUP TERM INT; while :; do sleep 0.1; done"):
        x, _ = sleeper(init, script)
        x.close()
        alone(init)
    x = init.exec("sh", "-c", "trap '' HUP; sleep 1000", tty=(24, 80))
    x.close()
    alone(init)


def test_background_goes_on(init):
    code, out = init.run("sh", "-c", "sleep 1000 >&- 2>&- & echo $!")
    assert code == 0
    time.sleep(0.7)  # longer than any grace
    assert init.run("kill", "-0", out.strip())[0] == 0
    assert init.idle() == 2  # it and who reaps it
    assert init.run("kill", out.strip())[0] == 0
    alone(init)
    assert init.idle() == 0


def test_orphans_leave_no_zombies(init):
    n = 5000 if helpers.SLOW == 1 else 500
    x, _ = sleeper(init, f"i=0; while [ $i -lt {n} ]; do (true &); i=$((i+1)); done; echo; exec sleep 1000")
    with x:
        assert x.out.readline() == b"\n"
        helpers.wait_for(lambda: sorted(name for name, _ in init.pids().values()) == ["petri-init"] * 2 + ["sleep"])
    alone(init)


@pytest.mark.parametrize("timeout", [0, 60000])
def test_supervisor_killed(init, timeout):
    """Code inside has the same user: what a supervisor had goes with it, and its client hears of it."""
    other, _ = sleeper(init)
    x, supervisor = sleeper(init, TREE, timeout_ms=timeout)
    with x, other:
        assert init.run("kill", "-KILL", supervisor)[0] == 0
        assert x.wait() == (signal.SIGKILL, False)
        with pytest.raises(EOFError):
            x.recv()
        helpers.wait_for(lambda: len(init.pids()) == 3)  # the other exec is not concerned
        other.kill(signal.SIGINT)
        assert other.wait()[0] == signal.SIGINT
    alone(init)


def test_supervisor_stopped(init):
    """Again and again, as PID 1 lets it go on."""
    stop = ("sh", "-c", "while kill -STOP $0 2>&-; do :; done")
    x, supervisor = sleeper(init, TREE, timeout_ms=2000)
    with x, init.exec(*stop, supervisor) as bad:
        assert x.wait() == (signal.SIGKILL, True)
        assert bad.wait() == (0, False)
    alone(init)
    x, supervisor = sleeper(init, TREE)
    with init.exec(*stop, supervisor) as bad:
        x.close()
        assert bad.wait() == (0, False)
    alone(init)


def test_supervisor_of_the_next(init):
    """A supervisor waits a moment for the next exec: nothing of the last one shows, and nobody can hold it."""
    with init.exec("/usr/bin/python3", "-S", "-c", "x = b'x' * (50 << 20)") as x:
        assert x.wait() == (0, False) and x.exit[3] > 50 << 20
    with init.exec("true") as x:
        assert x.wait() == (0, False) and x.exit[3] < 50 << 20
    with init.exec("sh", "-c", 'while read c; do eval "$c" 2>&1; echo; done', stdin=None) as other:
        for what in ("STOP", "KILL", "STOP"):
            spare = init.run("sh", "-c", "echo $PPID")[1].decode().strip()
            other.stdin.write(f"kill -{what} {spare}\n".encode())
            while other.out.readline() != b"\n":
                pass
            assert init.run("echo", what) == (0, what.encode() + b"\n")
        assert init.run("sh", "-c", "kill -STOP $PPID; sleep 0.1; exit 4")[0] == 4 << 8
    alone(init)


def test_kill_everything_from_inside(init):
    with init.exec("sh", "-c", "sleep 1000 & kill -TERM -1; wait $!; exit 9") as x:
        assert x.wait() == (9 << 8, False), "a supervisor only goes by SIGKILL"
    with init.exec("sh", "-c", "sleep 1000 & read x; kill -KILL -1; sleep 1000", stdin=None) as x:
        x.stdin.write(b"\n")
        assert x.wait() == (signal.SIGKILL, False)
    alone(init)
    assert init.run("sh", "-c", "kill -KILL 1; kill -STOP 1; kill -TERM 1; echo still")[1] == b"still\n"
    assert init.run("echo", "here") == (0, b"here\n")


@pytest.mark.user  # root's own processes are not counted
def test_no_more_processes(base):
    init = proto.Init(base, wrap=["prlimit", "--nproc=24"]).started()
    bomb = ("import os, time\n"
            "while True:\n"
            "    try:\n"
            "        if os.fork() == 0: time.sleep(1000)\n"
            "    except OSError: time.sleep(0.01)\n")
    with init.exec("/usr/bin/python3", "-S", "-c", bomb):
        def refused():
            try:
                init.run("true")
            except proto.Failed as e:
                return e.stage == proto.STAGE_FORK and e.errno == errno.EAGAIN
            return False
        helpers.wait_for(refused)
        with init.files() as f:  # needs no process
            assert stat.S_ISDIR(f.ask(proto.FS_STAT, "/").mode)
    alone(init)
    assert init.run("echo", "again") == (0, b"again\n")
    init.close()


@pytest.mark.user
def test_fork_bomb(base):
    init = proto.Init(base, wrap=["prlimit", "--nproc=200"]).started()
    with init.exec("bash", "-c", ":(){ :|:& };: ; sleep 1000", timeout_ms=1500) as x:
        status, timed_out = x.wait()
        assert timed_out or status
    alone(init)
    assert init.run("echo", "again") == (0, b"again\n")
    init.close()


# --- files -----------------------------------------------------------------------------------

def test_read_and_write(init, base):
    with init.files() as f:
        data = os.urandom(3 << 20)
        f.write("a", data)
        assert f.read("a") == data == open(os.path.join(base, "a"), "rb").read()
        assert stat.S_IMODE(os.stat(os.path.join(base, "a")).st_mode) == 0o666 & ~current_umask()
        os.chmod(os.path.join(base, "a"), 0o751)
        f.write("a", b"short")
        assert f.read(os.path.join(base, "a")) == b"short"
        assert f.ask(proto.FS_STAT, "a").mode == stat.S_IFREG | 0o751
        f.write("a", b"", mode=0o640)
        assert f.ask(proto.FS_STAT, "a").mode == stat.S_IFREG | 0o640
        assert os.listdir(base).count("a") == 1 and sorted(os.listdir(base)) == ["a", "sock"]
        for path, error in (("", errno.ENOENT), ("none", errno.ENOENT), (".", errno.EISDIR), ("a/b", errno.ENOTDIR),
                            ("/dev/null", errno.EINVAL), ("x" * 300, errno.ENAMETOOLONG),
                            ("x/" * 3000, errno.ENAMETOOLONG)):
            with fs_fails(error):
                f.read(path)
    os.mkfifo(os.path.join(base, "fifo"))
    with init.files() as f:
        for use in (f.read, f.open_write):
            with fs_fails(errno.EINVAL):
                use("fifo")


def current_umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_write_where(init, base):
    def at(*p):
        return os.path.join(base, *p)
    os.mkdir(at("d"))
    os.symlink("../real", at("d", "link"))
    os.symlink(at("d"), at("dl"))
    with init.files() as f:
        f.write("dl/link", b"1")  # dangling: what it points to comes to be
        f.write("d/link", b"2")
        assert os.readlink(at("d", "link")) == "../real" and open(at("real"), "rb").read() == b"2"
        for path, error in (("d", errno.EISDIR), ("d/", errno.EISDIR), ("new/", errno.EISDIR), ("dl", errno.EISDIR),
                            (".", errno.EISDIR), ("d/..", errno.EISDIR), ("no/x", errno.ENOENT), ("/", errno.EISDIR),
                            ("real/x", errno.ENOTDIR), ("", errno.ENOENT), ("y" * 256, errno.ENAMETOOLONG)):
            with fs_fails(error):
                f.open_write(path)
        os.symlink("loop", at("loop"))
        with fs_fails(errno.ELOOP):
            f.open_write("loop")
        f.write("p/q/r", b"deep", flags=PARENTS)
        assert open(at("p", "q", "r"), "rb").read() == b"deep"
        with fs_fails(errno.ENOTDIR):
            f.open_write("real/q/r", flags=PARENTS)
        with fs_fails(errno.EEXIST):
            f.open_write("d/link", flags=EXCLUSIVE)
        f.write("once", b"1", flags=EXCLUSIVE)
        w = f.open_write("twice", flags=EXCLUSIVE)
        w.close()
        open(at("twice"), "w").close()
        with fs_fails(errno.EEXIST):
            f.ask(proto.FS_COMMIT)
        with fs_fails(errno.EINVAL):
            f.ask(proto.FS_COMMIT)
        assert not [n for n in os.listdir(base) if n.startswith(".petri")]


def test_write_is_all_or_nothing(init, base):
    with open(os.path.join(base, "t"), "w") as t:
        t.write("old")
    f = init.files()
    with f.open_write("t") as w:
        w.write(b"new")
        w.flush()
        [temp] = [n for n in os.listdir(base) if n.startswith(".petri-")]
        assert stat.S_IMODE(os.stat(os.path.join(base, temp)).st_mode) == 0o600
        assert f.read("t") == b"old"
        assert init.idle() == 1, "a file in the making is work"
    f.close()
    helpers.wait_for(lambda: sorted(os.listdir(base)) == ["sock", "t"])
    with init.files() as f:  # a second one takes the place of the first
        f.open_write("t").close()
        f.write("u", b"2")
    assert sorted(os.listdir(base)) == ["sock", "t", "u"]
    assert open(os.path.join(base, "t")).read() == "old"
    assert init.idle() == 0


def test_stat_ls(init, base):
    def at(p):
        return os.path.join(base, p)
    os.symlink("f", at("l"))
    with open(at("f"), "w") as file:
        file.write("12345")
    os.utime(at("f"), ns=(1, 1234567890123456789))
    with init.files() as f:
        s = f.ask(proto.FS_STAT, "l")
        assert (s.size, s.mtime, s.nsec, s.nlink, s.uid) == (5, 1234567890, 123456789, 1, 1000)
        assert not s.has_target and s.ino == os.stat(at("f")).st_ino
        s = f.ask(proto.FS_STAT, "l", flags=NOFOLLOW)
        assert stat.S_ISLNK(s.mode) and s.words == [b"f"]
        odd = b"\xff\n\x1b[31m"
        open(os.fsencode(base) + b"/" + odd, "w").close()
        got = f.ls(".")
        assert set(got) == {b"f", b"l", b"sock", odd}
        assert got[b"l"].words == [b"l", b"f"] and got[b"f"].size == 5
        os.mkdir(at("many"))
        for i in range(3000):
            open(at(f"many/{i:0200d}"), "w").close()
        assert len(f.ls("many")) == 3000
        with fs_fails(errno.ENOTDIR):
            f.ls("f")
        with fs_fails(errno.ENOENT):
            f.ls("none")
        assert f.read("f") == b"12345"
    with init.files() as f:  # a listing that nobody reads holds nobody up
        for _ in range(3):
            f.send(proto.FS, struct.pack("=IIII", proto.FS_LS, 0, 0, 1) + proto.strings("many"))
        assert init.run("true")[0] == 0
        with init.files() as g:
            assert g.read("f") == b"12345"
    alone(init)


def test_mkdir_rm_mv(init, base):
    def at(p):
        return os.path.join(base, p)
    with init.files() as f:
        f.ask(proto.FS_MKDIR, "a")
        assert stat.S_IMODE(os.stat(at("a")).st_mode) == 0o777 & ~current_umask()
        f.ask(proto.FS_MKDIR, "b/", mode=0o1777)
        assert stat.S_IMODE(os.stat(at("b")).st_mode) == 0o1777
        for path, error in (("a", errno.EEXIST), ("x/y", errno.ENOENT)):
            with fs_fails(error):
                f.ask(proto.FS_MKDIR, path)
        f.ask(proto.FS_MKDIR, "x/y//z/", flags=PARENTS)
        f.ask(proto.FS_MKDIR, "x/y/z", flags=PARENTS)
        f.write("x/f", b"x")
        with fs_fails(errno.EEXIST):
            f.ask(proto.FS_MKDIR, "x/f", flags=PARENTS)
        with fs_fails(errno.ENOTDIR):
            f.ask(proto.FS_MKDIR, "x/f/g", flags=PARENTS)
        with fs_fails(errno.EEXIST):
            f.ask(proto.FS_MV, "x/f", "a", flags=EXCLUSIVE)
        with fs_fails(errno.EISDIR):
            f.ask(proto.FS_MV, "x/f", "a")
        f.ask(proto.FS_MV, "x/f", "a/g")
        assert f.read("a/g") == b"x"
        with fs_fails(errno.EISDIR):
            f.ask(proto.FS_RM, "a")
        with fs_fails(errno.ENOENT):
            f.ask(proto.FS_RM, "none")
        with fs_fails(errno.ENOENT):
            f.ask(proto.FS_RM, "none", flags=RECURSIVE)
        os.symlink("../b", at("a/out"))
        open(at("b/keep"), "w").close()
        deep = at("a")
        for _ in range(60):
            deep = os.path.join(deep, "d")
            os.mkdir(deep)
        f.ask(proto.FS_RM, "a/g")
        f.ask(proto.FS_RM, "a", flags=RECURSIVE)
        f.ask(proto.FS_RM, "x", flags=RECURSIVE)
        assert sorted(os.listdir(base)) == ["b", "sock"] and os.listdir(at("b")) == ["keep"]
        with fs_fails(errno.ENOSYS):
            f.ask(99, "b")


# --- keeper ----------------------------------------------------------------------------------

def quiet(conn, seconds=0.3):
    return not select.select([conn.sock], [], [], seconds)[0]


def test_quiesce(init, base):
    f = init.files()
    f.write("a", b"1")
    with sleeper(init)[0]:
        assert init.idle() == 2
        assert init.run("true")[0] == 0, "it goes on when it was not idle"
    alone(init)
    for _ in range(20):  # right after an exec
        assert init.run("true")[0] == 0
        assert init.idle() == 0
        init.resume()
    assert init.idle() == 0
    x = init.exec("echo", "late", start=False)
    f.send(proto.FS, struct.pack("=IIII", proto.FS_READ, 0, 0, 1) + proto.strings("a"))
    assert quiet(x) and quiet(f)
    assert init.idle() == 0, "asking twice is fine"
    init.resume()
    x.started()
    assert x.out.read() == b"late\n" and x.wait() == (0, False)
    f.expect(proto.FS_OK)
    x.close()
    f.close()


def test_end_of_the_keeper(base):
    init = proto.Init(base).started()
    x, _ = sleeper(init, TREE)
    init.ctl.close()
    with pytest.raises(EOFError):
        x.recv()
    assert init.proc.wait(helpers.patience(60)) is not None
    x.close()
    init.close()


def test_expectations(base):
    init = proto.Init(base, expect=1)  # seccomp
    with fails(proto.STAGE_EXPECT, 1):
        init.started()
    init.close()


def test_one_command_of_the_keepers(base):
    """petri run: no clients, and PID 1 ends with its command."""
    init = proto.Init(base, serve=False)
    x = proto.Exec(init.ctl.sock, ["sh", "-c", "(sleep 1000 &); cat; exit 3"], cwd=base, stdin=b"in",
                   env=["PATH=/usr/bin:/bin"])
    assert x.out.read(2) == b"in"
    assert x.wait() == (3 << 8, False)
    init.proc.wait(helpers.patience(60))
    x.close()
    init.close()


# --- strangers -------------------------------------------------------------------------------

def test_another_version(init):
    for version in (0, 1, proto.VERSION + 1, 65535):
        with proto.Conn(init.connect()) as c:
            c.send(proto.EXEC, b"whatever comes", version=version)
            payload, _ = c.expect(proto.HELLO)
            assert payload == init.hello and struct.unpack_from("=HH", payload)[0] == proto.VERSION
            assert payload[4:].endswith(b"\0") and len(payload) > 5
            with pytest.raises(EOFError):
                c.recv()


def test_garbage(init, base):
    head = proto.HEADER.pack
    bad_frames = [
        b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64, os.urandom(200),
        head(proto.MAGIC, proto.VERSION, 77, 0), head(proto.MAGIC, proto.VERSION, proto.QUIESCE, 0),
        head(proto.MAGIC, proto.VERSION, proto.FS, 1 << 30), head(proto.MAGIC, proto.VERSION, proto.FS, 3) + b"abc",
        head(proto.MAGIC, proto.VERSION, proto.FS, 17) + struct.pack("=IIII", 1, 0, 0, 1) + b"a",
        head(proto.MAGIC, proto.VERSION, proto.FS, 18) + struct.pack("=IIII", 1, 0, 0, 9) + b"a\0",
        head(proto.MAGIC, proto.VERSION, proto.EXEC, 1 << 31) + b"\0" * 64,
        head(proto.MAGIC, proto.VERSION, proto.EXEC, 60) + b"\xff" * 60,
        head(proto.MAGIC, proto.VERSION, proto.EXEC, 60) + b"\0" * 60,
    ]
    for bad in bad_frames:
        with proto.Conn(init.connect()) as c:
            c.sock.sendall(bad)
            with pytest.raises(EOFError):
                while True:
                    c.expect(proto.FAILED)
    # half a frame, from many, holds nobody up
    half = [init.connect() for _ in range(20)]
    for i, s in enumerate(half):
        s.sendall((head(proto.MAGIC, proto.VERSION, proto.FS if i % 2 else proto.EXEC, 100) + b"\0" * 99)[:i * 5 + 1])
    assert init.run("echo", "fine") == (0, b"fine\n")
    # the rest of one comes later
    late = proto.Files(init.connect())
    frame = head(proto.MAGIC, proto.VERSION, proto.FS, 18) + struct.pack("=IIII", proto.FS_STAT, 0, 0, 1) + b"/\0"
    for i in range(0, len(frame), 7):
        late.sock.sendall(frame[i:i + 7])
        time.sleep(0.01)
    late.expect(proto.FS_OK)
    late.close()
    for s in half:
        s.close()
    # descriptors that nobody asked for
    with proto.Conn(init.connect()) as c, open("/dev/null") as null:
        c.send(proto.FS, struct.pack("=IIII", proto.FS_STAT, 0, 0, 1) + b"/\0", [null.fileno()])
        with pytest.raises(EOFError):
            c.recv()
    alone(init)
    helpers.wait_for(lambda: init.idle() == 0)


def test_who_never_reads(init):
    with init.files() as f:
        f.sock.settimeout(0.5)
        frame = proto.HEADER.pack(proto.MAGIC, proto.VERSION, proto.FS, 18)
        frame += struct.pack("=IIII", proto.FS_STAT, 0, 0, 1) + b"/\0"
        with contextlib.suppress(OSError):
            for _ in range(100000):
                f.sock.sendall(frame)
        assert init.run("true")[0] == 0
    x, _ = sleeper(init)
    with x:
        with contextlib.suppress(OSError):
            x.sock.settimeout(0.5)
            for _ in range(1000):
                x.sock.sendall(b"\0" * 4096)
        assert init.run("true")[0] == 0
    alone(init)


def test_nobody_inside_is_a_client(init):
    code = ("import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.settimeout(60); "
            "print(s.recv(1))")
    assert init.run("/usr/bin/python3", "-c", code, init.path) == (0, b"b''\n")


def connects(sock, path):
    for _ in range(200):
        with contextlib.suppress(BlockingIOError):
            sock.connect(path)
            return True
        time.sleep(0.01)
    return False


def test_more_connections_than_fit(init):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    opened = []
    try:
        for _ in range(1100):
            s = socket.socket(socket.AF_UNIX)
            s.setblocking(False)
            opened.append(s)
            if not connects(s, init.path):
                break  # the queue of those who wait is full as well
        assert len(opened) > 900
    finally:
        for s in opened:
            s.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert init.run("echo", "back") == (0, b"back\n")
