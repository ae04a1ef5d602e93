"""The network of sandboxes that live: what the log and the counts tell, rules that change, published ports, forks."""
import json
import os
import re
import subprocess

import pytest

from helpers import Leaks, descendants, wait_for
from life import life, one_line  # noqa: F401
from netcase import counts, gateway, lines, logged, net_log, petri, reached  # noqa: F401
from nethosts import ALLOWED, EVIL, HOST, INTRANET

ALLOW = ("--network", "allowlist", "--allow-domain", "allowed.test")
PORT, OTHER_PORT = 18080, 18081


def probe(life, line, box=None, **kw):
    return life.sh(line.replace("net ", "./net "), box=box, **kw)


def can(life, host, box=None, port=80):
    """Whether a server of that name answers with its name."""
    return probe(life, f"net get {host} {port} {host}", box=box).out.startswith("200 OK")


def shown(life, *args):
    return life("net", "show", "--json", *args).ok().json


# --- log, counts, events -----------------------------------------------------------------------------

def test_log(life, world):
    life.start(*ALLOW, "--allow-domain", "*.allowed.test")
    probe(life, f"net get allowed.test 80 allowed.test; net get evil.test 80 a; net get {EVIL} 80 {EVIL}; "
                f"net get {EVIL} 22 a; net udp {EVIL} 9000 a; net get priv.allowed.test 80 priv.allowed.test")
    e = logged(life, verdict="allow", name="allowed.test", port=80)
    assert e["addr"] == ALLOWED and e["proto"] == "tcp" and e["rule"] == "allowed.test", e
    assert 50 < e["in"] < 1000 and 20 < e["out"] < 1000 and e["time"], e
    e = logged(life, verdict="deny", name="evil.test")
    assert e["allow"] == "evil.test" and e["why"] and e["rule"], e
    e = logged(life, verdict="deny", addr=EVIL, port=80)
    assert e["allow"].startswith(EVIL) and e["proto"] == "tcp", e
    assert logged(life, verdict="deny", addr=EVIL, port=22)["allow"] == f"{EVIL}:22"
    assert logged(life, verdict="deny", addr=EVIL, port=9000)["proto"] == "udp"
    e = logged(life, verdict="deny", name="priv.allowed.test")
    assert e["addr"] == INTRANET and e["allow"].startswith(INTRANET) and "private" in e["why"], e
    text = life("net", "log").ok().out
    assert len(text.splitlines()) == len(net_log(life)), text
    assert re.search(r"^\S+ .*evil\.test.*petri net allow evil\.test$", text, re.M), text
    assert re.search(r"allowed\.test.*80", text), text


def test_log_follows(life):
    life.start(*ALLOW)
    p = life.begin("net", "log", "-f", "--json")
    probe(life, "net get first.test 80 a")
    names = []

    def until(name):
        while not names or names[-1] != name:
            line = p.stdout.readline()
            assert line, (names, p.stderr.read())
            names.append(json.loads(line).get("name"))
    until("first.test")
    probe(life, "net get second.test 80 a")
    until("second.test")
    p.terminate()
    p.wait(10)


def test_log_is_bounded(life):
    """A sandbox that tries without end fills no disk."""
    life.start(*ALLOW)
    life.sh("python3 -c \"import socket\n"
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
            "for i in range(20000):\n"
            "  n = b'%060d' % i\n"
            "  s.sendto(b'\\1\\2\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0' + bytes([60]) + n + b'\\4test\\0\\0\\1\\0\\1', ('198.18.0.1', 53))\n"
            "  if i % 50 == 49: s.recv(500)\"", timeout=120).ok()
    net_log(life)
    size = sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(life.petri.store)
               for f in files if f.startswith("net.jsonl"))
    assert 1000 < size < 6 << 20, size
    assert can(life, "allowed.test")


def test_counts(life, world):
    life.start(*ALLOW)
    assert life.status()["network"]["policy"] == "allowlist"
    before = counts(life)
    probe(life, "net get allowed.test 80 allowed.test allowed.test; net get evil.test 80 a; ./crowd 203.0.113.10 80 "
                "allowed.test 1 500000")
    wait_for(lambda: counts(life)["allowed"] - before["allowed"] == 2, what=lambda: f"two connections in {counts(life)}")
    wait_for(lambda: counts(life)["open"] == 0, what="their end")
    after = counts(life)
    assert after["denied"] > before["denied"] and after["malformed"] == before["malformed"], after
    assert 500000 < after["bytes_in"] < 520000 and 100 < after["bytes_out"] < 5000, after
    assert "evil.test" not in life("status").ok().out


