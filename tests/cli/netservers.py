"""The servers of nethosts.py's two sides: python3 netservers.py world|host DIRECTORY.

Each writes a line of JSON per event to DIRECTORY/log/NAME before it answers. All end with standard input.
"""
import asyncio
import ctypes
import json
import os
import resource
import signal
import socket
import ssl
import struct
import sys

import nethosts as n

side, directory = sys.argv[1:3]
logs = {}


def log(server, **event):
    if server not in logs:
        logs[server] = open(os.path.join(directory, "log", server), "ab", buffering=0)
    logs[server].write(json.dumps(event).encode() + b"\n")


# --- DNS -------------------------------------------------------------------------------------------

A, NS, CNAME, TXT, AAAA, HTTPS = 1, 2, 5, 16, 28, 65
ZONE = {
    "allowed.test": {A: [n.ALLOWED]}, "*.allowed.test": {A: [n.ALLOWED]},
    "other.test": {A: [n.OTHER]}, "*.other.test": {A: [n.OTHER]},
    "evil.test": {A: [n.EVIL], TXT: ["tunnel"]}, "*.evil.test": {A: [n.EVIL], TXT: ["tunnel"]},
    "v6only.test": {AAAA: [n.ALLOWED6]}, "both.test": {A: [n.CLOSED], AAAA: [n.ALLOWED6]},
    "alias.allowed.test": {CNAME: ["other.test"]},
    "priv.allowed.test": {A: [n.INTRANET]}, "loop.allowed.test": {A: ["127.0.0.1"]},
    "meta.allowed.test": {A: [n.METADATA]}, "own.allowed.test": {A: [n.HOST]},
    "zero.allowed.test": {A: ["0.0.0.0"]}, "mapped.allowed.test": {AAAA: ["::ffff:127.0.0.1"]},
    "local6.allowed.test": {AAAA: ["::1", "fe80::1"]}, "own6.allowed.test": {AAAA: [n.HOST6]},
    "nat64.allowed.test": {AAAA: ["64:ff9b::7f00:1"]},
    "mixed.allowed.test": {A: [n.INTRANET, n.ALLOWED]},
    "closed.test": {A: [n.CLOSED]}, "silent.test": {A: [n.SILENT]}, "ssh.test": {A: [n.SSH]},
    "git.test": {A: [n.GIT]},
}
# One answer after the other, in turn: a name that is good when it is checked and bad when it is used.
TURNS = {"rebind.allowed.test": [n.ALLOWED, "127.0.0.1", n.INTRANET, n.METADATA, n.HOST]}
turn = {}
RCODE = {"dead.test": 2, "refused.test": 5}


def wire(name):
    return b"".join(bytes([len(x)]) + x.encode() for x in name.split(".") if x) + b"\0"


def record(kind, data):
    if kind == TXT:
        rdata = bytes([len(data)]) + data.encode()
    elif kind == CNAME:
        rdata = wire(data)
    else:
        rdata = socket.inet_pton(socket.AF_INET if kind == A else socket.AF_INET6, data)
    return b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 0, len(rdata)) + rdata


def answer(query, proto, peer, server="dns"):
    """The answer to a query, or None."""
    try:
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1:at + 1 + query[at]].decode())
            at += 1 + query[at]
        kind = struct.unpack("!H", query[at + 1:at + 3])[0]
    except (IndexError, UnicodeDecodeError, struct.error):
        log(server, name="?", proto=proto)
        return None
    name = ".".join(labels).lower()
    log(server, name=name, type=kind, proto=proto, peer=peer)
    if name.startswith("silence"):
        return None
    zone = ZONE.get(name) or next((z for n, z in ZONE.items() if n[0] == "*" and name.endswith(n[1:])), None)
    rcode = RCODE.get(name, 0 if zone or name in TURNS else 3)
    answers = [record(kind, d) for d in (zone or {}).get(kind, [])]
    if name in TURNS and kind == A:
        i = turn[name] = turn.get(name, -1) + 1
        answers = [record(A, TURNS[name][i % len(TURNS[name])])]
    if zone and CNAME in zone and kind in (A, AAAA):
        target = zone[CNAME][0]
        answers = [record(CNAME, target)]
        for d in ZONE[target].get(kind, []):
            answers.append(wire(target) + record(kind, d)[2:])
    return (query[:2] + struct.pack("!HHHHH", 0x8180 | rcode, 1, len(answers), 0, 0) +
            query[12:at + 5] + b"".join(answers))


