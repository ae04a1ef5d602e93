"""What a sandbox reaches: policies, rules, names, addresses. The world is that of nethosts.py.

"Denied" here always means two things: the client inside is told so at once, and the server's log is empty.
"""
import os
import subprocess

import pytest

from helpers import read
from netcase import AT_ONCE, lines, petri, reached, took  # noqa: F401
from nethosts import (ALLOWED, ALLOWED6, CLOSED, EVIL, HOST, HOST6, HOST_PRIVATE, HP, INTRANET, METADATA, OTHER, PROXY,
                      SSH, STUB, put)

ALLOW = ("--network", "allowlist", "--allow-domain", "allowed.test")
PRIVATE = (HOST, HOST_PRIVATE, INTRANET, METADATA, "10.255.0.1", "192.168.1.1", "172.16.0.1", "100.64.0.1",
           "169.254.1.1", "127.0.0.1", "0.0.0.0", "224.0.0.1", "240.0.0.1", "198.18.0.1", "198.19.200.1")


# How a connection that is not to be may end: the gateway speaks HTTP where the client does.
NOT = ("ERR ECONNREFUSED", "ERR ECONNRESET", "ERR EPIPE", "CLOSED", "ALERT", "403 Forbidden petri: ")


def at_once(r):
    """Every answer came before anything could time out."""
    assert took(r) and max(took(r)) < AT_ONCE, r
    return r


def untouched(world, *names):
    for name in names or ("canary", "intranet", "metadata", "evil", "evil6"):
        assert not world.log(name), (name, world.log(name))


# --- policies ---------------------------------------------------------------------------------------

def test_none(petri, world):
    r = petri.probe(f"net get {ALLOWED} 80 a; net get allowed.test 80 a; net udp {ALLOWED} 9000 a; "
                    "tail -n +3 /proc/net/dev | wc -l", "--network", "none").ok()
    said = lines(at_once(r))
    assert said[0].startswith("ERR E") and said[1].startswith("ERR E") and said[2].startswith("ERR E"), r
    assert said[3] == "1", r
    assert not world.log("allowed") and not world.log("dns")


@pytest.mark.parametrize("flags", [(), ("--network", "limited")], ids=["default", "limited"])
def test_limited(petri, world, flags):
    """Ports 80 and 443 of everyone, by name and by address; nothing else."""
    r = petri.probe(f"net get allowed.test 80 allowed.test allowed.test; net get {OTHER} 80 x.test; "
                    f"net hello other.test 443 other.test; net hello {OTHER} 443 other.test; net hello {OTHER} 443 -; "
                    f"net get {SSH} 22 a; net get ssh.test 22 a; net get {ALLOWED} 8080 a; "
                    f"net udp {ALLOWED} 443 a; net udp {ALLOWED} 9000 a; net get {ALLOWED6} 80 a", *flags)
    assert lines(at_once(r)) == [
        reached("allowed", "allowed.test"), reached("allowed", "allowed.test"), reached("other", "x.test"),
        "SERVERHELLO", "SERVERHELLO", "SERVERHELLO", "ERR ECONNREFUSED", "ERR ECONNREFUSED", "ERR ECONNREFUSED",
        "ERR ECONNREFUSED", "ERR ECONNREFUSED", "ERR ENETUNREACH"], r
    assert not world.log("ssh") and not world.log("allowed", port=8080) and not world.log("allowed", event="udp")
    assert not world.log("allowed6")


def test_full(petri, world):
    """All of TCP and UDP, any resolver included (which is the gateway's all the same)."""
    r = petri.probe(f"net get allowed.test 80 a; net get {ALLOWED} 8080 a; net udp {ALLOWED} 9000 hi; "
                    f"net udp allowed.test 443 ho; net dns {EVIL} allowed.test A; net get {CLOSED} 1234 a; "
                    "bash -c 'exec 3<>/dev/tcp/ssh.test/22; head -n 1 <&3'; "
                    f"bash -c 'exec 3<>/dev/tcp/{SSH}/22; head -n 1 <&3'", "--network", "full").ok()
    said = lines(r)
    assert said[0] == reached("allowed", "a") and said[1] == reached("allowed", "a").replace("80", "8080"), r
    assert said[2] == "ECHO hi" and said[3] == "ECHO ho", r
    assert said[4].startswith("NOERROR 198.1"), r
    assert said[5] in ("ERR ECONNREFUSED", "ERR ECONNRESET", "CLOSED"), r
    assert [x.strip() for x in said[6:]] == ["SSH-2.0-test"] * 2, r