def test_events_of_a_run(petri, world):
    """Whoever reads the result knows which rule is missing, and the rule helps."""
    r = petri.probe("net get evil.test 80 evil.test; net get priv.allowed.test 80 priv.allowed.test; "
                    f"net get {EVIL} 22 a; net get allowed.test 80 allowed.test", "--json", *ALLOW,
                    "--allow-domain", "*.allowed.test").ok()
    events = [e for e in r.json["events"] if e["type"] == "net_denied"]
    by = {e.get("name") or e.get("addr"): e for e in events}
    assert set(by) == {"evil.test", "priv.allowed.test", EVIL}, events
    assert by["evil.test"]["allow"] == "petri net allow evil.test" and by["evil.test"]["why"], events
    assert by["priv.allowed.test"]["addr"] == INTRANET and "private" in by["priv.allowed.test"]["why"], events
    assert by["priv.allowed.test"]["port"] == 80 and by[EVIL]["port"] == 22, events
    rules = [x for e in events for x in ("--allow-domain", e["allow"].split()[-1])]
    r = petri.probe("net get evil.test 80 evil.test; net get priv.allowed.test 80 priv.allowed.test; "
                    f"timeout 20 bash -c 'exec 3<>/dev/tcp/{EVIL}/22; head -n 1 <&3'", *ALLOW,
                    "--allow-domain", "*.allowed.test", *rules).ok()
    assert [x.strip() for x in lines(r)] == [reached("evil", "evil.test"), reached("intranet", "priv.allowed.test"),
                                             "SSH-2.0-test"], r


def test_events_are_few(petri):
    """The same again and again is one event; of very many there is a part."""
    r = petri.sh("for i in 1 2 3 4 5; do ./net get evil.test 80 a; done", "--json", *ALLOW)
    assert [e["name"] for e in r.json["events"] if e["type"] == "net_denied"] == ["evil.test"], r
    r = petri.sh("for i in $(seq 300); do ./net get n$i.test 80 a; done >/dev/null", "--json", *ALLOW)
    assert 10 <= len([e for e in r.json["events"] if e["type"] == "net_denied"]) <= 300, r


# --- rules that change -------------------------------------------------------------------------------

def test_allow_and_deny(life, world):
    life.start(*ALLOW)
    pid = gateway(life)
    assert not can(life, "other.test")
    life("net", "allow", "other.test", "*.other.test").ok()
    assert can(life, "other.test") and can(life, "x.other.test") and can(life, "allowed.test")
    life("net", "deny", "other.test").ok()
    assert not can(life, "other.test") and can(life, "x.other.test")
    assert not can(life, "allowed.test", port=8080)
    life("net", "allow", "allowed.test:8080").ok()
    assert can(life, "allowed.test", port=8080)
    life("net", "allow", INTRANET).ok()
    assert can(life, INTRANET)
    rules = shown(life)["rules"]
    assert set(rules["allow"]) >= {"allowed.test", "*.other.test", "allowed.test:8080", INTRANET}, rules
    assert "other.test" in rules["deny"], rules
    text = life("net", "show").ok().out
    assert "allowlist" in text and "*.other.test" in text, text
    assert gateway(life) == pid
    life("restart").ok()
    assert can(life, "x.other.test") and not can(life, "other.test") and shown(life)["rules"] == rules


def test_the_line_of_the_log_helps(life):
    """What petri proposes, done as it stands there."""
    life.start(*ALLOW, "--allow-domain", "*.allowed.test")
    for host, port in (("evil.test", 80), ("priv.allowed.test", 80), (EVIL, 80), ("allowed.test", 8080)):
        assert not can(life, host, port=port)
        line = wait_for(lambda: [x for x in life("net", "log").out.splitlines() if host in x and "petri net allow" in x],
                        what=f"a proposal for {host}")[-1]
        words = re.search(r"petri (net allow \S+)$", line).group(1).split()
        life(*words).ok()
        assert can(life, host, port=port), (line, shown(life))


