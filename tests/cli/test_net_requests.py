"""Whom a connection is for stands in its first bytes, and in those of every later request: a name that is not
allowed gets nowhere, however it is said. What is allowed arrives whole.
"""
import json

from netcase import lines, petri, reached, took  # noqa: F401
from nethosts import ALLOWED, EVIL

ALLOW = ("--network", "allowlist", "--allow-domain", "allowed.test")
NOT = ("ERR ECONNRESET", "ERR ECONNREFUSED", "ERR EPIPE", "CLOSED", "ALERT", "403 Forbidden petri: ")

# Sends each text on a connection of its own, ends its side, reads to the end.
RAW = """
import json, socket, sys
for case in json.load(open("cases.json")):
    try:
        s = socket.create_connection((case["to"], case["port"]), 30)
        s.settimeout(30)
        data, got = case["data"].encode("latin1"), b""
        for at in range(0, len(data), case.get("step") or len(data)):
            s.sendall(data[at:at + (case.get("step") or len(data))])
        s.shutdown(socket.SHUT_WR)
        while more := s.recv(65536):
            got += more
        end = "end"
    except OSError as e:
        end = type(e).__name__
    print(json.dumps([case["name"], end, got.decode("latin1")[:2000], len(got)]), flush=True)
"""


def raw(petri, cases, *flags):
    """name -> (how it ended, what came back, how much)"""
    petri.file("raw.py", RAW)
    petri.file("cases.json", json.dumps([{"name": k, "to": "allowed.test", "port": 80, **v} for k, v in cases.items()]))
    r = petri.run(*flags, "--", "python3", "raw.py").ok()
    got = {n: rest for n, *rest in map(json.loads, r.out.splitlines())}
    assert set(got) == set(cases), r
    assert not [n for n, x in got.items() if x[0] == "TimeoutError"], got
    return got


GOOD = "GET /good HTTP/1.1\r\nHost: allowed.test\r\n\r\n"
HIDDEN = "GET /hidden HTTP/1.1\r\nHost: evil.test\r\n\r\n"
# All go to the address of allowed.test; none may be answered for evil.test.
BAD = {
    "another host": HIDDEN,
    "second request": GOOD + HIDDEN,
    "case": "GET /hidden HTTP/1.1\r\nhOsT: EVIL.test\r\n\r\n",
    "below": "GET /hidden HTTP/1.1\r\nHost: x.allowed.test\r\n\r\n",
    "above": "GET /hidden HTTP/1.1\r\nHost: allowed.test.evil.test\r\n\r\n",
    "userinfo": "GET /hidden HTTP/1.1\r\nHost: allowed.test@evil.test\r\n\r\n",
    "two hosts": "GET /hidden HTTP/1.1\r\nHost: allowed.test\r\nHost: evil.test\r\n\r\n",
    "two hosts, other way": "GET /hidden HTTP/1.1\r\nHost: evil.test\r\nHost: allowed.test\r\n\r\n",
    "absolute target": "GET http://evil.test/hidden HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
    "absolute target, other way": "GET http://allowed.test/hidden HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    "connect": "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\nhidden",
    "connect, another host": "CONNECT evil.test:443 HTTP/1.1\r\nHost: allowed.test\r\n\r\nhidden",
    "no host": "GET /hidden HTTP/1.1\r\n\r\n",
    "empty host": "GET /hidden HTTP/1.1\r\nHost:\r\n\r\n",
    "folded": "GET /hidden HTTP/1.1\r\nHost: allowed.test\r\n .evil.test\r\n\r\n",
    "space before colon": "GET /hidden HTTP/1.1\r\nHost : evil.test\r\nHost: allowed.test\r\n\r\n",
    "bare line feeds": "GET /hidden HTTP/1.1\nHost: evil.test\n\n",
    "line feed in a field": "GET /hidden HTTP/1.1\r\nX: y\nHost: evil.test\r\nHost: allowed.test\r\n\r\n",
    "bare return": "GET /hidden HTTP/1.1\r\nX: y\rHost: evil.test\r\nHost: allowed.test\r\n\r\n",
    "nul": "GET /hidden HTTP/1.1\r\nHost: allowed.test\0.evil.test\r\n\r\n",
    "length": "POST / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 3\r\n\r\nabc" + HIDDEN,
    "two lengths": "POST / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 60\r\nContent-Length: 0\r\n\r\n" + HIDDEN,
    "length and chunks": "POST / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 60\r\nTransfer-Encoding: chunked\r\n\r\n"
                         "0\r\n\r\n" + HIDDEN,
    "odd length": "POST / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: +60\r\n\r\n" + HIDDEN,
    "odd coding": "POST / HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "chunks": "POST / HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + HIDDEN,
    "odd chunk": "POST / HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n" + HIDDEN,
    "upgrade": "GET / HTTP/1.1\r\nHost: allowed.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + HIDDEN,
    "h2c": "GET / HTTP/1.1\r\nHost: allowed.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
           "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n" + HIDDEN,
    "preface": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
    "no HTTP": "SSH-2.0-hidden\r\n",
    "HTTP/0.9": "GET /hidden\r\n",
    "long head": "GET /hidden HTTP/1.1\r\nHost: allowed.test\r\nX: " + "x" * 200000 + "\r\n\r\n",
}