def test_allowlist(petri, world):
    r = petri.probe("net get allowed.test 80 allowed.test allowed.test; net hello allowed.test 443 allowed.test; "
                    "net get other.test 80 other.test; net get www.allowed.test 80 a; net get notallowed.test 80 a; "
                    "net get allowed.test.evil.test 80 a; net get allowed.test 8080 a; net get evil.test 443 a; "
                    "net get a.other.test 80 a.other.test; net get b.a.other.test 80 b.a.other.test; "
                    f"net udp {ALLOWED} 443 a", *ALLOW, "--allow-domain", "*.other.test")
    assert lines(at_once(r)) == [
        reached("allowed", "allowed.test"), reached("allowed", "allowed.test"), "SERVERHELLO", "NXDOMAIN", "NXDOMAIN",
        "NXDOMAIN", "NXDOMAIN", "ERR ECONNREFUSED", "NXDOMAIN", reached("other", "a.other.test"),
        reached("other", "b.a.other.test"), "ERR ECONNREFUSED"], r
    # what is denied is not even asked for: a name is a message, too
    assert {x["name"] for x in world.log("dns")} == {"allowed.test", "a.other.test", "b.a.other.test"}
    untouched(world)


def test_allow_domain_alone_means_allowlist(petri, world):
    r = petri.probe("net get allowed.test 80 allowed.test; net get other.test 80 other.test",
                    "--allow-domain", "allowed.test")
    assert lines(r) == [reached("allowed", "allowed.test"), "NXDOMAIN"], r


def test_programs_as_they_are(petri, world):
    """curl, python and openssl know nothing of a gateway."""
    script = ("curl -sS http://allowed.test/a http://allowed.test/b; curl -ksS https://allowed.test/c; "
              "python3 -c \"import urllib.request as u; print(u.urlopen('http://allowed.test/d').read().decode(), end='')\"; "
              "echo | openssl s_client -connect allowed.test:443 -servername allowed.test 2>/dev/null | grep -c BEGIN; "
              "curl -sS http://other.test/; true")
    r = petri.sh(script, *ALLOW).ok()
    assert r.out.splitlines() == [
        "SERVER allowed PORT 80 HOST allowed.test PATH /a", "SERVER allowed PORT 80 HOST allowed.test PATH /b",
        "SERVER allowed PORT 443 HOST allowed.test PATH /c", "SERVER allowed PORT 80 HOST allowed.test PATH /d", "1"], r
    assert "Could not resolve host: other.test" in r.err, r


# --- rules -------------------------------------------------------------------------------------------

def test_ports_and_ranges(petri, world):
    """NAME:PORT opens that port of that name only; a range needs no name."""
    r = petri.probe(f"net get allowed.test 8080 allowed.test; net get allowed.test 80 a; net get {OTHER} 80 {OTHER}; "
                    f"net get {EVIL} 80 {EVIL}; net get {OTHER} 8080 {OTHER}; net get {ALLOWED} 8080 {ALLOWED}; "
                    "timeout 20 bash -c 'exec 3<>/dev/tcp/ssh.test/22; head -n 1 <&3'", "--network", "allowlist",
                    "--allow-domain", "allowed.test:8080", "--allow-domain", f"{OTHER}/32", "--allow-domain", "ssh.test:22")
    said = lines(at_once(r))
    assert said[0] == reached("allowed", "allowed.test").replace("80", "8080"), r
    assert said[1].startswith(("NXDOMAIN", *NOT)), r
    assert said[2] == reached("other", OTHER), r
    for x in said[3:6]:
        assert x.startswith(NOT), r
    assert said[6].strip() == "SSH-2.0-test", r
    assert not world.log("allowed", port=80) and not world.log("other", port=8080)
    untouched(world)


def test_limited_with_a_port(petri, world):
    r = petri.probe("net get allowed.test 8080 a; net get other.test 8080 a; net get other.test 80 a",
                    "--network", "limited", "--allow-domain", "allowed.test:8080")
    said = lines(r)
    assert said[0] == reached("allowed", "a").replace("80", "8080") and said[2] == reached("other", "a"), r
    assert not world.log("other", port=8080)