class DnsUdp(asyncio.DatagramProtocol):
    def __init__(self, server="dns"):
        self.server = server

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, addr):
        reply = answer(data, "udp", addr[0], self.server)
        if reply:
            self.transport.sendto(reply, addr)


async def dns_tcp(reader, writer):
    try:
        while True:
            size, = struct.unpack("!H", await reader.readexactly(2))
            reply = answer(await reader.readexactly(size), "tcp", writer.get_extra_info("peername")[0])
            if not reply:
                break
            writer.write(struct.pack("!H", len(reply)) + reply)
            await writer.drain()
    except (asyncio.IncompleteReadError, OSError):
        pass
    writer.close()


# --- the rest ----------------------------------------------------------------------------------------

class Echo(asyncio.DatagramProtocol):
    """UDP: says what it got."""

    def __init__(self, name, port):
        self.name, self.port = name, port

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, addr):
        log(self.name, event="udp", port=self.port, data=data.decode("latin1"))
        self.transport.sendto(b"ECHO " + data, addr)


async def body(writer, path, text):
    """/bytes/N: so many."""
    kind, _, size = path.strip("/").partition("/")
    if kind == "bytes" and size.isdigit():
        left, block = int(size), b"x" * 65536
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % left)
        while left:
            writer.write(block[:min(left, len(block))])
            left -= min(left, len(block))
            await writer.drain()
        return
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text.encode()))


async def file(writer, path):
    """What lies in DIRECTORY/git: a repository, for a client that fetches its files."""
    top = os.path.join(directory, "git")
    name = os.path.realpath(os.path.join(top, path.partition("?")[0].lstrip("/")))
    if not name.startswith(top + "/") or not os.path.isfile(name):
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        return
    with open(name, "rb") as f:
        data = f.read()
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data))


async def request_body(reader, fields):
    """Reads it; its size."""
    if "chunked" not in fields.get("transfer-encoding", ""):
        left = size = int(fields.get("content-length", 0))
        while left:
            left -= len(await reader.readexactly(min(left, 65536)))
        return size
    total = 0
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        total += size
        await reader.readexactly(size + 2)
    await reader.readuntil(b"\r\n")
    return total


def http(name, port, tls=False):
    """A server with kept connections; its log has connections and requests."""
    async def serve(reader, writer):
        shown = writer.get_extra_info("ssl_object")
        log(name, event="connect", port=port, sni=getattr(shown, "petri_sni", None) if tls else None,
            peer=writer.get_extra_info("peername")[0])
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin1").split("\r\n")
                words = head[0].split(" ")
                fields = {k.strip().lower(): v.strip() for k, _, v in (x.partition(":") for x in head[1:] if x)}
                got = await request_body(reader, fields)
                log(name, event="request", port=port, line=head[0], host=fields.get("host"), body=got)
                path = words[1] if len(words) > 1 else "/"
                canary = "CANARY " if side == "host" else ""
                if name == "git":
                    await file(writer, path)
                    continue
                await body(writer, path, f"{canary}SERVER {name} PORT {port} HOST {fields.get('host')} PATH {path}\n")
                await writer.drain()
                if fields.get("connection") == "close":
                    break
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, ValueError) as e:
            partial = getattr(e, "partial", b"")
            if partial:
                log(name, event="partial", port=port, data=partial[:200].decode("latin1"))
        writer.close()
    return serve


