"""petri run on a terminal."""
import os
import signal
import time

import pytest

from helpers import Tty, descendants, place, wait_for


@pytest.fixture
def tty(petri):
    opened = []

    def open_tty(*args, **kw):
        t = Tty(petri, *args, **kw)
        opened.append(t)
        return t
    yield open_tty
    for t in opened:
        if t.p.poll() is None:
            t.p.kill()
        t.p.wait()
        t.close()


def test_terminal_by_itself(tty):
    t = tty("--", "sh", "-c", "test -t 0 && test -t 1 && test -t 2 && echo IS-A-TTY; tty; exit 9")
    assert t.wait() == 9
    assert b"IS-A-TTY" in t.seen and b"/dev/pts/" in t.seen, t.seen
    assert t.restored()


def test_terminal_is_made_inside(tty):
    """Not the host's: another device, and its own number."""
    t = tty("--", "sh", "-c", "ls /dev/pts; echo; stat -c %t:%T,%d /proc/self/fd/0 -L")
    t.wait()
    host = os.fstat(t.slave)
    assert f",{host.st_dev}".encode() not in t.seen, t.seen


def test_no_terminal_for_a_pipe(petri):
    petri.sh("test -t 0 || test -t 1 || test -t 2").ok(1)


def test_terminal_asked_for_where_there_is_none(petri):
    r = petri.sh("echo ran", "-t").ok(125)
    assert "terminal" in r.talk and r.out == "", r


def test_no_terminal_when_stdout_is_a_pipe(tty):
    """`petri run -- ls | cat` typed in a shell: stdin is a terminal, stdout not."""
    r, w = os.pipe()
    t = tty("--", "sh", "-c", "test -t 1 || echo NO-TTY", stdout=w)
    os.close(w)
    with os.fdopen(r) as f:
        assert f.read() == "NO-TTY\n"
    assert t.wait() == 0 and t.restored()


def test_window_size(tty):
    t = tty("--", "stty", "size", rows=33, cols=111)
    assert t.wait() == 0 and b"33 111" in t.seen, t.seen


def test_resize(tty, petri, probes):
    place(probes, "signals", petri.project)
    t = tty("--", "sh", "-c", f"./signals {int(signal.SIGWINCH)}; stty size")
    t.expect(rb"ready")
    t.resize(40, 123)
    t.expect(rb"40 123")
    assert t.wait() == 0


def test_resize_twice_quickly(tty):
    t = tty("--", "sh", "-c", "echo ready; until test \"$(stty size)\" = '50 60'; do sleep 0.05; done; echo fits")
    t.expect(rb"ready")
    t.resize(10, 20)
    t.resize(50, 60)
    t.expect(rb"fits")
    assert t.wait() == 0


def test_ctrl_c(tty, petri, probes):
    place(probes, "signals", petri.project)
    t = tty("--", "./signals", int(signal.SIGINT))
    t.expect(rb"ready")
    t.send(b"\x03")
    assert t.wait() == 33 and b"got 2" in t.seen
    assert t.restored()


def test_ctrl_c_ends_a_plain_command(tty):
    t = tty("--", "sh", "-c", "echo ready; exec sleep 300")
    t.expect(rb"ready")
    t.send(b"\x03")
    assert t.wait() == 130
    assert t.restored()


def test_ctrl_backslash(tty):
    t = tty("--", "sh", "-c", "echo ready; exec sleep 300")
    t.expect(rb"ready")
    t.send(b"\x1c")
    assert t.wait() == 131


def test_ctrl_d(tty):
    t = tty("--", "cat")
    t.send(b"hello\n")
    t.expect(rb"hello\r\nhello")
    t.send(b"\x04")
    assert t.wait() == 0


def test_input_before_the_start(tty):
    """What was typed while petri started is not lost."""
    t = tty("--", "sh", "-c", "read x; echo got:$x")
    t.send(b"early\n")
    t.expect(rb"got:early")
    assert t.wait() == 0


