"""The gateway itself: what happens when it dies or hangs, when much or nothing comes, when what comes is hostile."""
import json
import os
import re
import signal

import pytest

from helpers import SLOW, descendants, processes, wait_for
from life import life  # noqa: F401
from netcase import counts, gateway, lines, net_log, petri, reached  # noqa: F401
from nethosts import ALLOWED, EVIL

ALLOW = ("--network", "allowlist", "--allow-domain", "allowed.test")


def works(life):
    r = life.sh("./net get allowed.test 80 allowed.test allowed.test; ./net get evil.test 80 a")
    assert lines(r) == [reached("allowed", "allowed.test")] * 2 + ["NXDOMAIN"], r


def status_of(pid):
    with open(f"/proc/{pid}/status") as f:
        return dict(x.rstrip("\n").split(":\t", 1) for x in f if ":\t" in x)


def test_it_is_harmless(life):
    """No capability, no privilege to gain, a system call filter, nothing open but sockets."""
    life.start(*ALLOW)
    works(life)
    pid = gateway(life)
    assert processes()[pid][2] == "petri-gateway"
    st = status_of(pid)
    for caps in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(st[caps], 16) == 0, (caps, st)
    assert st["NoNewPrivs"] == "1" and st["Seccomp"] == "2", st
    if os.getuid() == 0:
        assert "0" not in st["Uid"].split() and "0" not in st["Gid"].split() and not st["Groups"].split(), st
        for fd in os.listdir(f"/proc/{pid}/fd"):
            to = os.readlink(f"/proc/{pid}/fd/{fd}")
            assert to.startswith(("socket:", "anon_inode:", "pipe:")) or to == "/dev/null", to
        with open(f"/proc/{pid}/environ") as f:
            assert "SECRET" not in f.read()


# --- dead or hung ------------------------------------------------------------------------------------

@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_restart(life, world, how):
    """The default: connections end, a new gateway takes over, with the same policy and counts."""
    life.start(*ALLOW)
    works(life)
    pid, before = gateway(life), counts(life)
    # one that is open, and would stay so
    p = life.begin("exec", "--", "python3", "-uc", "import socket\n"
                   "s = socket.create_connection(('allowed.test', 80))\n"
                   "s.sendall(b'GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n'); s.recv(1000); print('open')\n"
                   "try: print('end', s.recv(1000))\n"
                   "except OSError: print('end reset')\n")
    assert p.stdout.readline() == b"open\n"
    os.kill(pid, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
    new = wait_for(lambda: {gateway(life)} - {pid}, what="another gateway").pop()
    assert p.stdout.readline().startswith(b"end")
    p.wait(20)
    works(life)
    wait_for(lambda: pid not in descendants(), what="the end of the old one")
    assert gateway(life) == new and counts(life)["denied"] >= before["denied"]
    assert life.status()["state"] == "running"


def test_stop_on_failure(life, world):
    """As configured: without its gateway the sandbox ends."""
    life.start(*ALLOW, "--on-net-failure", "stop")
    works(life)
    os.kill(gateway(life), signal.SIGKILL)
    life.stopped()
    text = life("status", "--json").ok().out
    assert re.search("gateway|network", text), text


def test_run_stops_on_failure(petri):
    """A one-shot run, too, says why it ended."""
    p = petri.start(*ALLOW, "--on-net-failure", "stop", "--", "sh", "-c", "echo up; sleep 300")
    assert p.stdout.readline() == b"up\n"
    pid = wait_for(lambda: [d for d, n in descendants(p.pid).items() if "petri-gateway" in n], what="a gateway")[0]
    os.kill(pid, signal.SIGKILL)
    _, err = p.communicate(timeout=60)
    assert p.returncode not in (0, None) and re.search("gateway|network", err.decode()), err


def test_cut_off_meanwhile(life, world):
    """Between a gateway's death and the next one nothing passes and nothing hangs: the keeper is held back."""
    life.start(*ALLOW)
    works(life)
    pid, keeper = gateway(life), life.keeper()
    p = life.begin("exec", "-i", "--", "sh", "-c", "echo ready; read x; ./net get 203.0.113.10 80 allowed.test; ./net get "
                   "198.18.1.0 80 allowed.test; ./net dns 198.18.0.1 allowed.test A; ./net get 203.0.113.10 22 a; echo done",
                   stdin=-1)
    assert p.stdout.readline() == b"ready\n"
    world.mark()
    os.kill(keeper, signal.SIGSTOP)
    try:
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: processes().get(pid, (0, "Z", ""))[1] == "Z", what="its death")
        p.stdin.write(b"go\n")
        p.stdin.flush()
        wait_for(lambda: not [n for n in descendants(keeper).values() if n.startswith(("sh (", "net (")) and "(Z)" not in n],
                 what="the client's end")
    finally:
        os.kill(keeper, signal.SIGCONT)
    out, _ = p.communicate(timeout=60)
    said = [re.sub(r" ms=\d+$", "", x) for x in out.decode().splitlines()]
    assert said[-1] == "done" and len(said) == 5 and not [x for x in said[:4] if not x.startswith(("ERR E", "CLOSED"))], said
    assert not world.log("allowed")
    wait_for(lambda: gateway(life) != pid, what="another gateway")
    works(life)