def test_denied_in_the_middle(life, world):
    """A kept connection is judged by the rules of the moment."""
    life.start("--allow-domain", "allowed.test")
    life.petri.file("keep.py", "")
    p = life.begin("exec", "-i", "--", "python3", "-uc",
                   "import http.client, sys\n"
                   "c = http.client.HTTPConnection('allowed.test', timeout=60)\n"
                   "for line in sys.stdin:\n"
                   "  try:\n"
                   "    c.sock is None and line == 'one\\n' and c.connect()\n"
                   "    c.auto_open = 0\n"
                   "    c.request('GET', '/' + line.strip()); print(c.getresponse().read().decode().strip())\n"
                   "  except Exception as e: print('FAILED', type(e).__name__)\n", stdin=subprocess.PIPE)

    def ask(word):
        p.stdin.write(word.encode() + b"\n")
        p.stdin.flush()
        return p.stdout.readline().decode()
    assert ask("one").endswith("PATH /one\n")
    assert ask("two").endswith("PATH /two\n")
    life("net", "deny", "allowed.test").ok()
    assert ask("three").startswith("FAILED")
    p.stdin.close()
    p.wait(20)
    assert len(world.log("allowed", event="connect")) == 1
    assert not [x for x in world.log("allowed") if "three" in x.get("line", "")]


# --- published ports ---------------------------------------------------------------------------------

def outside(life, where, port, command="host"):
    """A request from outside the sandbox to a port of the host."""
    w = life.petri.world
    net = os.path.join(life.project, "net")
    enter = w.enter("/") if command == "host" else w.enter_world
    r = subprocess.run([*enter, net, "get", where, str(port), "a"], capture_output=True, text=True, timeout=120)
    return re.sub(r" ms=\d+", "", r.stdout.strip())


def served(life, where, port, text):
    wait_for(lambda: outside(life, where, port) == f"200 OK {text}",
             what=lambda: f"'{text}' instead of '{outside(life, where, port)}'")


@pytest.mark.parametrize("mode", ["none", "limited", "full"])
def test_publish(life, mode):
    life.start("--network", mode, "-p", f"{PORT}:80", "-p", f"{HOST}:{OTHER_PORT}:8080")
    life("exec", "-d", "--", "./net", "serve", "127.0.0.1", "80", "on-loopback").ok()
    served(life, "127.0.0.1", PORT, "on-loopback")
    assert outside(life, HOST, PORT).startswith("ERR"), "a port of the loopback is open to the network"
    assert outside(life, HOST, PORT, "world").startswith("ERR")
    # nobody listens inside: it ends at once
    assert outside(life, HOST, OTHER_PORT, "world").startswith(("ERR", "CLOSED"))
    life("exec", "-d", "--", "./net", "serve", "0.0.0.0", "8080", "on-all").ok()
    served(life, HOST, OTHER_PORT, "on-all")
    assert outside(life, HOST, OTHER_PORT, "world") == "200 OK on-all"
    ports = life("port", "--json").ok().json
    assert {(p["host"], p["host_port"], p["port"]) for p in ports} == {("127.0.0.1", PORT, 80), (HOST, OTHER_PORT, 8080)}
    text = life("port").ok().out
    assert str(PORT) in text and str(OTHER_PORT) in text and len(text.splitlines()) == 2, text
    life("stop").ok()
    assert outside(life, "127.0.0.1", PORT).startswith("ERR"), "still open after stop"
    life("start").ok()
    life("exec", "-d", "--", "./net", "serve", "::1", "80", "on-six").ok()
    served(life, "127.0.0.1", PORT, "on-six")


def test_publish_of_a_run(petri):
    p = petri.start("--network", "none", "-p", f"{PORT}:8080", "--", "./net", "serve", "127.0.0.1", "8080", "of-a-run")
    box = type("Box", (), {"petri": petri, "project": petri.project})
    served(box, "127.0.0.1", PORT, "of-a-run")
    p.terminate()
    p.wait(30)
    assert outside(box, "127.0.0.1", PORT).startswith("ERR")