def banner(name, port):
    """Speaks first, as sshd does."""
    async def serve(reader, writer):
        log(name, event="connect", port=port)
        writer.write(b"SSH-2.0-test\r\n")
        try:
            await writer.drain()
            data = await reader.read(1000)
            log(name, event="data", port=port, data=data.decode("latin1"))
        except OSError:
            pass
        writer.close()
    return serve


async def pump(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.close()


async def proxy(reader, writer):
    """CONNECT, to the addresses of ZONE."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin1").split("\r\n")
        log("proxy", line=head[0], auth=next((x for x in head if x.lower().startswith("proxy-auth")), None))
        verb, target, _ = head[0].split(" ")
        host, _, port = target.rpartition(":")
        if verb != "CONNECT" or (host not in ZONE and host != n.ALLOWED):
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            writer.close()
            return
        up = await asyncio.open_connection(ZONE[host][A][0] if host in ZONE else host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(pump(reader, up[1]), pump(up[0], writer))
        up[1].close()
    except (asyncio.IncompleteReadError, OSError, ValueError):
        pass
    writer.close()


def tls_context():
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ctx.load_cert_chain(os.path.join(directory, "cert.pem"), os.path.join(directory, "key.pem"))
    ctx.set_alpn_protocols(["http/1.1"])

    def sni(obj, name, _):
        obj.petri_sni = name
    ctx.sni_callback = sni
    return ctx


async def listen(handler, address, port, **kw):
    await asyncio.start_server(handler, address, port, backlog=4096, **kw)


async def udp(make, address, port):
    await asyncio.get_running_loop().create_datagram_endpoint(make, (address, port))


async def world():
    named = [("allowed", n.ALLOWED), ("other", n.OTHER), ("evil", n.EVIL), ("intranet", n.INTRANET),
             ("metadata", n.METADATA), ("allowed6", n.ALLOWED6), ("evil6", n.EVIL6)]
    tls = tls_context()

    def raw(name, port, handler):
        """Also what never became TLS is seen: the bytes of a connection count, not the handshake."""
        async def serve(reader, writer):
            log(name, event="tcp", port=port)
            try:
                await writer.start_tls(tls)
            except (OSError, ssl.SSLError, asyncio.IncompleteReadError, ConnectionError):
                writer.close()
                return
            await handler(reader, writer)
        return serve
    for name, address in named:
        for port in (80, 8080):
            await listen(http(name, port), address, port)
        await listen(raw(name, 443, http(name, 443, True)), address, 443)
        await udp(lambda name=name: Echo(name, 443), address, 443)
        await udp(lambda name=name: Echo(name, 9000), address, 9000)
        await listen(banner(name, 22), address, 22)
    await listen(banner("ssh", 22), n.SSH, 22)
    await listen(http("git", 80), n.GIT, 80)
    await listen(proxy, n.PROXY, 3128)
    await udp(DnsUdp, n.DNS, 53)
    await listen(dns_tcp, n.DNS, 53)
    # a resolver that nobody configured: whoever reaches it got past the gateway's
    await udp(DnsUdp, n.EVIL, 53)
    await listen(dns_tcp, n.EVIL, 53)


async def host():
    await udp(lambda: DnsUdp("stub"), n.STUB, 53)
    for address in ("127.0.0.1", "::1", n.HOST, n.HOST_PRIVATE, n.HOST6):
        for port in (80, n.HP):
            await listen(http("canary", port), address, port)
        await udp(lambda: Echo("canary", n.HP), address, n.HP)


async def main():
    await (world() if side == "world" else host())
    with open(os.path.join(directory, f"ready-{side}"), "w"):
        pass
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    loop.add_reader(0, lambda: over.done() or os.read(0, 1) or over.set_result(True))
    await over


if __name__ == "__main__":
    # exec forgets neither, but a change of ids would have
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(main())