@pytest.mark.parametrize("mode", ["limited", "allowlist", "full"])
def test_deny_beats_allow(petri, world, mode):
    """By name, by the name in a request to the bare address, and by range."""
    r = petri.probe(f"net get bad.other.test 80 bad.other.test; net get {ALLOWED} 80 bad.other.test; "
                    f"net hello {ALLOWED} 443 bad.other.test; net get allowed.test 80 allowed.test bad.other.test; "
                    f"net get {EVIL} 80 {EVIL}; net get evil.test 80 evil.test; net get good.other.test 80 good.other.test",
                    "--network", mode, "--allow-domain", "*.other.test", "--allow-domain", "allowed.test", "--allow-domain",
                    "evil.test", "--allow-domain", f"{EVIL}/32",
                    "--deny-domain", "bad.other.test", "--deny-domain", "203.0.113.30/31")
    said = lines(at_once(r))
    assert said[0] == "NXDOMAIN" and said[3] == reached("allowed", "allowed.test"), r
    assert said[-1] == reached("other", "good.other.test"), r
    assert len([x for x in said if x.startswith(("200", "SERVERHELLO"))]) == 2, r
    assert not [x for n in ("allowed", "other", "evil") for x in world.log(n) if x.get("host") == "bad.other.test"]
    untouched(world)


# --- addresses that are nobody's business ------------------------------------------------------------

NAMES = ("priv", "loop", "meta", "own", "zero", "mapped", "local6", "own6", "nat64")


@pytest.mark.parametrize("mode", ["limited", "allowlist", "full"])
def test_private_addresses(petri, world, mode):
    """By address and by name; a rule for the name, or a wide one that happens to hold them, opens nothing."""
    ports = (80, HP) if mode == "full" else (80,)
    script = [f"net get {a} {p} {a}" for a in PRIVATE for p in ports]
    script += [f"net get {n}.allowed.test {p} {n}.allowed.test" for n in NAMES for p in ports]
    script += [f"net hello {n}.allowed.test 443 {n}.allowed.test" for n in NAMES[:4]]
    script += [f"net get {a} 80 a" for a in ("::1", "fe80::1", HOST6, "::ffff:127.0.0.1", "fd00:ec2::254")]
    if mode == "full":
        script += [f"net udp {a} {HP} a" for a in (HOST, HOST_PRIVATE, METADATA, "127.0.0.1", "loop.allowed.test")]
    r = petri.probe("; ".join(script + ["net get www.allowed.test 80 www.allowed.test"]), "--network", mode,
                    "--allow-domain", "*.allowed.test", *(("--allow-domain", "0.0.0.0/0") if mode == "limited" else ()))
    said = lines(at_once(r))
    assert said[-1] == reached("allowed", "www.allowed.test"), r
    assert not [x for x in said[:-1] if not x.startswith(("ERR E", "NXDOMAIN", "NOERROR", *NOT))], r
    untouched(world)


def test_private_addresses_named_explicitly(petri, world):
    r = petri.probe(f"net get {INTRANET} 80 a; net get priv.allowed.test 80 priv.allowed.test; net get {METADATA} 80 a; "
                    f"net get {HOST} 80 a; net get {HOST_PRIVATE} {HP} a; net get loop.allowed.test {HP} loop.allowed.test; "
                    f"net get {HOST_PRIVATE} 80 a", "--network", "limited", "--allow-domain", f"{INTRANET}/32",
                    "--allow-domain", METADATA, "--allow-domain", f"{HOST}:80", "--allow-domain", f"{HOST_PRIVATE}:{HP}",
                    "--allow-domain", f"127.0.0.1:{HP}", "--allow-domain", f"loop.allowed.test:{HP}")
    said = lines(r)
    canary = reached("canary", "a").replace("SERVER", "CANARY SERVER")
    assert said[:4] == [reached("intranet", "a"), reached("intranet", "priv.allowed.test"), reached("metadata", "a"), canary], r
    assert said[4] == canary.replace("80", str(HP)), r
    assert "CANARY" in said[5] and "CANARY" not in said[6], r


def test_names_that_change(petri, world):
    """A name that is good at first and bad then: every connection is judged by the address that it uses."""
    script = "; ".join(["net get rebind.allowed.test 80 rebind.allowed.test rebind.allowed.test"] * 6)
    r = petri.probe(script + "; net get mixed.allowed.test 80 mixed.allowed.test", "--allow-domain", "*.allowed.test")
    said = lines(at_once(r))
    assert reached("allowed", "rebind.allowed.test") in said, r
    assert {x.split()[3] for x in said if x.startswith("200")} == {"allowed"}, r
    untouched(world)