def test_publish_a_lot(life):
    """A published port carries as much as one wants, and several at a time."""
    life.start("--network", "none", "-p", f"{PORT}:8000")
    life("exec", "-d", "--", "python3", "-m", "http.server", "8000", "--bind", "127.0.0.1").ok()
    life.sh("head -c 20M /dev/zero > big").ok()
    net = life.petri.world
    wait_for(lambda: outside(life, "127.0.0.1", PORT).startswith("404"), what="the server")
    ps = [subprocess.Popen([*net.enter("/"), "curl", "-sS", f"http://127.0.0.1:{PORT}/big", "-o", "/dev/null", "-w",
                            "%{size_download}"], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [p.communicate(timeout=120)[0] for p in ps] == [str(20 << 20)] * 4


def test_the_sandbox_does_not_reach_what_it_publishes(life, world):
    """Its own published port is a service of the host like any other."""
    life.start("--network", "full", "-p", f"{HOST}:{PORT}:80")
    life("exec", "-d", "--", "./net", "serve", "127.0.0.1", "80", "mine").ok()
    served(life, HOST, PORT, "mine")
    assert not probe(life, f"net get {HOST} {PORT} a").out.startswith("200")


# --- copies ------------------------------------------------------------------------------------------

def test_fork_and_snapshot_keep_the_policy(life, world):
    life.start(*ALLOW, "--deny-domain", "evil.test", "--net-rate", "100M", "src")
    pid = gateway(life, "src")
    fork = life.fork("src")[0]
    assert gateway(life, fork) != pid
    assert shown(life, fork)["rules"] == shown(life, "src")["rules"]
    for box in ("src", fork):
        assert can(life, "allowed.test", box) and not can(life, "other.test", box)
    life("net", "allow", "-s", "src", "other.test").ok()
    assert can(life, "other.test", "src") and not can(life, "other.test", fork)
    life.snap("src")
    assert can(life, "allowed.test", "src") and not can(life, "evil.test", "src")
    life("rm", "-f", "src").ok()
    assert can(life, "allowed.test", fork) and not can(life, "other.test", fork)


def test_rollback(life):
    life.start(*ALLOW)
    probe(life, "echo 1 > f; net get allowed.test 80 allowed.test").ok()
    life.snap()
    life.sh("echo 2 > f").ok()
    life("rollback", "s1").ok()
    assert life.out("cat f") == "1\n" and can(life, "allowed.test") and not can(life, "other.test")


def test_two_sandboxes_do_not_meet(life, world):
    """Same addresses in each, no way from one to the other."""
    life.start("--network", "full", "a")
    life.start("--network", "full", "b")
    life("exec", "-d", "a", "--", "./net", "serve", "0.0.0.0", "8080", "of-a").ok()
    wait_for(lambda: probe(life, "net get 127.0.0.1 8080 a", box="a").out.startswith("200"), what="the server")
    for addr in ("127.0.0.1", "198.18.0.1", "198.18.0.2"):
        assert not probe(life, f"net get {addr} 8080 a", box="b").out.startswith("200"), addr


# --- its end -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("how", ["stop", "rm", "keeper", "launcher"])
def test_nothing_is_left(life, world, how):
    life.start("warm")
    life("rm", "-f", "warm").ok()
    leaks = Leaks(deep=True)
    interfaces = world.interfaces()
    life.start("--network", "full", "-p", f"{PORT}:80", "box")
    assert can(life, "allowed.test", "box")
    pid = gateway(life, "box")
    assert pid in descendants() and world.interfaces() == interfaces
    if how in ("stop", "rm"):
        life(*(("stop", "box") if how == "stop" else ("rm", "-f", "box"))).ok()
    else:
        os.kill(life.keeper("box") if how == "keeper" else life.launcher("box"), 9)
        life.stopped("box")
        assert outside(life, "127.0.0.1", PORT).startswith("ERR")
        life.start("box")  # clears what its keeper could not, and gets the port
        assert can(life, "allowed.test", "box")
        life("stop", "box").ok()
    left = leaks.left()
    assert not left, left
    assert world.interfaces() == interfaces and pid not in descendants()
    assert outside(life, "127.0.0.1", PORT).startswith("ERR")


def test_nothing_is_left_of_a_run(petri, world):
    leaks = Leaks(deep=True)
    petri.sh("true").ok()
    p = petri.start("--", "sh", "-c", "./net get allowed.test 80 a; setsid sleep 300 & sleep 300")
    assert p.stdout.readline().startswith(b"200 OK")
    p.kill()
    p.wait()
    petri.run("--", "true").ok()
    left = leaks.left()
    assert not left, left