def test_it_ends_with_its_keeper(life):
    life.start(*ALLOW)
    pid = gateway(life)
    os.kill(life.keeper(), signal.SIGKILL)
    wait_for(lambda: pid not in descendants(), what="the gateway's end")


# --- limits ------------------------------------------------------------------------------------------

def test_rate(petri):
    """A quarter of the rate takes longer, and nobody gets more than the rate."""
    def seconds(rate, size=2 << 20):
        r = petri.sh(f"t=$(date +%s%N); ./crowd {ALLOWED} 80 a 1 {size}; echo $((($(date +%s%N) - t) / 1000000))",
                     "--net-rate", rate).ok()
        assert "OK 1 LOST 0" in r.out, r
        return int(r.out.split()[-1]) / 1000
    slow, fast = seconds("1M"), seconds("4M")
    assert slow > 2 * fast * 0.9 and slow > 0.8, (slow, fast)
    # several share one rate
    r = petri.sh(f"t=$(date +%s%N); ./crowd {ALLOWED} 80 a 4 {512 << 10}; echo $((($(date +%s%N) - t) / 1000000))",
                 "--net-rate", "1M").ok()
    assert "OK 4 LOST 0" in r.out and int(r.out.split()[-1]) > 800, r


def test_total(life, world):
    """What was agreed on is used up: connections end, and new ones are refused."""
    life.start("--network", "limited", "--net-bytes", "1M")
    r = life.sh(f"./crowd {ALLOWED} 80 a 1 300000; ./crowd {ALLOWED} 80 a 1 3000000; ./net get allowed.test 80 a")
    assert "OK 1 LOST 0" in r.out and "OK 0 LOST 1" in r.out and "200 OK SERVER" not in r.out, r
    used = counts(life)
    assert used["bytes_in"] + used["bytes_out"] <= 1 << 20, used
    assert [x for x in net_log(life) if x["verdict"] == "deny"], net_log(life)
    os.kill(gateway(life), signal.SIGKILL)
    wait_for(lambda: gateway(life), what="another gateway")
    assert "200 OK" not in life.sh("./net get allowed.test 80 a").out, "a new gateway forgot what was used"


def test_many_at_once(life, world):
    """1,000 connections of one sandbox, all open before the first is read; none is lost."""
    for flags in (("--network", "limited"), ALLOW, ("--network", "full")):
        box = flags[1]
        life.start(*flags, box)
        r = life.sh(f"./crowd {ALLOWED} 80 allowed.test 1000 20000", box=box, timeout=120).ok()
        assert "OK 1000 LOST 0" in r.out, r
        wait_for(lambda: counts(life, box)["open"] == 0, what="their end")
        assert counts(life, box)["allowed"] == 1000, counts(life, box)
        life("rm", "-f", box).ok()