# --- names -------------------------------------------------------------------------------------------

def test_names_inside(petri, world):
    """UDP and TCP, any case, any resolver's address; what has no address inside has none at once."""
    script = [f"net dns {s} {n} {t}" for s, n, t in (
        ("198.18.0.1", "allowed.test", "A"), ("198.18.0.1", "allowed.test", "A tcp"), ("198.18.0.1", "AlLowed.TEST.", "A"),
        (EVIL, "allowed.test", "A"), ("10.1.2.3", "allowed.test", "A tcp"), ("198.18.0.1", "allowed.test", "AAAA"),
        ("198.18.0.1", "allowed.test", "HTTPS"), ("198.18.0.1", "evil.test", "A"), ("198.18.0.1", "evil.test", "A tcp"),
        ("198.18.0.1", "evil.test", "AAAA"), ("198.18.0.1", "other.test", "A"))]
    r = petri.probe("cat /etc/resolv.conf; " + "; ".join(script), *ALLOW, "--allow-domain", "other.test").ok()
    said = lines(at_once(r))
    assert "nameserver 198.18.0.1" in said, r
    said = said[-len(script):]
    fake = said[0].split()[1]
    assert fake.startswith(("198.18.", "198.19.")), r
    assert said[:5] == [f"NOERROR {fake}"] * 5, r
    assert said[5:7] == ["NOERROR", "NOERROR"] and said[7:10] == ["NXDOMAIN"] * 3, r
    assert said[10].startswith("NOERROR 198.1") and said[10] != said[0], r


def test_no_tunnel_through_names(petri, world):
    """Only what a connection needs is ever asked outside, and it is the gateway who asks."""
    kinds = ("TXT", "NULL", "MX", "SRV", "CNAME", "NS", "SOA", "ANY", "PTR", "SVCB", "4711")
    script = [f"net dns {s} secret.{w} {t}" for s in ("198.18.0.1", EVIL) for w in ("evil.test", "allowed.test")
              for t in (*kinds, "A", "TXT tcp")]
    for flags in (("--allow-domain", "*.allowed.test"), ("--network", "limited")):
        r = petri.probe("; ".join(script), *flags).ok()
        at_once(r)
        assert "?" not in r.out and "tunnel" not in r.out, r
        assert not world.log("dns"), world.log("dns")
    r = petri.probe("net get secret.allowed.test 80 secret.allowed.test", "--allow-domain", "*.allowed.test").ok()
    assert {(x["name"], x["peer"]) for x in world.log("dns")} == {("secret.allowed.test", HOST)}


def test_names_without_an_address(petri, world):
    """What can't be resolved outside ends at once inside, too."""
    r = petri.probe("net get gone.test 80 a; net get dead.test 80 a; net get closed.test 80 a; net get allowed.test 80 a")
    said = lines(at_once(r))
    assert said[-1] == reached("allowed", "a") and len(said) == 4, r
    assert not [x for x in said[:3] if not x.startswith(("ERR E", "CLOSED", "NXDOMAIN", "SERVFAIL"))], r


def test_ipv6_upstream(petri, world):
    """The sandbox has no IPv6; whom it reaches may have nothing else."""
    r = petri.probe("net get v6only.test 80 v6only.test v6only.test; net get both.test 80 both.test; "
                    f"net hello v6only.test 443 v6only.test; net get {ALLOWED6} 80 a", "--allow-domain", "v6only.test",
                    "--allow-domain", "both.test")
    assert lines(at_once(r)) == [reached("allowed6", "v6only.test")] * 2 + [
        reached("allowed6", "both.test"), "SERVERHELLO", "ERR ENETUNREACH"], r


def test_alias(petri, world):
    """The rule is about the name that was asked for, not where it leads."""
    r = petri.probe("net get alias.allowed.test 80 alias.allowed.test", "--allow-domain", "alias.allowed.test").ok()
    assert lines(r) == [reached("other", "alias.allowed.test")], r


