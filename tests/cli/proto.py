"""A small client of petri-init's protocol (runtime/init/proto.h), and a way to have a petri-init without petri."""
import array
import errno
import os
import socket
import struct
import subprocess

import helpers

MAGIC, VERSION = 0x70747269, 2
(HELLO, EXEC, STARTED, FAILED, SIGNAL, EXIT, SERVE, QUIESCE, IDLE, RESUME, FS, FS_OK, FS_ENTRY) = range(1, 14)
(STAGE_REQUEST, STAGE_EXPECT, STAGE_CHDIR, STAGE_EXEC, STAGE_PTY, STAGE_USER, STAGE_FORK, STAGE_FS) = range(8)
(FS_READ, FS_WRITE, FS_COMMIT, FS_STAT, FS_LS, FS_MKDIR, FS_RM, FS_MV) = range(1, 9)
NOFOLLOW, PARENTS, RECURSIVE, EXCLUSIVE = 1, 2, 4, 8
EXPECT_NO_NEW_PRIVS, EXPECT_NO_CAPS, EXPECT_PID1 = 2, 4, 8
SAME_ID = 0xffffffff
HEADER = struct.Struct("=IHHI")
EXEC_HEAD = struct.Struct("=IIHHIIIIxxxxQ")
STAT = struct.Struct("=IIIIQQqII")
EXIT_FRAME = struct.Struct("=iIQQ")


class Failed(Exception):
    def __init__(self, payload):
        self.stage, self.errno = struct.unpack("=Ii", payload)
        super().__init__(f"stage {self.stage}, {errno.errorcode.get(self.errno, self.errno)}")


class Conn:
    """Frames over a socket. What is awaited comes within a generous time or the test fails."""

    def __init__(self, sock):
        self.sock = sock
        sock.settimeout(helpers.patience(60))

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, kind, payload=b"", fds=(), version=VERSION):
        ctl = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        data = HEADER.pack(MAGIC, version, kind, len(payload)) + payload
        n = self.sock.sendmsg([data], ctl)
        if n < len(data):
            self.sock.sendall(data[n:])

    def exactly(self, n):
        got = b""
        while len(got) < n:
            part = self.sock.recv(n - len(got))
            if not part:
                raise EOFError("the connection is closed")
            got += part
        return got

    def recv(self):
        """(type, payload, descriptors); EOFError where petri-init hung up."""
        try:
            head, ctl, flags, _ = self.sock.recvmsg(HEADER.size, socket.CMSG_SPACE(12))
            if not head:
                raise EOFError("the connection is closed")
            head += self.exactly(HEADER.size - len(head))
            magic, version, kind, size = HEADER.unpack(head)
            assert magic == MAGIC and version == VERSION and not flags & socket.MSG_CTRUNC
            fds = array.array("i")
            for _, _, data in ctl:
                fds.frombytes(data)
            return kind, self.exactly(size), list(fds)
        except ConnectionResetError:
            raise EOFError("the connection is reset")

    def expect(self, want):
        kind, payload, fds = self.recv()
        if kind == FAILED and want != FAILED:
            raise Failed(payload)
        assert kind == want, f"frame {kind}, not {want}: {payload!r}"
        return payload, fds


def strings(*words):
    return b"".join(os.fsencode(w) + b"\0" for w in words)


class Exec(Conn):
    """One exec: its pipes or terminal are this process's."""

    def __init__(self, sock, argv, env=(), cwd="", tty=None, timeout_ms=0, uid=SAME_ID, gid=SAME_ID, stdin=b"",
                 start=True):
        super().__init__(sock)
        rows, cols = tty or (0, 0)
        payload = EXEC_HEAD.pack(0, 1 if tty else 0, rows, cols, len(argv), len(env), uid, gid, timeout_ms)
        payload += strings(cwd, *argv, *env)
        self.out = self.err = self.stdin = self.master = None
        if tty:
            self.send(EXEC, payload)
        else:
            pipes = [os.pipe() for _ in range(3)]
            self.send(EXEC, payload, (pipes[0][0], pipes[1][1], pipes[2][1]))
            for fd in (pipes[0][0], pipes[1][1], pipes[2][1]):
                os.close(fd)
            self.stdin, self.out, self.err = (os.fdopen(pipes[0][1], "wb", 0), os.fdopen(pipes[1][0], "rb"),
                                              os.fdopen(pipes[2][0], "rb"))
            if stdin is not None:  # None: the test writes itself
                self.stdin.write(stdin)
                self.stdin.close()
        if start:
            try:
                self.started()
            except BaseException:
                self.close()
                raise

    def close(self):
        super().close()
        for f in (self.stdin, self.out, self.err):
            if f:
                f.close()
        if self.master is not None:
            os.close(self.master)
            self.master = None

    def started(self):
        _, fds = self.expect(STARTED)
        if fds:
            self.master = fds[0]

    def kill(self, sig):
        self.send(SIGNAL, struct.pack("=I", sig))

    def wait(self):
        """(status as from waitpid, whether it timed out)"""
        self.exit = EXIT_FRAME.unpack(self.expect(EXIT)[0])
        return self.exit[0], bool(self.exit[1])