def test_too_many(life, world):
    """More than it takes: it stays bounded, says no to the rest, and works when they are gone."""
    life.start(*ALLOW)
    pid = gateway(life)
    p = life.begin("exec", "--", "python3", "-uc", "import socket, resource, sys\n"
                   "h = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
                   "resource.setrlimit(resource.RLIMIT_NOFILE, (h, h))\n"
                   "a, n = [], min(h - 50, 10000)\n"
                   "for i in range(n):\n"
                   "  s = socket.socket(); s.settimeout(5)\n"
                   f"  try: s.connect(('{ALLOWED}', 80)); a.append(s)\n"
                   "  except OSError: pass\n"
                   "print(n, len(a)); sys.stdin.readline()\n", stdin=-1)
    tried, _ = map(int, p.stdout.readline().split())
    assert tried >= 900
    assert int(status_of(pid)["VmRSS"].split()[0]) < 64 << 10, status_of(pid)["VmRSS"]
    assert len(os.listdir(f"/proc/{pid}/fd") if os.getuid() == 0 else []) <= 2 * tried + 200
    p.stdin.close()
    p.wait(60)
    wait_for(lambda: counts(life)["open"] == 0, what="their end")
    works(life)
    assert gateway(life) == pid


SLOW_ONES = """
import select, socket, time, json
hello = bytes.fromhex("16030100c8010000c40303")
cases = {"nothing, 80": (80, b""), "nothing, 443": (443, b""), "half a line": (80, b"GET / HT"),
         "half a head": (80, b"GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\nX: "), "half a hello": (443, hello),
         "dns": (53, b"\\0\\x40"), "dribble": (80, b"G")}
a, t, ended = {}, time.monotonic(), {}
for name, (port, data) in cases.items():
    s = socket.create_connection(("198.18.0.1" if port == 53 else "allowed.test", port))
    s.sendall(data)
    a[s] = name
print("started", flush=True)
while a and time.monotonic() - t < 100:
    for s in select.select(list(a), [], [], 0.5)[0]:
        try:
            data = s.recv(1000)
        except OSError:
            data = b""
        if not data:
            ended[a.pop(s)] = time.monotonic() - t
    for s in a:
        if a[s] == "dribble":
            try: s.sendall(b"E")
            except OSError: pass
print(json.dumps([ended, list(a.values())]))
"""


def test_slow_ones(life, world):
    """Who does not say what they want is not waited for, and takes no place of others."""
    life.petri.file("slow.py", SLOW_ONES)
    life.start(*ALLOW)
    p = life.begin("exec", "--", "python3", "slow.py")
    assert p.stdout.readline() == b"started\n"
    works(life)
    out, err = p.communicate(timeout=120)
    ended, left = json.loads(out)
    assert not left, (ended, left)
    assert max(ended.values()) < 30 * max(SLOW, 2), ended
    wait_for(lambda: counts(life)["open"] == 0, what="an end of all of them")
    works(life)


def test_half_a_hello_is_over(petri):
    """Who ends in the middle of what they wanted to say is not waited for."""
    r = petri.sh("python3 -c \"import socket, time\n"
                 "for port, data in ((443, bytes.fromhex('16030100c8010000c40303')), (80, b'GET / HT'), (80, b'GET / HTTP/1.1\\r\\nX')):\n"
                 "  s = socket.create_connection(('allowed.test', port)); s.sendall(data); s.shutdown(1)\n"
                 "  t = time.monotonic()\n"
                 "  try:\n"
                 "    while s.recv(1000): pass\n"
                 "  except ConnectionResetError: pass\n"
                 "  print(time.monotonic() - t < 5)\"", *ALLOW).ok()
    assert r.out == "True\n" * 3, r


def test_half_closed(life, world):
    """One side may be done while the other still talks; who vanishes takes the connection along."""
    life.start("--network", "limited")
    r = life.sh("python3 -c \"import socket\n"
                f"s = socket.create_connection(('{ALLOWED}', 80))\n"
                "s.sendall(b'GET /bytes/3000000 HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n'); s.shutdown(1)\n"
                "n = 0\n"
                "while d := s.recv(65536): n += len(d)\n"
                "print(n > 3000000)\"").ok()
    assert r.out == "True\n", r
    r = life.sh("python3 -c \"import socket, os\n"
                f"s = socket.create_connection(('{ALLOWED}', 80))\n"
                "s.sendall(b'GET /bytes/300000000 HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n'); s.recv(10); os.kill(os.getpid(), 9)\"")
    assert r.rc == 137, r
    wait_for(lambda: counts(life)["open"] == 0, what="the end of what nobody reads")