def test_stub_resolver(petri, world):
    """A host whose resolver listens on its own loopback: the gateway asks it, nothing inside reaches it."""
    conf = world.path("resolv.conf")
    before = read(conf).decode()
    try:
        put(conf, f"nameserver {STUB}\noptions edns0 trust-ad\n")
        r = petri.probe(f"net get allowed.test 80 allowed.test allowed.test; net get priv.allowed.test 80 priv.allowed.test; "
                        f"net get evil.test 80 a; net dns {STUB} secret.allowed.test A; net get {STUB} 53 a",
                        *ALLOW, "--allow-domain", "*.allowed.test")
    finally:
        put(conf, before)
    said = lines(at_once(r))
    assert said[:2] == [reached("allowed", "allowed.test")] * 2, r
    assert said[2].startswith(("403 ", "ERR ECONN", "CLOSED")) and said[3] == "NXDOMAIN", r
    assert not said[4].startswith("NOERROR") and said[5].startswith("ERR "), r
    assert {x["peer"] for x in world.log("stub")} == {"127.0.0.1"}, world.log("stub")
    assert {x["name"] for x in world.log("stub")} == {"allowed.test", "priv.allowed.test"}, world.log("stub")
    assert not world.log("dns"), world.log("dns")
    untouched(world)


# --- programs ----------------------------------------------------------------------------------------

def test_git_clone(petri, world):
    """Over HTTP, by an allowed name, with nothing set up inside; from elsewhere it fails at once."""
    src, bare = petri.project + "-src", world.path("git", "project.git")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    subprocess.run([*git, "init", "-q", src], check=True)
    put(os.path.join(src, "file"), "from a repository\n")
    for argv in (["-C", src, "add", "file"], ["-C", src, "commit", "-qm", "first"], ["clone", "-q", "--bare", src, bare],
                 ["-C", bare, "update-server-info"]):
        subprocess.run([*git, *argv], check=True)
    clone = "git -c credential.helper= clone -q http://%s/project.git %s"
    for flags in (("--network", "limited"), ("--allow-domain", "git.test")):
        r = petri.sh(clone % ("git.test", "copy") + " && cat copy/file && git -C copy log --format=%s", *flags).ok()
        assert r.out == "from a repository\nfirst\n", r
    r = petri.sh(clone % ("evil.test", "copy"), "--allow-domain", "git.test")
    assert r.rc == 128 and "to allow it: --allow-domain evil.test" in r.talk, r
    untouched(world)


# --- the host's proxy --------------------------------------------------------------------------------

def test_through_the_hosts_proxy(petri, world):
    url = f"http://{PROXY}:3128"
    env = {"HTTP_PROXY": url, "https_proxy": url, "NO_PROXY": "other.test"}
    r = petri.probe("net get allowed.test 80 allowed.test allowed.test; net hello allowed.test 443 allowed.test; "
                    "net get other.test 80 other.test; net get evil.test 80 evil.test; net get priv.allowed.test 80 a; "
                    "net get mixed.allowed.test 80 mixed.allowed.test",
                    *ALLOW, "--allow-domain", "other.test", "--allow-domain", "*.allowed.test", env=env)
    said = lines(r)
    assert said[:4] == [reached("allowed", "allowed.test")] * 2 + ["SERVERHELLO", reached("other", "other.test")], r
    assert said[4] == "NXDOMAIN" and not [x for x in said[5:] if x.startswith("200")], r
    asked = [x["line"].split()[1] for x in world.log("proxy")]
    assert [x.rpartition(":")[2] for x in asked] == ["80", "443"], asked
    assert {x["peer"] for x in world.log("allowed", event="connect")} == {PROXY} or {
        x["peer"] for x in world.log("allowed", event="connect")} <= {ALLOWED}, world.log("allowed")
    untouched(world)


# --- inside ------------------------------------------------------------------------------------------

@pytest.mark.parametrize("mode", ["none", "limited", "full"])
def test_any_port_can_be_bound(petri, mode):
    ports = (22, 53, 80, 443, 8080)
    start = "; ".join(f"net serve 0.0.0.0 {p} mine{p} >o{p} & P=\"$P $!\"" for p in ports)
    ask = "; ".join(f"until grep -q . o{p}; do sleep .01; done; net get 127.0.0.1 {p} a" for p in ports)
    r = petri.probe(f"{start}\n{ask}; kill $P", "--network", mode).ok()
    assert lines(r) == [f"200 OK mine{p}" for p in ports], r


def test_certificates_of_the_host(petri):
    bundle = "/etc/ssl/certs/ca-certificates.crt"
    r = petri.sh(f"cat {bundle}")
    assert r.outb == (read(bundle) if os.path.exists(bundle) else b""), r
