"""petri fs and petri cp: files of a running sandbox, without a process in it."""
import os
import stat
import struct
import subprocess

import pytest

import proto
from helpers import listing, read, wait_for, write
from test_exec import box, liar  # noqa: F401


def fs(b, *args, **kw):
    return b.petri.run(*args, sub="fs", **kw)


def cp(b, *args, **kw):
    return b.petri.run(*args, sub="cp", **kw)


def code(r):
    return r.json["error"]["code"]


# --- reading and writing ---------------------------------------------------------------------------------

@pytest.mark.parametrize("size", [0, 1, 4096, 70000, (3 << 20) + 7])
def test_bytes_come_back(box, size):
    data = os.urandom(size)
    fs(box, "write", "file", input=data).ok()
    assert fs(box, "read", "file").ok().outb == data
    assert box.exec("--max-output", "0", "--", "cat", "file").ok().outb == data
    assert not os.path.exists(os.path.join(box.petri.project, "file"))


def test_what_commands_write_is_read(box):
    box.sh("printf 'a\\0b\\377' >/tmp/x").ok()
    assert fs(box, "read", "/tmp/x").ok().outb == b"a\0b\xff"
    assert fs(box, "read", "README").ok().out == "a project\n"
    assert fs(box, "read", box.name + ":README", cwd=box.petri.home).ok().out == "a project\n"
    assert fs(box, "read", ":README").ok().out == "a project\n"


def test_part_of_a_file(box):
    fs(box, "write", "file", input="0123456789").ok()
    assert fs(box, "read", "--offset", "3", "--length", "4", "file").ok().out == "3456"
    assert fs(box, "read", "--offset", "99", "file").ok().out == ""
    assert fs(box, "read", "--offset", "x", "file").rc == 2


def test_relative_to_where_one_is(box):
    box.petri.file("a/b/deep", "d")
    here = os.path.join(box.petri.project, "a", "b")
    assert fs(box, "read", "deep", cwd=here).ok().out == "d"
    fs(box, "write", "new", input="n", cwd=here).ok()
    assert box.exec("--", "cat", "a/b/new").ok().out == "n"
    assert fs(box, "ls", cwd=here).ok().out == "deep\nnew\n"


def test_files_without_a_size(box):
    """Those of /proc come in pieces, and say that they are empty."""
    for name in ("/proc/self/status", "/proc/filesystems", "/proc/self/mountinfo"):
        assert fs(box, "read", name).ok().outb.endswith(b"\n")
    assert len(fs(box, "read", "/proc/self/mountinfo").ok().outb.splitlines()) == len(
        box.exec("--", "cat", "/proc/1/mountinfo").ok().outb.splitlines())


def test_read_as_json(box):
    box.sh("printf 'x\\377' >f; chmod 640 f")
    j = fs(box, "read", "--json", "f").ok().json
    assert j["content_base64"] == "eP8=" and j["size"] == 2 and j["mode"] == "0640" and j["type"] == "file"
    box.sh("head -c 17000000 /dev/zero >big")
    assert code(fs(box, "read", "--json", "big").ok(1)) == "limit"
    assert fs(box, "read", "--json", "--length", "10", "big").ok().json["content"] == "\0" * 10


def test_modes(box):
    fs(box, "write", "new", input="1").ok()
    fs(box, "write", "-m", "600", "private", input="1").ok()
    box.sh("echo old >script; chmod 750 script")
    fs(box, "write", "script", input="2").ok()
    assert box.sh("stat -c %a new private script").ok().out.split() == ["644", "600", "750"]
    assert fs(box, "write", "-m", "99", "x", input="").rc == 2


def test_a_new_file_only(box):
    fs(box, "write", "-x", "one", input="first").ok()
    assert code(fs(box, "write", "-x", "--json", "one", input="second").ok(1)) == "exists"
    assert fs(box, "read", "one").ok().out == "first"