# --- hostile input -----------------------------------------------------------------------------------

HOSTILE = """
import random, socket, struct
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(64)
r = random.Random(4711)
def tcp(port, data, to="allowed.test"):
    pool.submit(send, port, data, to)
def send(port, data, to):
    try:
        s = socket.create_connection((to, port), 20)
        s.settimeout(20)
        s.sendall(data)
        s.shutdown(1)
        while s.recv(65536): pass
    except OSError: pass
def udp(data):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.sendto(data, ("198.18.0.1", 53))
query = b"\\1\\2\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\7allowed\\4test\\0\\0\\1\\0\\1"
hello = bytes.fromhex("16030100550100005103030000000000000000000000000000000000000000000000000000000000000000000002"
                      "c02b01000026000000110000000e0000") + b"allowed.test"
head = b"GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\nContent-Length: 0\\r\\n\\r\\n"
def bent(data):
    data = bytearray(data)
    for _ in range(r.randrange(1, 6)):
        if data: data[r.randrange(len(data))] = r.choice((0, 1, 63, 64, 127, 128, 192, 255, r.randrange(256)))
    return bytes(data[:r.randrange(len(data) + 1)] if r.random() < 0.3 else data) + r.randbytes(r.choice((0, 0, 0, 9)))
for i in range(300):
    udp(bent(query))
    udp(r.randbytes(r.randrange(0, 700)))
# a pointer to itself, labels without end, counts that lie
udp(query[:12] + b"\\xc0\\x0c\\0\\1\\0\\1")
udp(query[:12] + b"\\x3f" * 600)
udp(query[:4] + b"\\xff\\xff" * 4 + query[12:])
udp(b"")
for data in (b"\\0\\0", b"\\xff\\xff" + b"x" * 65535, b"\\0\\1x", struct.pack("!H", len(query)) + query[:-3]):
    tcp(53, data, "198.18.0.1")
for i in range(60):
    tcp(443, bent(hello))
    tcp(80, bent(head))
    tcp(53, struct.pack("!H", len(query)) + bent(query), "198.18.0.1")
tcp(443, b"\\x16\\x03\\x01\\x40\\x00" + b"\\1\\0\\x3f\\xfc" + b"x" * 20000)
tcp(443, r.randbytes(3000))
tcp(80, r.randbytes(3000))
tcp(80, b"G" * 100000)
pool.shutdown()
print("done")
"""


def test_hostile_input(life, world):
    """Closed and counted; never a crash."""
    life.petri.file("hostile.py", HOSTILE)
    life.start(*ALLOW)
    works(life)
    pid = gateway(life)
    assert life("exec", "--", "python3", "hostile.py", timeout=120).ok().out == "done\n"
    assert gateway(life) == pid
    assert counts(life)["malformed"] >= 20, counts(life)
    works(life)
    assert not world.log("evil")
    seen = world.log("allowed", event="request")
    assert {x["host"].lower().rstrip(".") for x in seen} <= {"allowed.test"}, seen


def test_hostile_names_in_the_log(life):
    """What a sandbox asks for is shown to people: no tricks reach their terminals."""
    life.start(*ALLOW)
    life.sh("python3 -c \"import socket\n"
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
            "n = b'\\x1b]52;c;QUJD\\x07\\xff\\n'\n"
            "s.sendto(b'\\1\\2\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0' + bytes([len(n)]) + n + b'\\4test\\0\\0\\1\\0\\1', ('198.18.0.1', 53))\n"
            "s.recv(500)\"").ok()
    for words in (("net", "log"), ("net", "log", "--json"), ("net", "show"), ("status",)):
        r = life(*words).ok()
        assert b"\x1b" not in r.outb and b"\x07" not in r.outb and b"\xff" not in r.outb, r
    net_log(life)
