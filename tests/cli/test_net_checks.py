"""The isolation checks' rows N about the network: a probe that must not get through, and the same probe where it
may, so that a probe that does not work can't pass for a wall. All of it from a static client or a common program
without proxy variables; what is allowed, also on the second request of a kept connection.
"""
import os
import re
import signal
import socket
from dataclasses import dataclass

import pytest

from helpers import MODE, wait_for
from life import life  # noqa: F401
from netcase import gateway, lines, petri, reached  # noqa: F401
from nethosts import ALLOWED, ALLOWED6, EVIL, HOST, HP, METADATA, SSH

ALLOW = ("--network", "allowlist", "--allow-domain", "allowed.test")
TWICE = [reached("allowed", "allowed.test")] * 2


@dataclass
class Row:
    """`script` under `flags` leaves the logs of `logs` empty; under `open` it prints `seen` or is logged there."""
    name: str
    script: str
    flags: tuple
    logs: tuple
    open: tuple
    seen: str = ""


HOST_FORMS = ("127.0.0.1", "[::1]", "0.0.0.0", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "localhost", HOST)
ROWS = [
    # a connection that is open inside may not be one outside yet: only an answer proves it
    Row("N02", f"timeout 5 bash -c 'exec 3<>/dev/tcp/{ALLOWED}/443 && echo OPEN'; ./net hello {ALLOWED} 443 allowed.test",
        ("--network", "none"), ("allowed",), ("--network", "limited"), "SERVERHELLO"),
    Row("N03", f"timeout 5 bash -c 'exec 3<>/dev/tcp/{SSH}/22; head -n 1 <&3'; ./net get {SSH} 22 a",
        ("--network", "limited"), ("ssh",), ("--network", "full"), "SSH-2.0"),
    Row("N04", f"curl -ksm9 --resolve allowed.test:443:{EVIL} https://allowed.test/", ALLOW, ("evil",),
        ("--network", "limited"), "SERVER evil"),
    Row("N05", f"echo | timeout 9 openssl s_client -connect {EVIL}:443 -servername allowed.test 2>&1; "
        f"./net hello {EVIL} 443 allowed.test", ALLOW, ("evil",), ("--network", "limited"), "SERVERHELLO"),
    Row("N06", "; ".join(f"curl -sm2 http://{u}:{HP}/" for u in HOST_FORMS), ("--network", "full"), ("canary",),
        ("--network", "full", "--allow-domain", f"{HOST}:{HP}"), "CANARY"),
    Row("N06-metadata", f"curl -sm2 http://{METADATA}/latest; curl -sm2 http://meta.allowed.test/; "
        f"curl -sm2 http://2852039166/; ./net get {METADATA} 80 a", ("--network", "full"), ("metadata",),
        ("--network", "full", "--allow-domain", METADATA), "SERVER metadata"),
    Row("N07", "for i in 1 2 3 4 5 6 7; do curl -sm4 http://rebind.allowed.test/; done", ("--allow-domain", "*.allowed.test"),
        ("canary", "intranet", "metadata"),
        ("--allow-domain", "*.allowed.test", "--allow-domain", "10.9.8.1"), "SERVER intranet"),
    Row("N09", "./net dns 198.18.0.1 $(head -c20 /dev/urandom | od -An -tx1 | tr -d ' \\n').evil.test A; "
        f"./net dns {EVIL} x.evil.test TXT; ./net dns {EVIL} x.evil.test A tcp; curl -sm3 http://x.evil.test/", ALLOW, ("dns",),
        ("--network", "full"), "SERVER evil"),
    Row("N10", f"curl -6 -sm3 http://[{ALLOWED6}]/; ./net get {ALLOWED6} 80 a; ping -c1 -W1 {ALLOWED}; "
        f"./net udp {ALLOWED} 443 x; bash -c 'echo x >/dev/udp/{ALLOWED}/9000'", ("--network", "limited"),
        ("allowed", "allowed6"), ("--network", "full"), "ECHO x"),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_check(petri, world, row):
    """Nothing arrives; and what is allowed does, in the same sandbox."""
    after = "; echo AFTER; ./net get allowed.test 80 allowed.test allowed.test"
    r = petri.sh("echo STARTED; " + row.script + "; ls /proc/self >/dev/null", *row.flags)
    assert r.out.startswith("STARTED\n"), r
    assert not re.search("CANARY|SERVER (evil|metadata|intranet)|SSH-2.0|OPEN|^ECHO", r.out, re.M), r
    for name in row.logs:
        assert not world.log(name), (name, world.log(name))
    if "none" not in row.flags:
        r = petri.sh(row.script + after, *row.flags)
        want = row.flags if "*.allowed.test" not in row.flags else None
        if want:
            assert lines(r)[-2:] == TWICE, r


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_control(petri, world, row):
    """The same probe where it may."""
    r = petri.sh(row.script + "; true", *row.open)
    assert row.seen in r.out, r
    assert [x for name in row.logs for x in world.log(name)], (row.logs, r)


def test_n01_no_interface(petri):
    r = petri.sh("tail -n +3 /proc/net/dev | grep -vc ' lo:'; ls /sys/class/net", "--network", "none")
    assert r.out.split() in (["0", "lo"], ["0"]), r
    r = petri.sh("tail -n +3 /proc/net/dev | grep -vc ' lo:'", "--network", "limited")
    assert r.out == "1\n", r


@pytest.mark.parametrize("mode", ["none", "limited", "allowlist", "full"])
def test_n11_abstract_sockets(petri, mode):
    """A network namespace has its own: the host's are neither seen nor reached."""
    name = f"petri-canary-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind("\0" + name)
        s.listen(1)
        r = petri.sh("python3 -c \"import socket\n"
                     f"try: socket.socket(socket.AF_UNIX).connect(chr(0) + '{name}'); print('CONNECTED')\n"
                     "except OSError: print('refused')\"; cat /proc/net/unix", "--network", mode)
        assert r.out.startswith("refused\n") and "canary" not in r.out, r


def test_n14_without_its_gateway(life, world):
    """Killed: the sandbox ends, as configured here, and nothing got out since."""
    life.start(*ALLOW, "--on-net-failure", "stop")
    assert lines(life.sh("./net get allowed.test 80 allowed.test allowed.test")) == TWICE
    p = life.begin("exec", "--", "sh", "-c", "while :; do ./net get 203.0.113.10 80 allowed.test; done")
    assert p.stdout.readline().startswith(b"200 OK")
    os.kill(gateway(life), signal.SIGKILL)
    p.wait(60)
    life.stopped()
    world.mark()
    assert not world.log("allowed") and not world.log("dns")


def test_n14_word_for_word(life, world):
    """The command right after the gateway's death has no network, though there is another one soon."""
    curl = "curl", "-sm3", "http://allowed.test/"
    life.start(*ALLOW)
    assert life("exec", "--", *curl).rc == 0
    os.kill(gateway(life), signal.SIGKILL)
    assert life("exec", "--", *curl).rc != 0
    wait_for(lambda: life("exec", "--", *curl).rc == 0, what="the network to come back")


@pytest.mark.parametrize("mode", ["limited", "allowlist", "full"])
def test_no_way_around(petri, world, mode):
    """Nothing inside can change where packets go: no capability, no other namespace, no raw socket."""
    script = ("ip route add 203.0.113.0/24 dev lo; ip link set eth0 down; ip addr add 198.51.100.9/24 dev eth0; "
              "python3 -c \"import socket\n"
              "for f, t in ((2, 3), (17, 3), (10, 3), (16, 3)):\n"
              "  try: socket.socket(f, t, 768 if f == 17 else 12 if f == 16 else 255); print('RAW', f)\n"
              "  except OSError: pass\"; unshare -rn true && echo UNSHARED; "
              "nsenter --net=/proc/1/ns/net true && echo ENTERED; sysctl -qw net.ipv4.ip_forward=1 && echo FORWARDS; "
              "./net get allowed.test 80 allowed.test allowed.test")
    r = petri.sh(script, "--network", mode, "--allow-domain", "allowed.test")
    assert lines(r)[-2:] == TWICE, r
    assert not re.search("RAW (2|10|17)|UNSHARED|ENTERED|FORWARDS", r.out), r


def test_a_sandbox_of_root(petri, world):
    """User 0 of a sandbox has no more network than others."""
    flags = () if MODE == "single" else ("-u", "0")
    r = petri.sh(f"iptables -F; nft flush ruleset; ip route del default; ./net get {EVIL} 80 {EVIL}; "
                 "./net get allowed.test 80 allowed.test allowed.test", *flags, *ALLOW)
    assert lines(r)[-2:] == TWICE and not world.log("evil"), r