def test_with_the_directories_above(box):
    assert code(fs(box, "write", "--json", "a/b/c", input="x").ok(1)) == "not_found"
    fs(box, "write", "-p", "a/b/c", input="x").ok()
    assert fs(box, "read", "a/b/c").ok().out == "x"


@pytest.mark.parametrize("how", ["complete", "killed"])
def test_all_or_nothing(box, how):
    """Readers have the old content until all of the new one is there; a writer that dies leaves nothing."""
    fs(box, "write", "-p", "d/file", input="old").ok()
    p = box.petri.start("write", "d/file", sub="fs", stdin=subprocess.PIPE)
    p.stdin.write(b"new" * 100000)
    p.stdin.flush()
    wait_for(lambda: len(fs(box, "ls", "d").out.split()) == 2, what="the new file beside the old one")
    assert fs(box, "read", "d/file").ok().out == "old"
    if how == "killed":
        p.kill()
        p.wait()
        wait_for(lambda: box.exec("--", "ls", "-A", "d").out == "file\n", what="the end of the new file")
        assert fs(box, "read", "d/file").ok().out == "old"
    else:
        p.stdin.close()
        assert p.wait() == 0
        assert fs(box, "read", "d/file").ok().out == "new" * 100000
    assert box.exec("--", "ls", "-A", "d").ok().out == "file\n"


def test_links_stay_inside(box):
    """A link to a place of the host's leads to the sandbox's own place of that name, or nowhere."""
    secret = os.path.join(box.petri.home, ".ssh", "id_rsa")
    os.symlink(secret, os.path.join(box.petri.project, "out"))
    os.symlink("../../.ssh/id_rsa", os.path.join(box.petri.project, "up"))
    before = read(secret)
    for name in ("out", "up", secret, "../.ssh/id_rsa", "/proc/1/root" + secret):
        r = fs(box, "read", "--json", name).ok(1)
        assert code(r) in ("not_found", "denied"), r
        fs(box, "write", name, input="changed")
        fs(box, "rm", name)
    assert read(secret) == before and os.path.islink(os.path.join(box.petri.project, "out"))
    cp(box, ":out", box.petri.path("copy"))
    assert not os.path.exists(box.petri.path("copy")) or os.path.islink(box.petri.path("copy"))


def test_what_is_no_file(box):
    """Nothing blocks on a pipe or a device."""
    box.sh("mkfifo p").ok()
    for name in ("p", "/dev/zero", ".", "/dev/tty"):
        r = fs(box, "read", "--json", name).ok(1)
        assert r.talk.count("\n") == 1, r


# --- looking -----------------------------------------------------------------------------------------------

def test_ls_and_stat(box):
    box.sh("mkdir d; echo x >d/file; ln -s file d/link; mkdir d/sub; mkfifo d/pipe; chmod 600 d/file").ok()
    assert fs(box, "ls", "d").ok().out == "file\nlink\npipe\nsub\n"
    entries = {e["name"]: e for e in fs(box, "ls", "--json", "d").ok().json["entries"]}
    assert {n: e["type"] for n, e in entries.items()} == {"file": "file", "link": "symlink", "pipe": "fifo", "sub": "directory"}
    assert entries["file"]["size"] == 2 and entries["file"]["mode"] == "0600" and entries["link"]["target"] == "file"
    lines = fs(box, "ls", "-l", "d").ok().out.splitlines()
    assert lines[0].startswith("-rw-------") and lines[1].startswith("lrwx") and lines[1].endswith("link -> file")
    assert fs(box, "stat", "--json", "d/link").ok().json["type"] == "file"
    j = fs(box, "stat", "--json", "-P", "d/link").ok().json
    assert j["type"] == "symlink" and j["target"] == "file"
    ino, mtime = box.sh("stat -c '%i %Y' d/file").ok().out.split()
    j = fs(box, "stat", "--json", "d/file").ok().json
    assert j["inode"] == int(ino) and j["nlink"] == 1


