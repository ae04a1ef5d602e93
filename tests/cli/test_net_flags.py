"""Flags and commands of the network that are wrong: an error that names it, and nothing was started."""
import pytest

from life import life, one_line  # noqa: F401
from netcase import petri  # noqa: F401

BAD = {
    "--network": ["open", "", "Limited", "none,full"],
    "--allow-domain": [
        "", ".", "*", "a..b", "-a b", "http://allowed.test/", "allowed.test/path", "a*.test", "*.*.test", "münchen.test",
        "x" * 64 + ".test", ".".join(["x" * 60] * 5), "a\tb.test", "user@allowed.test", "a\x1b[31m.test", "a%00b.test",
        "allowed.test:0", "allowed.test:65536", "allowed.test:http", "allowed.test:", "300.1.2.3", "2130706433", "0x7f.1",
        "127.1", "10.0.0.0/33", "10.0.0.0/", "10.0.0.1/8", "::1/129", "[::1", "1:2:3"],
    "--deny-domain": ["a..b", "10.0.0.0/33", ""],
    "-p": ["80", "x:80", "80:x", "0:80", "80:0", "70000:80", "80:70000", "nowhere.test:80:80", "127.0.0.1:80", ":80:80", "",
           "1:2:3:4"],
    "--net-rate": ["fast", "0", "-1", "10M/h", ""],
    "--net-bytes": ["much", "0", "-1", ""],
    "--on-net-failure": ["ignore", ""],
}


@pytest.mark.parametrize("flag", BAD)
def test_bad_flags(petri, flag):
    for value in BAD[flag]:
        for sub in ("run", "start"):
            words = [f"{flag}={value}"] if value.startswith("-") else [flag, value]
            r = petri.run(*words, *(("--", "true") if sub == "run" else ()), sub=sub)
            assert r.rc == 125 if sub == "run" else r.rc, r
            assert r.talk.count("\n") == 1 and not r.err and not r.out, r
            assert flag in r.talk or flag == "-p" and "--publish" in r.talk, r
            plain = value and value.isprintable() and value.isascii() and len(value) < 40
            assert value in r.talk or not plain, r
            assert "\x1b" not in r.talk and "\t" not in r.talk and len(r.talk) < 500, r
    assert petri.run("-q", sub="ls").ok().out == ""


def test_nothing_was_started(life):
    for args in (("--allow-domain", "a..b"), ("--net-rate", "x"), ("-p", "1:2:3:4")):
        one_line(life("start", *args, "box"), args[0] if args[0] != "-p" else "1:2:3:4")
    assert life.ls() == {}


@pytest.mark.parametrize("args", [
    ("--network", "none", "--allow-domain", "allowed.test"),
    ("-p", "18443:80", "-p", "18443:81"),
], ids=["none-allow", "port-twice"])
def test_flags_that_contradict(life, args):
    one_line(life("start", *args, "box"))
    assert life.ls() == {}


def test_busy_port(life):
    """Somebody else listens there: named, and nothing is started or left."""
    from nethosts import HP
    one_line(life("start", "-p", f"{HP}:80", "box"), str(HP))
    assert life.ls() == {}
    one_line(life("run", "-p", f"{HP}:80", "--", "echo", "ran"), str(HP))


def test_commands(life):
    life.start("--network", "limited", "box")
    for words in (("allow", "a..b"), ("deny", "10.0.0.0/33"), ("allow",), ("allow", "*"), ("bogus",)):
        assert life("net", *words).rc != 0, words
    one_line(life("net", "allow", "good.test", "a..b"), "a..b")
    shown = life("net", "show").ok().out
    assert "good.test" not in shown, shown  # all of a command, or nothing of it
    life("stop").ok()
    for words in (("net", "log", "-s", "nobody"), ("net", "allow", "-s", "nobody", "a.test"), ("port", "nobody")):
        one_line(life(*words), "nobody")
