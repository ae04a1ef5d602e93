"""refuse.py WHAT[:ERRNO],... -- COMMAND...: the command, with a kernel that refuses something.

A seccomp filter stands in for kernels, policies and containers that this machine is not. WHAT is
unshare (of user namespaces), kill (the same, deadly), maps, overlay, route or netfilter (netlink),
nothing, or a system call.
"""
import ctypes
import os
import struct
import sys

CLONE_NEWUSER, CLONE_NEWNS = 0x10000000, 0x20000
AF_NETLINK, NETLINK = 16, {"route": 0, "netfilter": 12}
NUMBERS = {"x86_64": {"unshare": 272, "seccomp": 317, "write": 1, "sethostname": 170, "setns": 308,
                      "umount2": 166, "pivot_root": 155, "socket": 41},
           "aarch64": {"unshare": 97, "seccomp": 277, "write": 64, "sethostname": 161, "setns": 268,
                       "umount2": 39, "pivot_root": 41, "socket": 198}}[os.uname().machine]
NUMBERS.update(landlock=444, mount_setattr=442, fsconfig=431, open_tree=428)


def stmt(code, k, jt=0, jf=0):
    return struct.pack("HBBI", code, jt, jf, k)


def rules(word):
    """BPF for one refusal; every rule starts with a load and falls through when it does not match."""
    what, _, number = word.partition(":")
    ret = 0x80000000 if what == "kill" else 0x50000 | int(number or 1)  # KILL_PROCESS or ERRNO
    load, jeq, jset, give = 0x20, 0x15, 0x45, 0x06
    if what == "nothing":
        return b""
    if what in ("unshare", "kill"):  # user namespaces only
        return (stmt(load, 0) + stmt(jeq, NUMBERS["unshare"], 0, 3) + stmt(load, 16) +
                stmt(jset, CLONE_NEWUSER, 0, 1) + stmt(give, ret))
    if what == "maps":  # "deny" for setgroups: the first write of a map, and the only one of 4 bytes
        return (stmt(load, 0) + stmt(jeq, NUMBERS["write"], 0, 3) + stmt(load, 32) +
                stmt(jeq, 4, 0, 1) + stmt(give, ret))
    if what == "overlay":  # string options are an overlay's; a plain tmpfs and proc have none
        return (stmt(load, 0) + stmt(jeq, NUMBERS["fsconfig"], 0, 3) + stmt(load, 24) +
                stmt(jeq, 1, 0, 1) + stmt(give, ret))
    if what in NETLINK:
        return (stmt(load, 0) + stmt(jeq, NUMBERS["socket"], 0, 5) + stmt(load, 16) +
                stmt(jeq, AF_NETLINK, 0, 3) + stmt(load, 32) + stmt(jeq, NETLINK[what], 0, 1) +
                stmt(give, ret))
    return stmt(load, 0) + stmt(jeq, NUMBERS[what], 0, 1) + stmt(give, ret)


def confine(words, command):
    code = b"".join(rules(w) for w in words.split(",")) + stmt(0x06, 0x7fff0000)
    buf = ctypes.create_string_buffer(code)
    prog = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(buf))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.c_char_p(prog), 0, 0) == 0, os.strerror(ctypes.get_errno())
    os.execvp(command[0], command)


if __name__ == "__main__":
    confine(sys.argv[1], sys.argv[3:])