def test_many_names(box):
    box.sh("mkdir d; cd d; seq 5000 | xargs touch").ok()
    assert sorted(fs(box, "ls", "d").ok().out.split(), key=int) == [str(i) for i in range(1, 5001)]


def test_odd_names(box):
    box.sh("mkdir d; cd d; touch -- 'a b' \"$(printf 'n\\nl')\" \"$(printf '\\377')\" a:b -x").ok()
    names = [e["name"] for e in fs(box, "ls", "--json", "d").ok().json["entries"]]
    assert set(names) == {"a b", "n\nl", "\ufffd", "a:b", "-x"}
    fs(box, "read", ":d/a:b").ok()
    fs(box, "read", "d/a:b").ok()
    fs(box, "rm", "--", "d/-x").ok()
    fs(box, "write", "./c:d", input="colon").ok()
    assert fs(box, "read", ":c:d").ok().out == "colon"


# --- changing ------------------------------------------------------------------------------------------------

def test_mkdir_mv_rm(box):
    fs(box, "mkdir", "d").ok()
    assert code(fs(box, "mkdir", "--json", "d").ok(1)) == "exists"
    fs(box, "mkdir", "-p", "d").ok()
    fs(box, "mkdir", "-m", "700", "d/private").ok()
    assert box.sh("stat -c %a d d/private").ok().out.split() == ["755", "700"]
    assert code(fs(box, "mkdir", "--json", "x/y").ok(1)) == "not_found"
    fs(box, "write", "d/f", input="f").ok()
    fs(box, "mv", "d/f", "d/g").ok()
    fs(box, "mv", f"{box.name}:d/g", f"{box.name}:d/h").ok()
    assert fs(box, "mv", f"{box.name}:d/h", "other:d/h").rc == 2
    assert fs(box, "ls", "d").ok().out == "h\nprivate\n"
    assert fs(box, "rm", "d").rc == 1
    fs(box, "rm", "d/h").ok()
    fs(box, "rm", "-r", "d").ok()
    assert code(fs(box, "rm", "--json", "d").ok(1)) == "not_found"
    fs(box, "rm", "-f", "d").ok()
    fs(box, "rm", "README").ok()
    assert sorted(os.listdir(box.petri.project)) == ["README", "petri.json"]
    assert fs(box, "ls").ok().out == "petri.json\n"


def test_rm_follows_no_link(box):
    box.sh("mkdir d keep; echo k >keep/k; ln -s ../keep d/l; ln -s /tmp d/t; touch /tmp/t").ok()
    fs(box, "rm", "-r", "d").ok()
    box.sh("test -e keep/k && test -e /tmp/t").ok()


@pytest.mark.parametrize("args", [("read",), ("read", "a", "b"), ("mv", "a"), ("nonsense",), ("read", "-q", "x"), ("mkdir",)])
def test_wrong_words(petri, args):
    r = petri.run(*args, sub="fs")
    assert r.rc == 2 and r.out == "", r


@pytest.mark.parametrize("name", ["../x", "-rf", "x" * 4096, "a b"])
def test_bad_sandbox(petri, name):
    r = petri.run("read", "--json", "--", f"{name.replace('/', '')}:x", sub="fs").ok(1)
    assert code(r) == "invalid" and r.talk.count("\n") == 1, r


def test_stopped_and_unknown(box):
    assert code(fs(box, "read", "--json", "nobody:/x").ok(1)) == "not_found"
    r = fs(box, "read", "--json", "").ok(1)
    assert code(r) == "invalid", r
    box.petri.run("-q", box.id, sub="stop").ok()
    r = fs(box, "read", "--json", "README").ok(1)
    assert code(r) == "stopped" and f"petri start {box.name}" in r.talk, r
    assert code(cp(box, "--json", ":README", box.petri.path("x")).ok(1)) == "stopped"