class Stat:
    def __init__(self, payload):
        (self.mode, self.nlink, self.uid, self.gid, self.size, self.ino, self.mtime, self.nsec,
         self.has_target) = STAT.unpack_from(payload)
        self.words = payload[STAT.size:].split(b"\0")[:-1]


class Files(Conn):
    """File requests, one after another."""

    def ask(self, op, *paths, flags=0, mode=0):
        self.send(FS, struct.pack("=IIII", op, flags, mode, len(paths)) + strings(*paths))
        payload, fds = self.expect(FS_OK)
        self.fds = fds
        return Stat(payload)

    def read(self, path):
        self.ask(FS_READ, path)
        with os.fdopen(self.fds[0], "rb") as f:
            return f.read()

    def open_write(self, path, flags=0, mode=0):
        self.ask(FS_WRITE, path, flags=flags, mode=mode)
        return os.fdopen(self.fds[0], "wb")

    def write(self, path, data, flags=0, mode=0):
        with self.open_write(path, flags, mode) as f:
            f.write(data)
        return self.ask(FS_COMMIT)

    def ls(self, path):
        self.send(FS, struct.pack("=IIII", FS_LS, 0, 0, 1) + strings(path))
        entries = {}
        while True:
            kind, payload, _ = self.recv()
            if kind == FAILED:
                raise Failed(payload)
            if kind == FS_OK:
                return entries
            assert kind == FS_ENTRY
            s = Stat(payload)
            entries[s.words[0]] = s


def init_path():
    beside = os.path.join(os.path.dirname(helpers.BIN), "petri-init")
    installed = os.path.join(os.path.dirname(helpers.BIN), "..", "libexec", "petri", "petri-init")
    return beside if os.path.exists(beside) else installed


class Init:
    """petri-init as PID 1 of a pid namespace of its own, without capabilities, as an ordinary user."""

    def __init__(self, base, serve=True, expect=EXPECT_PID1 | EXPECT_NO_CAPS | EXPECT_NO_NEW_PRIVS,
                 cwd=None, wrap=(), env=("PATH=/usr/bin:/bin", "BASE=base")):
        self.base, self.path = base, os.path.join(base, "sock")
        ours, theirs = socket.socketpair()
        argv = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--mount", "--pid", "--fork",
                "--kill-child", "--mount-proc", *wrap, "setpriv", "--no-new-privs", init_path()]
        self.proc = subprocess.Popen(argv, close_fds=False, stdin=subprocess.DEVNULL,
                                     preexec_fn=lambda: os.dup2(theirs.fileno(), 3))
        theirs.close()
        self.ctl = Conn(ours)
        self.hello, _ = self.ctl.expect(HELLO)
        self.listener = socket.socket(socket.AF_UNIX)
        if serve:
            self.listener.bind(self.path)
            self.listener.listen(64)
            self.ctl.send(SERVE, struct.pack("=IIII", expect, len(env), os.getuid(), os.getgid()) + strings(cwd or base, *env),
                          [self.listener.fileno()])

    def started(self):
        self.ctl.expect(STARTED)
        return self

    def close(self):
        self.ctl.close()
        self.listener.close()
        self.proc.wait(helpers.patience(60))

    def connect(self):
        s = socket.socket(socket.AF_UNIX)
        s.connect(self.path)
        return s

    def exec(self, *argv, **kw):
        return Exec(self.connect(), argv, **kw)

    def run(self, *argv, **kw):
        """(status, standard output)"""
        with self.exec(*argv, **kw) as x:
            out = x.out.read()
            return x.wait()[0], out

    def files(self):
        return Files(self.connect())

    def idle(self):
        self.ctl.send(QUIESCE)
        return struct.unpack("=I", self.ctl.expect(IDLE)[0])[0]

    def resume(self):
        self.ctl.send(RESUME)

    def pids(self):
        """What runs inside, PID 1 included, by the pids of the outside: {pid: (name, state)}."""
        found = {}
        ns = os.stat(f"/proc/{self.pid1()}/ns/pid").st_ino
        for p in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.stat(f"/proc/{p}/ns/pid").st_ino == ns:
                    with open(f"/proc/{p}/stat") as f:
                        name, rest = f.read().rsplit(")", 1)
                    found[int(p)] = (name.split("(", 1)[1], rest.split()[0])
            except OSError:
                pass
        return found

    def pid1(self):
        with open(f"/proc/{self.proc.pid}/task/{self.proc.pid}/children") as f:
            return int(f.read().split()[0])