def test_job_control_inside(tty):
    """The command has a controlling terminal and a session: an interactive shell has no complaint."""
    t = tty("-e", "PS1=PROMPT-", "--", "bash", "--norc", "-i")
    t.expect(rb"PROMPT-")
    t.send(b"sleep 300 | sleep 300 &\n")
    t.expect(rb"\[1\] \d+")
    t.send(b"jobs; kill %1; exit 4\n")
    assert t.wait() == 4
    assert b"no job control" not in t.seen and b"cannot set terminal" not in t.seen, t.seen


def test_all_output_before_the_end(tty):
    t = tty("--", "sh", "-c", "seq 1 20000; exit 6")
    assert t.wait() == 6
    assert b"19999\r\n20000\r\n" in t.seen


def test_terminal_is_raw_meanwhile_and_restored(tty):
    t = tty("--", "sh", "-c", "echo ready; read x")
    t.expect(rb"ready")
    assert not t.restored()  # the inner terminal does the echoing
    t.send(b"\n")
    assert t.wait() == 0
    assert t.restored()


@pytest.mark.parametrize("sig", ["TERM", "HUP", "INT", "QUIT", "ABRT", "SEGV", "USR1", "PIPE", "ALRM"])
def test_restored_after_signal(tty, sig):
    t = tty("--", "sh", "-c", "echo ready; exec sleep 300")
    t.expect(rb"ready")
    t.p.send_signal(getattr(signal, "SIG" + sig))
    if sig in ("PIPE", "ALRM"):  # petri may ignore these: then the command lives on
        time.sleep(0.2)
        if t.p.poll() is None:
            t.p.send_signal(signal.SIGTERM)
    t.wait()
    wait_for(t.restored, what="the terminal's old state")


def test_restored_after_sigkill(tty):
    t = tty("--", "sh", "-c", "echo ready; exec sleep 300")
    t.expect(rb"ready")
    t.p.kill()
    t.wait()
    wait_for(t.restored, what="the terminal's old state")


def test_restored_after_timeout(tty):
    t = tty("--timeout", "1", "--", "sleep", "300")
    assert t.wait() == 124
    assert t.restored()


def test_restored_after_mistakes(tty):
    for args, rc in ((("--", "no-such-command-here"), 127), (("--no-such-flag",), 125)):
        t = tty(*args)
        assert t.wait() == rc and t.restored()


def test_restored_after_the_command_changed_it(tty):
    t = tty("--", "sh", "-c", "stty raw -echo; printf '\\033[?25l'; kill -9 $$")
    assert t.wait() == 137
    assert t.restored()


def test_terminal_goes_away(tty, petri):
    """The window is closed: the command gets its HUP, everything ends."""
    others = set(descendants())
    t = tty("--", "sh", "-c", "echo ready; sleep 300; sleep 300")
    t.expect(rb"ready")
    t.close()
    t.p.wait(10)
    wait_for(lambda: not set(descendants()) - others, what="the end of all")


def test_suspend(tty, petri, probes):
    """Ctrl-Z belongs to the inside: a bare command that stops does not hang the terminal forever."""
    place(probes, "signals", petri.project)
    t = tty("--", "./signals", int(signal.SIGTSTP))
    t.expect(rb"ready")
    t.send(b"\x1a")
    assert t.wait() == 33 and b"got 20" in t.seen


HOSTILE = rb"A\033]52;c;QUJD\007B\033[31mC\033[0m\033[cD\033P+q544e\033\\E"


def test_output_is_filtered(tty):
    """Colours pass; the clipboard, requests for an answer and device strings do not."""
    t = tty("--", "printf", HOSTILE.decode())
    assert t.wait() == 0
    assert b"\x1b[31mC" in t.seen and b"AB" in t.seen, t.seen
    assert b"]52" not in t.seen and b"\x1b[c" not in t.seen and b"\x1bP" not in t.seen, t.seen


def test_raw_terminal(tty):
    t = tty("--raw-terminal", "--", "printf", HOSTILE.decode())
    assert t.wait() == 0 and b"\x1b]52;c;QUJD\x07" in t.seen


def test_no_tty_flag(tty):
    t = tty("-T", "--", "sh", "-c", "test -t 1 || echo NO-TTY")
    assert t.wait() == 0 and b"NO-TTY" in t.seen and t.restored()


def test_term_is_passed(tty):
    t = tty("--", "sh", "-c", "echo term=$TERM")
    assert t.wait() == 0 and b"term=xterm" in t.seen