def test_read_only_system(box):
    r = fs(box, "write", "--json", "/usr/bin/x", input="x").ok(1)
    assert code(r) == "denied", r


# --- cp ------------------------------------------------------------------------------------------------------

def make_tree(top):
    write(os.path.join(top, "file"), "content\n", 0o640)
    write(os.path.join(top, "bin", "tool"), "#!/bin/sh\n", 0o755)
    write(os.path.join(top, "bin", "name with \n"), os.urandom(100000))
    os.makedirs(os.path.join(top, "empty"))
    os.symlink("file", os.path.join(top, "link"))
    os.symlink("/no/where", os.path.join(top, "bin", "broken"))
    os.utime(os.path.join(top, "file"), ns=(10**18 + 5, 10**18 + 7))
    return top


def shape(top):
    seen = {}
    for n in listing(top):
        p = os.path.join(top, n)
        st = os.lstat(p)
        what = os.readlink(p) if os.path.islink(p) else read(p) if os.path.isfile(p) else None
        seen[n] = (stat.S_IFMT(st.st_mode), None if os.path.islink(p) else st.st_mode & 0o777, what)
    return seen


def test_cp_there_and_back(box):
    src = make_tree(box.petri.path("src"))
    j = cp(box, "--json", src, ":copy").ok().json
    assert j == {"files": 3, "directories": 3, "links": 2, "bytes": 100018, "skipped": 0}
    j = cp(box, "--json", ":copy", box.petri.path("back")).ok().json
    assert j["files"] == 3 and j["links"] == 2
    assert shape(box.petri.path("back")) == shape(src)
    assert os.stat(box.petri.path("back", "file")).st_mtime_ns // 10**9 == int(
        box.sh("stat -c %Y copy/file").ok().out)
    assert not os.path.exists(os.path.join(box.petri.project, "copy"))


def test_cp_as_docker_does(box):
    src = make_tree(box.petri.path("src"))
    box.sh("mkdir there; echo old >old").ok()
    cp(box, src + "/file", ":there").ok()
    cp(box, src + "/file", ":there/other").ok()
    cp(box, src, ":there/").ok()
    cp(box, src + "/.", f"{box.name}:there").ok()
    assert box.exec("--", "ls", "-A", "there").ok().out.split() == ["bin", "empty", "file", "link", "other", "src"]
    cp(box, src + "/file", ":old").ok()
    assert box.exec("--", "cat", "old").ok().out == "content\n"
    assert code(cp(box, "--json", src, ":old").ok(1)) == "exists"
    assert code(cp(box, "--json", src + "/file", ":no/such/dir").ok(1)) == "not_found"
    assert code(cp(box, "--json", src + "/file", ":nodir/").ok(1)) == "not_found"
    assert code(cp(box, "--json", box.petri.path("nothing"), ":x").ok(1)) == "not_found"
    out = box.petri.path("out")
    os.makedirs(out)
    cp(box, ":there/src", out).ok()
    cp(box, ":there/file", out).ok()
    cp(box, ":there/src/.", out).ok()
    cp(box, ":there/file", out + "/renamed").ok()
    assert sorted(os.listdir(out)) == ["bin", "empty", "file", "link", "renamed", "src"]
    assert code(cp(box, "--json", ":there", out + "/file").ok(1)) == "exists"
    assert code(cp(box, "--json", ":nothing", out).ok(1)) == "not_found"
    assert code(cp(box, "--json", ":there/file", out + "/no/such").ok(1)) == "not_found"


def test_cp_of_links(box):
    src = make_tree(box.petri.path("src"))
    cp(box, src + "/link", ":l1").ok()
    cp(box, "-L", src + "/link", ":l2").ok()
    assert box.sh("readlink l1; cat l2").ok().out == "file\ncontent\n"
    box.sh("ln -s README l3").ok()
    cp(box, ":l3", box.petri.path("l3")).ok()
    cp(box, "-L", ":l3", box.petri.path("l4")).ok()
    assert os.readlink(box.petri.path("l3")) == "README" and read(box.petri.path("l4")) == b"a project\n"


