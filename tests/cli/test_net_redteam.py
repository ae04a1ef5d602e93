"""Attacks on the network of a sandbox: through a change of its policy, and by a gateway that was taken over."""
import json
import os
import shutil
import signal

import netcase
from helpers import wait_for
from life import life  # noqa: F401
from netcase import gateway, petri  # noqa: F401

# One datagram after the other on the same flow; ends with the first that is refused.
TALK = """
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(60)
s.connect(socket.getaddrinfo("evil.test", 9000, socket.AF_INET)[0][4])
for _ in range(1200):
    try:
        s.send(b"hi")
        print(s.recv(100).decode(), flush=True)
    except OSError as e:
        print(type(e).__name__, flush=True)
        break
    time.sleep(0.05)
"""

# Lines that ours would never write, and one that it would.
TAKEN_OVER = r"""#!/usr/bin/python3
import json, socket
s = socket.socket(fileno=3)
line = {"type": "log", "verdict": "deny", "proto": "tcp", "rule": "r", "why": "w"}
for odd in ({"name": "\x1b]0;x\x07a.test"}, {"addr": "\x1b[31m1.2.3.4"}, {"why": "\x1b[2J"}, {"rule": "\u009b31m"},
            {"name": "b.test", "allow": "b.test; touch pwned"}, {"name": "c.test", "allow": "$(touch pwned)"},
            {"proto": "\x1b[5m"}, {"name": "d.test", "time": "1999"}, {"name": "e.test", "why": "x" * 60000},
            {"name": "f.test", "port": 65536}, {"name": "g.test", "port": "80"}, {"name": "h.test", "more": {}},
            {"name": "good.test", "allow": "good.test", "port": 80}):
    s.send(json.dumps({**line, **odd}).encode())
for odd in (b"\xff", b"[" * 60000, b"[1]", b"{}", b'"log"', b'{"type":"log"}', b'{"type":["log"]}'):
    s.send(odd)
while got := s.recv(65536):
    got = json.loads(got)
    if got["type"] == "ping":
        s.send(json.dumps({"type": "pong", "n": got["n"]}).encode())
"""


def test_datagrams_of_a_name_that_is_denied_now(life, world):
    life.petri.file("talk.py", TALK)
    life.start("--network", "full")
    p = life.begin("exec", "--", "python3", "talk.py")
    assert p.stdout.readline() == b"ECHO hi\n"
    life("net", "deny", "evil.test").ok()
    out, _ = p.communicate(timeout=120)
    assert out.splitlines()[-1] == b"ConnectionRefusedError", out


def test_a_stopped_gateway_does_not_keep_an_old_policy(life, world):
    life.start("--network", "limited")
    assert "SERVER evil" in life.out("curl -sm30 http://evil.test/")
    pid = gateway(life)
    os.kill(pid, signal.SIGSTOP)
    life("net", "deny", "evil.test").ok()
    assert gateway(life) != pid
    world.mark()
    assert life.sh("curl -sm30 http://evil.test/").rc != 0
    assert "SERVER allowed" in life.out("curl -sm30 http://allowed.test/")
    assert not world.log("evil")


def test_words_of_a_gateway_that_was_taken_over(life, monkeypatch):
    there = life.petri.path("taken")
    os.makedirs(there)
    bin = os.path.dirname(netcase.BIN)
    for name in ("petri", "petri-init", "petri-image"):
        for place in (bin, os.path.join(bin, "..", "libexec", "petri")):  # a build tree, an installed one
            if os.path.exists(os.path.join(place, name)):
                shutil.copy(os.path.join(place, name), there)
    with open(os.path.join(there, "petri-gateway"), "w") as f:
        f.write(TAKEN_OVER)
    os.chmod(os.path.join(there, "petri-gateway"), 0o755)
    monkeypatch.setattr(netcase, "BIN", os.path.join(there, "petri"))
    life.start("--network", "limited")
    lines = wait_for(lambda: netcase.net_log(life), what="its line")
    assert [(x["name"], x["allow"]) for x in lines] == [("good.test", "good.test")], lines
    shown = life("net", "log").ok().out
    assert shown.count("\n") == 1 and "petri net allow good.test" in shown and shown.replace("\n", "").isprintable(), shown
    events = [json.loads(x) for x in life("events", "--json").ok().out.splitlines()]
    assert [x["name"] for x in events if x["event"] == "net_denied"] != [], events