def test_requests_for_somebody_else(petri, world):
    got = raw(petri, {n: {"data": d} for n, d in BAD.items()}, *ALLOW)
    for name, (_, said, _) in got.items():
        assert "/hidden" not in said and "SERVER evil" not in said, (name, said)
        before = BAD[name].count("/good") + name.startswith(("length", "chunks", "upgrade", "h2c"))
        assert said.count("200 OK") <= before, (name, said)
    r = petri.probe("net get allowed.test 80 allowed.test evil.test; net get allowed.test 80 allowed.test allowed.test", *ALLOW)
    fine = reached("allowed", "allowed.test")
    assert lines(r)[0] == fine and lines(r)[1].startswith(NOT) and lines(r)[2:] == [fine, fine], r
    seen = world.log("allowed", event="request")
    assert {x["host"] for x in seen} == {"allowed.test"}, seen
    assert not [x for x in seen if "hidden" in x["line"] or x["line"].startswith("CONNECT")], seen
    assert not world.log("evil") and not world.log("dns", name="evil.test")


def test_requests_that_are_fine(petri, world):
    """In one piece or byte for byte, pipelined, with bodies of both kinds, after an upgrade that was declined."""
    post = "POST /p HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 5\r\n\r\nhello"
    chunks = ("POST /c HTTP/1.1\r\nHost: allowed.test:80\r\nTransfer-Encoding: chunked\r\n\r\n"
              "3;x=y\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\nX: y\r\n\r\n")
    cases = {
        "one": {"data": GOOD}, "slow": {"data": GOOD + GOOD, "step": 1}, "pipelined": {"data": GOOD * 20},
        "bodies": {"data": post + chunks + post + GOOD}, "bodies, slow": {"data": post + chunks + GOOD, "step": 7},
        "any case": {"data": GOOD.replace("allowed.test", "ALLOWED.Test.").replace("Host", "HOST")},
        "absolute": {"data": "GET http://allowed.test/good HTTP/1.1\r\nHost: allowed.test\r\n\r\n"},
        "large body": {"data": "POST /l HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 3000000\r\n\r\n" + "x" * 3000000},
        "large answer": {"data": "GET /bytes/5000000 HTTP/1.1\r\nHost: allowed.test\r\n\r\n"},
    }
    got = raw(petri, cases, *ALLOW)
    want = {"one": 1, "slow": 2, "pipelined": 20, "bodies": 4, "bodies, slow": 3, "any case": 1, "absolute": 1,
            "large body": 1, "large answer": 1}
    for name, (end, said, _) in got.items():
        assert (end, said.count("HTTP/1.1 200 OK")) == ("end", want[name]), (name, end, said)
    assert got["large answer"][2] > 5000000
    assert {x["body"] for x in world.log("allowed", event="request")} == {0, 5, 19, 3000000}


def test_hellos(petri, world):
    """TLS: the name in the hello decides; without one that can be read there is no connection."""
    r = petri.probe("net hello allowed.test 443 allowed.test; net hello allowed.test 443 ALLOWED.test; "
                    "net hello allowed.test 443 allowed.test split; net hello allowed.test 443 allowed.test records", *ALLOW)
    assert lines(r) == ["SERVERHELLO"] * 4, r
    assert len(world.log("allowed", event="tcp", port=443)) == 4
    world.mark()
    r = petri.probe("net hello allowed.test 443 evil.test; net hello allowed.test 443 -; net hello allowed.test 443 - ech; "
                    "net hello allowed.test 443 allowed.test ech; net hello allowed.test 443 x.allowed.test; "
                    f"net hello allowed.test 443 evil.test records; net hello allowed.test 443 {EVIL}; "
                    f"net hello {EVIL} 443 evil.test; net hello {EVIL} 443 -; net hello allowed.test 80 evil.test; "
                    "net get allowed.test 443 evil.test", *ALLOW)
    assert len(lines(r)) == 11 and all(x.startswith(NOT) for x in lines(r)), r
    assert max(took(r)) < 5000, r
    assert not world.log("allowed") and not world.log("evil"), (world.log("allowed"), world.log("evil"))


def test_an_address_says_nothing(petri, world):
    """An allowed name on somebody else's address: the name is looked up anew, or it is refused."""
    r = petri.probe(f"net get {EVIL} 80 allowed.test; net hello {EVIL} 443 allowed.test; "
                    f"curl -ksm20 --resolve allowed.test:443:{EVIL} https://allowed.test/; "
                    f"net get {ALLOWED} 80 allowed.test", *ALLOW)
    assert reached("allowed", "allowed.test") in lines(r), r
    assert not world.log("evil"), world.log("evil")


def test_without_names_to_check(petri, world):
    """Policy limited looks at no request: what it carries is the sandbox's business."""
    got = raw(petri, {"any": {"data": GOOD + HIDDEN}, "none": {"data": "GET / HTTP/1.0\r\nConnection: close\r\n\r\n"}},
              "--network", "limited")
    assert got["any"][1].count("200 OK") == 2 and got["none"][1].count("200 OK") == 1, got


def test_curl_keeps_connections(petri, world):
    """Two hosts on one kept connection is what a client with a cache of addresses may do."""
    r = petri.sh("A=$(getent ahostsv4 allowed.test | head -n 1 | cut -d ' ' -f 1); "
                 "curl -sS http://allowed.test/1 http://allowed.test/2; "
                 "curl -s --connect-to evil.test:80:$A:80 http://evil.test/3; echo", *ALLOW).ok()
    assert r.out.count("SERVER allowed") == 2 and "/3" not in r.out, r
    assert len(world.log("allowed", event="connect")) == 1, world.log("allowed")