def test_cp_writes_through_no_link(box):
    """What the sandbox calls a directory is never written through a link that is here already."""
    target = box.petri.path("target")
    os.makedirs(target)
    write(box.petri.path("victim"), "untouched")
    out = box.petri.path("out")
    os.makedirs(out)
    os.symlink(target, os.path.join(out, "d"))
    os.symlink(box.petri.path("victim"), os.path.join(out, "f"))
    box.sh("mkdir -p s/d; echo x >s/d/x").ok()
    assert cp(box, ":s/.", out).rc == 1
    assert os.listdir(target) == []
    box.sh("rm -r s/d; echo new >s/f").ok()
    cp(box, ":s/.", out).ok()
    assert read(box.petri.path("victim")) == b"untouched" and read(os.path.join(out, "f")) == b"new\n"


def test_cp_leaves_out_what_can_not_be(box):
    src = box.petri.path("src")
    write(os.path.join(src, "file"), "x")
    os.mkfifo(os.path.join(src, "pipe"))
    r = cp(box, src, ":copy").ok()
    assert "not copied: 'pipe'" in r.talk
    assert cp(box, "-q", src, ":copy2").ok().talk == ""
    box.sh("mkdir d; mkfifo d/p; touch d/f; chmod 4755 d/f").ok()
    r = cp(box, ":d/p", box.petri.path("p"))
    assert r.rc == 1 and "not copied" in r.talk and not os.path.lexists(box.petri.path("p")), r
    r = cp(box, ":d", box.petri.path("d")).ok()
    assert "d/p" in r.talk and os.listdir(box.petri.path("d")) == ["f"]
    assert os.stat(box.petri.path("d", "f")).st_mode & 0o7777 == 0o755


@pytest.mark.parametrize("args", [("a", "b"), (":a", ":b"), ("a",), ("a", "b", "c"), ("-", ":x"), (":x", "-"), ("-z", "a", ":b")])
def test_cp_wrong_words(petri, args):
    assert petri.run(*args, sub="cp").rc == 2


def entry(name, mode=stat.S_IFREG | 0o644, target=None):
    words = proto.strings(name) + (proto.strings(target) if target else b"")
    return proto.STAT.pack(mode, 1, 0, 0, 0, 1, 0, 0, 1 if target else 0) + words


@pytest.mark.parametrize("name", ["../evil", "..", ".", "a/b", "", "/etc/evil"])
def test_names_that_can_not_be(petri, liar, name):
    def answer(c, request):
        while True:
            _, payload, _ = request
            op = struct.unpack_from("=I", payload)[0]
            if op == proto.FS_LS:
                c.send(proto.FS_ENTRY, entry(name))
            c.send(proto.FS_OK, proto.STAT.pack(stat.S_IFDIR | 0o755, 1, 0, 0, 0, 1, 0, 0, 0))
            request = c.recv()
    liar(answer)
    out = petri.path("out")
    os.makedirs(out)
    before = listing(petri.base)
    r = petri.run("--json", "liar:/x/.", out, sub="cp").ok(1)
    assert "names that can't be" in r.talk, r
    assert [n for n in listing(petri.base) if not n.startswith("store")] == [n for n in before if not n.startswith("store")]


def test_a_file_that_is_none(petri, liar):
    """A descriptor of something else than a regular file is not read from."""
    r, w = os.pipe()
    liar(lambda c, _: c.send(proto.FS_OK, proto.STAT.pack(stat.S_IFREG, 1, 0, 0, 5, 1, 0, 0, 0), fds=[r]))
    got = petri.run("read", "liar:/x", sub="fs").ok(1)
    os.close(r)
    os.close(w)
    assert "nonsense" in got.talk, got
