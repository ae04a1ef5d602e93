"""petri image: what comes in, what is refused, and what other tools make of the store."""
import bz2
import contextlib
import fcntl
import gzip
import hashlib
import io
import json
import lzma
import os
import shutil
import signal
import stat
import struct
import subprocess
import tarfile
import termios
import zlib

import pytest

import helpers
from helpers import ROOT, read, wait_for, write


@pytest.fixture
def world(petri):
    petri.own_store()
    petri.out = petri.path("outside")
    write(petri.out + "/secret", "CANARY\n", 0o600)
    write(petri.out + "/dir/file", "CANARY\n")
    return petri


def image(p, *args, **kw):
    return p.run(*args, sub="image", cwd=p.base, **kw)


def layers(p):
    top = p.store + "/layers"
    return sorted(n for n in os.listdir(top) if n != ".lock") if os.path.isdir(top) else []


def blobs(p):
    top = p.store + "/images/blobs/sha256"
    return sorted(os.listdir(top)) if os.path.isdir(top) else []


def empty(p):
    """No image, no blob, no layer, nothing half done."""
    index = p.store + "/images/index.json"
    known = json.loads(read(index))["manifests"] if os.path.exists(index) else []
    return not (known or layers(p) or blobs(p))


def fs(p, number=0):
    return f"{p.store}/layers/{layers(p)[number]}/fs"


class Tar:
    """A tar made by hand, one entry after the other, in any order and with any nonsense."""

    def __init__(self, fmt=tarfile.PAX_FORMAT):
        self.raw = io.BytesIO()
        self.tar = tarfile.open(fileobj=self.raw, mode="w", format=fmt)

    def add(self, name, kind=tarfile.REGTYPE, data=b"", mode=0o644, link="", pax=None, **more):
        t = tarfile.TarInfo(name)
        t.type, t.mode, t.linkname, t.size = kind, mode, link, len(data)
        t.mtime = 1700000000
        if pax:
            t.pax_headers = pax
        for k, v in more.items():
            setattr(t, k, v)
        self.tar.addfile(t, io.BytesIO(data))
        return self

    def dir(self, name, mode=0o755, **more):
        return self.add(name, tarfile.DIRTYPE, mode=mode, **more)

    def link(self, name, to, **more):
        return self.add(name, tarfile.SYMTYPE, link=to, mode=0o777, **more)

    def hard(self, name, to):
        return self.add(name, tarfile.LNKTYPE, link=to)

    def bytes(self):
        self.tar.close()
        return self.raw.getvalue()

    def save(self, path):
        return write(path, self.bytes())


def rootfs():
    return (Tar().dir("./").dir("etc").add("etc/os-release", data=b"ID=test\n").dir("bin")
            .add("bin/tool", data=b"#!/bin/sh\n", mode=0o755).link("bin/sh", "tool"))


# --- what works ------------------------------------------------------------------------------

PACKERS = {
    "plain": lambda b: b, "gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress,
    "gz members": lambda b: gzip.compress(b[:700]) + gzip.compress(b[700:]),
}


@pytest.mark.parametrize("kind", PACKERS)
def test_import_tar(world, kind):
    plain = rootfs().bytes()
    path = write(world.path("r.tar"), PACKERS[kind](plain))
    r = image(world, "import", path, "test").ok()
    assert r.out.startswith("sha256:") and "imported test:latest" in r.talk, r
    assert layers(world) == ["sha256-" + hashlib.sha256(plain).hexdigest()]
    assert read(fs(world) + "/etc/os-release") == b"ID=test\n"
    assert os.readlink(fs(world) + "/bin/sh") == "tool"
    st = os.stat(fs(world) + "/bin/tool")
    assert stat.S_IMODE(st.st_mode) == 0o755 and st.st_mtime == 1700000000


def test_import_zstd(world):
    path = rootfs().save(world.path("r.tar"))
    subprocess.run(["zstd", "-q", path], check=True)
    image(world, "import", path + ".zst", "test").ok()
    assert read(fs(world) + "/etc/os-release") == b"ID=test\n"


def test_import_stdin(world):
    image(world, "import", "-", "a/b:c", input=rootfs().bytes()).ok()
    assert [(i["name"], i["tag"]) for i in image(world, "ls", "--json").json] == [("a/b", "c")]


def test_import_dir_is_reproducible(world):
    top = world.path("root")
    write(top + "/etc/a", "a")
    os.link(top + "/etc/a", top + "/etc/b")
    os.symlink("/etc/a", top + "/etc/link")
    os.mkfifo(top + "/etc/pipe")
    write(top + "/näme", "ü")
    os.makedirs(top + "/locked/in", mode=0o500)
    os.chmod(top + "/locked", 0o555)
    r = image(world, "import", top, "one").ok()
    assert "left out 1" in r.talk, r
    digest = layers(world)
    os.makedirs(world.path("copy"))
    subprocess.run(["cp", "-a", top, world.path("copy")], check=True)
    image(world, "import", world.path("copy/root"), "two").ok()
    assert layers(world) == digest
    got = fs(world)
    assert os.stat(got + "/etc/a").st_ino == os.stat(got + "/etc/b").st_ino
    assert read(got + "/näme") == "ü".encode() and not os.path.exists(got + "/etc/pipe")
    assert stat.S_IMODE(os.stat(got + "/locked").st_mode) == 0o555
    image(world, "rm", "one", "two").ok()
    assert empty(world)


def test_store_inside_the_imported_directory(world):
    write(world.base + "/x", "x")
    image(world, "import", world.base, "self").ok()
    assert os.path.exists(fs(world) + "/x") and not os.path.exists(fs(world) + "/store")


def test_changes(world):
    path = rootfs().save(world.path("r.tar"))
    image(world, "import", "-c", 'CMD ["sh", "-l"]', "--change", 'ENV A=b "C=d e"', "-c", "USER 1000:1000",
          "-c", "WORKDIR /srv//app/", "-c", "LABEL k=v", "-c", "ENTRYPOINT exec x", "-m", "made by hand",
          path, "test").ok()
    got = image(world, "inspect", "test", "--json").json
    assert got["cmd"] == ["sh", "-l"] and got["env"] == ["A=b", "C=d e"] and got["user"] == "1000:1000"
    assert got["workdir"] == "/srv/app" and got["labels"] == ["k=v"]
    assert got["entrypoint"] == ["/bin/sh", "-c", "exec x"] and got["names"] == ["test:latest"]
    config = [json.loads(read(f"{world.store}/images/blobs/sha256/{b}")) for b in blobs(world)
              if read(f"{world.store}/images/blobs/sha256/{b}").startswith(b'{"created"')]
    assert config[0]["history"][0]["comment"] == "made by hand"
    text = image(world, "inspect", "test").ok().out
    assert "env          A=b\n             C=d e\n" in text


@pytest.mark.parametrize("change", ["WORKDIR ../x", "WORKDIR x", "WORKDIR /proc/self/fd/7", "WORKDIR /a/../..",
                                    "USER -x", "USER 99999999999", "USER a:b:c", "ENV =x", "ENV x", "VOLUME /x",
                                    "CMD [1]", "CMD [", "ENV A=\x01", "CMD", "ENV A='b"])
def test_bad_changes(world, change):
    path = rootfs().save(world.path("r.tar"))
    r = image(world, "import", "-c", change, path, "test")
    assert r.rc in (1, 2) and r.talk.count("\n") == 1 and "--change" in r.talk, r
    assert empty(world)


def test_ls_and_rm(world):
    assert image(world, "ls").ok().out.split() == ["NAME", "TAG", "ID", "SIZE", "CREATED"]
    assert image(world, "ls", "--json").json == []
    path = rootfs().save(world.path("r.tar"))
    for name in ("zeta:2", "zeta:10", "alpha"):
        image(world, "import", path, name).ok()
    lines = [x.split() for x in image(world, "ls").ok().out.splitlines()]
    assert [x[:2] for x in lines[1:]] == [["alpha", "latest"], ["zeta", "10"], ["zeta", "2"]]
    one = layers(world)
    assert len(one) == 1
    assert image(world, "rm", "zeta:2", "--json").json["removed"] == ["zeta:2"]
    assert layers(world) == one
    r = image(world, "rm", "alpha", "nothere").ok(1)
    assert "no image 'nothere'" in r.talk and len(image(world, "ls", "--json").json) == 2
    ids = image(world, "ls", "-q").ok().out.split()
    image(world, "rm", *ids).ok()
    assert empty(world) and image(world, "ls", "-q").ok().out == ""


def test_a_name_moves(world):
    image(world, "import", rootfs().save(world.path("a.tar")), "x").ok()
    old = image(world, "ls", "-q").ok().out
    image(world, "import", rootfs().add("more").save(world.path("b.tar")), "x").ok()
    got = image(world, "ls", "--json").json
    assert len(got) == 1 and got[0]["id"] != old.strip()
    image(world, "rm", "x").ok()
    assert empty(world)


def test_unknown_image_names_the_nearest(world):
    image(world, "import", rootfs().save(world.path("r.tar")), "debian:12").ok()
    assert "did you mean 'debian:12'" in image(world, "inspect", "debain:12").ok(1).talk
    r = image(world, "inspect", "--json", "nothing-like-it").ok(1)
    assert r.json["error"]["code"] == "not_found" and "petri image import" in r.talk


@pytest.mark.parametrize("name", ["", "UPPER", "a b", "../x", "a//b", "/a", "a/", "a:", "a:b:c", "a:-x", "-a", "a@b",
                                  "a..b", "host", "host:1", "x" * 300, "a\x1b[31m", "sha256:" + "0" * 64])
def test_bad_names(world, name):
    r = image(world, "import", "--", rootfs().save(world.path("r.tar")), name)
    assert r.rc == 1 and r.talk.count("\n") == 1 and "\x1b" not in r.talk, r
    assert not os.path.exists(world.store + "/layers") or empty(world)


@pytest.mark.parametrize("args", [["import"], ["import", "x"], ["import", "a", "b", "c"], ["ls", "x"], ["rm"],
                                  ["inspect"], ["inspekt"], ["ls", "--jsn"], ["import", "--max-size", "abc", "/x", "y"],
                                  ["import", "--platform", "windows/x", "/etc/hostname", "y"]])
def test_usage(world, args):
    r = image(world, *args)
    assert r.rc in (1, 2) and r.talk.count("\n") == 1 and r.out == "", r


@pytest.mark.parametrize("what", ["missing", "empty", "text", "zeros", "no files", "cut", "cut gz", "bad gz crc", "garbage",
                                  "gz garbage", "double"])
def test_not_a_tar(world, what):
    good = rootfs().add("data", data=os.urandom(5000)).bytes()
    packed = gzip.compress(good)
    data = {
        "empty": b"", "text": b"hello\n" * 1000, "zeros": bytes(10240), "no files": Tar().bytes(),
        "cut": good[:4000], "cut gz": packed[:-100], "bad gz crc": packed[:-8] + b"xxxx" + packed[-4:],
        "garbage": os.urandom(100000), "gz garbage": packed + b"garbage", "double": gzip.compress(packed),
    }
    path = world.path("r.tar")
    if what != "missing":
        write(path, data[what])
    r = image(world, "import", path, "x").ok(1)
    assert r.talk.count("\n") == 1 and "r.tar" in r.talk, r
    assert empty(world)


# --- hostile archives ------------------------------------------------------------------------

REFUSED, TAKEN = True, False


def hostile(out):
    """Name -> (archive, whether it must be refused). What is taken must stay inside."""
    rel = "../" * 12 + out.lstrip("/")
    xattrs = {f"SCHILY.xattr.{n}": v for n, v in (
        ("trusted.overlay.redirect", out), ("trusted.overlay.opaque", "y"), ("user.overlay.redirect", out),
        ("user.overlay.opaque", "y"), ("user.overlay.metacopy", ""), ("security.capability", "x" * 20))}
    return {
        "absolute name": (Tar().add(out + "/new", data=b"x"), TAKEN),
        "absolute name of a file": (Tar().add(out + "/secret", data=b"x"), TAKEN),
        "dotdot": (Tar().add(rel + "/new"), REFUSED),
        "dotdot inside": (Tar().dir("a").add("a/b/../../../../" + rel + "/new"), REFUSED),
        "dotdot directory": (Tar().dir("../../../new"), REFUSED),
        "through a symlink": (Tar().link("a", out).add("a/new"), REFUSED),
        "through a relative symlink": (Tar().link("a", rel).add("a/new"), REFUSED),
        "through a chain": (Tar().link("b", out).link("a", "b").add("a/new"), REFUSED),
        "through a deep symlink": (Tar().dir("d").link("d/a", out).dir("d/a/dir/sub").add("d/a/dir/sub/new"), REFUSED),
        "directory over a symlink": (Tar().link("a", out).dir("a", mode=0o777).add("a/new"), TAKEN),
        "symlink over a directory": (Tar().dir("a").add("a/x").link("a", out).add("a/new"), REFUSED),
        "file over a symlink": (Tar().link("a", out + "/secret").add("a", data=b"x", mode=0o777), TAKEN),
        "hard link out": (Tar().hard("a", rel + "/secret"), REFUSED),
        "absolute hard link": (Tar().hard("a", out + "/secret"), REFUSED),
        "hard link through a symlink": (Tar().link("s", out).hard("a", "s/secret"), REFUSED),
        "write through a hard link of a symlink":
            (Tar().link("s", out + "/secret").hard("a", "s").add("a", data=b"x", mode=0o777), TAKEN),
        "hard link to a directory": (Tar().dir("d").hard("a", "d"), REFUSED),
        "whiteout out": (Tar().link("a", out).add("a/.wh.secret"), REFUSED),
        "opaque out": (Tar().link("a", out).add("a/.wh..wh..opq"), REFUSED),
        "whiteout of dotdot": (Tar().dir("a").add("a/.wh..."), REFUSED),
        "whiteout of nothing": (Tar().dir("a").add("a/.wh."), REFUSED),
        "devices": (Tar().dir("dev").add("dev/mem", tarfile.CHRTYPE, devmajor=1, devminor=1)
                    .add("dev/sda", tarfile.BLKTYPE, devmajor=8).add("x", tarfile.CHRTYPE), TAKEN),
        "pipe as passwd": (Tar().dir("etc").add("etc/passwd", tarfile.FIFOTYPE), TAKEN),
        "setuid": (Tar().add("su", data=b"x", mode=0o6755).dir("d", mode=0o2777), TAKEN),
        "overlay attributes": (Tar().dir("d", pax=xattrs).add("d/f", data=b"x", pax=xattrs), TAKEN),
        "long component": (Tar().add("x" * 300), REFUSED),
        "long path": (Tar().add("/".join(["abcdefgh"] * 600)), REFUSED),
        "deep path": (Tar().add("/".join(["a"] * 400)), REFUSED),
        "root is a link": (Tar().link("./", out), REFUSED),
        "root is a file": (Tar().add(".", data=b"x"), REFUSED),
        "endless owner": (Tar().add("x", uid=4294967295, gid=4294967295), REFUSED if ROOT else TAKEN),
        "file and directory": (Tar().add("a", data=b"x").add("a/b"), REFUSED),
        **{f"/{n} is a link": (Tar().link(n, out), REFUSED) for n in ("dev", "proc", "sys", "workspace", "tmp", "etc")},
        "/dev becomes a link": (Tar().dir("dev").link("./dev", out), REFUSED),
        "/proc is a file": (Tar().add("proc"), REFUSED),
    }


@pytest.mark.parametrize("name", list(hostile("/x")))
def test_hostile_tar(world, name):
    """I01, I06: whatever an archive says, nothing outside the layer is touched."""
    tar, refused = hostile(world.out)[name]
    before = helpers.tree(world.out)
    r = image(world, "import", tar.save(world.path("evil.tar")), "evil")
    assert helpers.tree(world.out) == before
    assert r.rc == (1 if refused else 0), r
    if refused:
        assert r.talk.count("\n") == 1 and r.out == "", r
        assert empty(world)
        return
    for d, dirs, files in os.walk(fs(world)):
        for n in dirs + files:
            p = os.path.join(d, n)
            st = os.lstat(p)
            assert stat.S_ISREG(st.st_mode) or stat.S_ISDIR(st.st_mode) or stat.S_ISLNK(st.st_mode), p
            assert not os.listxattr(p, follow_symlinks=False), p
            assert not st.st_mode & stat.S_ISUID and (os.path.isdir(p) or not st.st_mode & stat.S_ISGID), p


def test_checks_can_fail(world):
    """The probe itself: an unpacker that follows links is caught by the comparison."""
    before = helpers.tree(world.out)
    os.symlink(world.out, world.path("a"))
    write(world.path("a/new"), "x")
    assert helpers.tree(world.out) != before


def header(name, size=0, kind=b"0"):
    """A ustar header by hand: what tarfile would refuse to write."""
    h = bytearray(512)
    h[0:len(name)] = name
    h[100:108] = b"0000644\0"
    h[108:116] = h[116:124] = b"0000000\0"
    h[124:136] = b"%011o\0" % size if size < 8 ** 11 else b"\x80\0\0\0" + struct.pack(">Q", size)
    h[136:148] = b"00000000000\0"
    h[156:157] = kind
    h[257:265] = b"ustar\0" + b"00"
    h[148:156] = b"        "
    h[148:156] = b"%06o\0 " % sum(h)
    return bytes(h)


def gnu_sparse(name, real, offset, data):
    h = bytearray(header(name, len(data), b"S"))
    h[257:265] = b"ustar  \0"
    h[345:386] = bytes(41)

    def num(v):
        return b"%011o\0" % v if v < 8 ** 11 else b"\x80\0\0\0" + struct.pack(">Q", v)
    h[386:398], h[398:410] = num(offset), num(len(data))
    h[483:495] = num(real)
    h[148:156] = b"        "
    h[148:156] = b"%06o\0 " % sum(h)
    return bytes(h) + data + bytes(-len(data) % 512) + bytes(1024)


@pytest.mark.parametrize("name,data,ok", [
    ("within", gnu_sparse(b"a", 1 << 30, (1 << 30) - 512, b"x" * 512), True),
    ("8 TiB", gnu_sparse(b"a", 8 << 40, (8 << 40) - 512, b"x" * 512), False),
    ("beyond its size", gnu_sparse(b"a", 1024, 1 << 20, b"x" * 512), False),
    ("negative", gnu_sparse(b"a", (1 << 63) - 1, (1 << 63) - 512, b"x" * 511), False),
])
def test_sparse(world, name, data, ok):
    r = image(world, "import", write(world.path("s.tar"), data), "s").ok(0 if ok else 1)
    if ok:
        st = os.stat(fs(world) + "/a")
        assert st.st_size == 1 << 30 and st.st_blocks * 512 < 1 << 20
    else:
        assert r.talk.count("\n") == 1 and empty(world), r


def gz_repeat(head, block, times):
    """gzip of head and many times the same block, without packing it again each time."""
    return gzip.compress(head) + gzip.compress(block, 9) * times


def test_ten_gigabytes_of_zeros(world):
    """I03: refused long before the disk is full, nothing stays."""
    data = gz_repeat(header(b"zeros", 10 << 30), bytes(64 << 20), 160)
    r = image(world, "import", write(world.path("z.tgz"), data), "z").ok(1)
    assert "--max-size" in r.talk and empty(world), r
    data = gz_repeat(bytes(512), bytes(64 << 20), 160)
    image(world, "import", write(world.path("z.tgz"), data), "z").ok(1)
    assert empty(world)


def test_max_size(world):
    path = Tar().dir("etc").add("a", data=os.urandom(3 << 20)).save(world.path("r.tar"))
    r = image(world, "import", "--max-size", "2M", path, "x").ok(1)
    assert "2M" in r.talk and empty(world), r
    image(world, "import", "--max-size", "4M", path, "x").ok()
    r = image(world, "import", "--max-size", "2M", fs(world), "y").ok(1)
    assert "--max-size" in r.talk, r


def test_many_entries(world):
    """I03: of two million entries a million is enough. Pipes count, though none is made."""
    chunk = header(b"pipe", kind=b"6") * 20000
    p = world.start("import", "-", "x", sub="image", cwd=world.base, stdin=subprocess.PIPE)
    with contextlib.suppress(BrokenPipeError):
        for _ in range(100):
            p.stdin.write(chunk)
        p.stdin.close()
    p.stdin = None
    out, err = p.communicate(timeout=240)
    assert p.returncode == 1 and b"more than 1000000 entries" in err, err
    assert empty(world)
    r = image(world, "import", "--max-entries", "4", rootfs().save(world.path("r.tar")), "x").ok(1)
    assert "--max-entries" in r.talk and empty(world), r


@pytest.mark.parametrize("kind", [b"x", b"g", b"L", b"K"])
def test_endless_header(world, kind):
    """I03: a header that says 4 GB is neither kept in memory nor waited for."""
    p = world.start("import", "-", "x", sub="image", cwd=world.base, stdin=subprocess.PIPE)
    with contextlib.suppress(BrokenPipeError):
        p.stdin.write(header(b"pax", 4 << 30, kind))
        for _ in range(64):
            p.stdin.write(b"9" * (1 << 20))
        p.stdin.close()
    p.stdin = None
    out, err = p.communicate(timeout=60)
    assert p.returncode == 1 and err.count(b"\n") == 1, err
    assert empty(world)


def test_zstd_window(world):
    """I03: a frame that wants 2 GiB of memory is refused."""
    path = rootfs().add("big", data=bytes(8 << 20)).save(world.path("r.tar"))
    with open(path, "rb") as f:
        subprocess.run(["zstd", "-q", "-f", "--ultra", "--long=31", "-1", "--no-check", "-o", path + ".zst"],
                       stdin=f, check=True)
    head = read(path + ".zst")[:6]
    assert head[5] >> 3 >= 20, "the frame asks for a large window"
    r = image(world, "import", path + ".zst", "x").ok(1)
    assert r.talk.count("\n") == 1 and empty(world), r


def test_nul_in_a_name(world):
    rec = b"path=etc/a\0b\n"
    rec = b"%d " % (len(rec) + 3) + rec
    data = header(b"pax", len(rec), b"x") + rec + bytes(-len(rec) % 512) + header(b"etc/c", 1) + b"x" + bytes(511 + 1024)
    image(world, "import", write(world.path("n.tar"), data), "x")
    for d, dirs, files in os.walk(world.store + "/layers"):
        assert not [n for n in files if n not in ("lock", ".lock", "a", "c", "a\\0b")], (d, files)


# --- layers and images of other tools --------------------------------------------------------

class Layout:
    """An OCI image layout made by hand, with whatever is wrong in it."""

    def __init__(self, top):
        self.top = top
        os.makedirs(top + "/blobs/sha256")
        write(top + "/oci-layout", '{"imageLayoutVersion":"1.0.0"}')

    def blob(self, data, kind, **more):
        if not isinstance(data, bytes):
            data = json.dumps(data).encode()
        digest = hashlib.sha256(data).hexdigest()
        write(f"{self.top}/blobs/sha256/{digest}", data)
        return {"mediaType": "application/vnd.oci.image." + kind, "digest": "sha256:" + digest, "size": len(data), **more}

    def image(self, tars, config=None, diff_ids=None, arch="amd64", pack=gzip.compress, edit=None):
        ids = diff_ids or ["sha256:" + hashlib.sha256(t).hexdigest() for t in tars]
        conf = {"architecture": arch, "os": "linux", "config": config or {}, "rootfs": {"type": "layers", "diff_ids": ids}}
        m = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
             "config": self.blob(conf, "config.v1+json"),
             "layers": [self.blob(pack(t), "layer.v1.tar+gzip") for t in tars]}
        if edit:
            edit(m)
        return self.blob(m, "manifest.v1+json")

    def index(self, *manifests):
        write(self.top + "/index.json", json.dumps({"schemaVersion": 2, "manifests": manifests}))
        return self.top


def named(desc, ref):
    return {**desc, "annotations": {"org.opencontainers.image.ref.name": ref}}


def test_layout_with_whiteouts(world):
    lower = Tar().dir("etc").add("etc/gone").add("etc/stays").dir("old").add("old/x").bytes()
    upper = (Tar().dir("etc").add("etc/.wh.gone").dir("old").add("old/.wh..wh..opq").add("old/y").dir("new")
             .add(".wh.new").add(".wh.dir").dir("dir").bytes())
    lay = Layout(world.path("l"))
    top = lay.index(lay.image([lower, upper], {"Env": ["A=b"], "Cmd": ["sh"], "WorkingDir": "/srv"}))
    r = image(world, "import", top, "two:layers").ok()
    assert "2 layers" in r.talk, r
    by_id = {n[7:]: f"{world.store}/layers/{n}/fs" for n in layers(world)}
    up = by_id[hashlib.sha256(upper).hexdigest()]
    gone = os.lstat(up + "/etc/gone")
    assert stat.S_ISCHR(gone.st_mode) and gone.st_rdev == 0
    mark = "trusted.overlay.opaque" if ROOT else "user.overlay.opaque"
    for d in ("old", "new", "dir"):
        assert os.getxattr(up + "/" + d, mark) == b"y", d
    assert os.path.exists(up + "/old/y")
    got = image(world, "inspect", "two:layers", "--json").json
    assert got["env"] == ["A=b"] and got["workdir"] == "/srv" and len(got["layers"]) == 2
    # the overlay of both is what the image means
    script = (f"mount -t overlay -o ro,{'' if ROOT else 'userxattr,'}"
              f"lowerdir={up}:{by_id[hashlib.sha256(lower).hexdigest()]} none {world.project} && cd {world.project} && find . | sort")
    out = subprocess.run(["unshare", "-Urm" if not ROOT else "-m", "sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert out.split() == [".", "./dir", "./etc", "./etc/stays", "./new", "./old", "./old/y"]


def bad_layouts():
    def wrong(key, value, part="layers"):
        def edit(m):
            d = m[part][0] if part == "layers" else m[part]
            d[key] = value
        return {"edit": edit}
    zero = "sha256:" + "0" * 64
    return {
        "wrong digest": wrong("digest", zero), "path as digest": wrong("digest", "sha256:../../../../secret"),
        "wrong size": wrong("size", 7), "negative size": wrong("size", -1), "no media type": wrong("mediaType", None),
        "config digest": wrong("digest", zero, "config"), "config size": wrong("size", 1, "config"),
        "upper case digest": wrong("digest", "sha256:" + "A" * 64), "sha1": wrong("digest", "sha1:" + "0" * 40),
        "diff id": {"diff_ids": [zero]}, "diff id path": {"diff_ids": ["sha256:../../x"]},
        "too many diff ids": {"diff_ids": [zero, zero]}, "no layers": {"edit": lambda m: m.pop("layers")},
        "schema 1": {"edit": lambda m: m.update(schemaVersion=1)},
        "workdir": {"config": {"WorkingDir": "/proc/self/fd/9"}}, "workdir up": {"config": {"WorkingDir": "/a/../../b"}},
        "env": {"config": {"Env": ["nothing"]}}, "env control": {"config": {"Env": ["A=\x1b[2J"]}},
        "user": {"config": {"User": "../../x"}}, "cmd": {"config": {"Cmd": "sh"}},
        "cmd nul": {"config": {"Cmd": ["a\0b"]}}, "long env": {"config": {"Env": ["A=" + "x" * 200000]}},
    }


@pytest.mark.parametrize("what", bad_layouts())
def test_bad_layout(world, what):
    """I04: what does not match its digest, size or diff id is refused and nothing is kept."""
    lay = Layout(world.path("l"))
    top = lay.index(lay.image([rootfs().bytes()], **bad_layouts()[what]))
    before = helpers.tree(world.out)
    r = image(world, "import", top, "x").ok(1)
    assert r.talk.count("\n") == 1 and empty(world) and helpers.tree(world.out) == before, r


@pytest.mark.parametrize("how", ["cut", "changed", "link", "pipe", "missing"])
def test_damaged_blob(world, how):
    lay = Layout(world.path("l"))
    desc = lay.image([rootfs().add("data", data=os.urandom(9000)).bytes()])
    top = lay.index(desc)
    manifest = json.loads(read(f"{top}/blobs/sha256/{desc['digest'][7:]}"))
    path = f"{top}/blobs/sha256/{manifest['layers'][0]['digest'][7:]}"
    data = read(path)
    os.unlink(path)
    if how == "cut":
        write(path, data[:-200])
    elif how == "changed":
        write(path, gzip.compress(gzip.decompress(data), 1))
    elif how == "link":
        write(world.path("elsewhere"), data)
        os.symlink(world.path("elsewhere"), path)
    elif how == "pipe":
        os.mkfifo(path)
    r = image(world, "import", top, "x").ok(1)
    assert r.talk.count("\n") == 1 and empty(world), r


def test_choosing_an_image(world):
    lay = Layout(world.path("l"))
    one, two = lay.image([rootfs().bytes()]), lay.image([rootfs().add("two").bytes()])
    top = lay.index(named(one, "one"), named(two, "two:2"))
    r = image(world, "import", top, "x").ok(2)
    assert "--ref" in r.talk and "one, two:2" in r.talk and empty(world), r
    image(world, "import", "--ref", "two:2", top, "x").ok()
    assert os.path.exists(fs(world) + "/two")
    image(world, "import", "--ref", "three", top, "x").ok(1)


def test_platforms(world):
    lay = Layout(world.path("l"))
    a, b = lay.image([rootfs().bytes()]), lay.image([rootfs().add("arm").bytes()], arch="arm64")
    att = lay.image([rootfs().add("attestation").bytes()])
    sub = {"schemaVersion": 2, "manifests": [{**d, "platform": {"os": o, "architecture": c}} for d, o, c in
                                             ((att, "unknown", "unknown"), (b, "linux", "arm64"), (a, "linux", "amd64"))]}
    top = lay.index(lay.blob(sub, "index.v1+json"))
    r = image(world, "import", "--platform", "linux/arm64", top, "x").ok()
    assert os.path.exists(fs(world) + "/arm")
    if os.uname().machine == "x86_64":
        assert "is for arm64" in r.talk, r
    image(world, "import", "--platform", "linux/s390x", top, "x").ok(1)


def test_docker_archive(world):
    lower, upper = rootfs().bytes(), Tar().dir("etc").add("etc/more").bytes()
    conf = json.dumps({"architecture": "amd64", "os": "linux", "config": {"Cmd": ["sh"]}, "rootfs": {
        "type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(x).hexdigest() for x in (lower, upper, lower)]}}).encode()
    manifest = json.dumps([{"Config": "c.json", "RepoTags": ["old:1"], "Layers": ["a/layer.tar", "b/layer.tar", "c/layer.tar"]}])
    tar = (Tar().add("c.json", data=conf).dir("a").add("a/layer.tar", data=lower).dir("b").add("b/layer.tar", data=upper)
           .dir("c").link("c/layer.tar", "../a/layer.tar").add("manifest.json", data=manifest.encode()))
    image(world, "import", tar.save(world.path("d.tar")), "old:1").ok()
    assert len(layers(world)) == 2
    assert image(world, "inspect", "--json", "old:1").json["cmd"] == ["sh"]
    evil = json.dumps([{"Config": "c.json", "Layers": ["a/layer.tar", "../../secret", "x"]}])
    image(world, "rm", "old:1").ok()
    tar = Tar().add("c.json", data=conf).dir("a").add("a/layer.tar", data=lower).add("manifest.json", data=evil.encode())
    image(world, "import", tar.save(world.path("e.tar")), "old:1").ok(1)
    assert empty(world)


def test_oci_archive(world):
    lay = Layout(world.path("l"))
    top = lay.index(lay.image([rootfs().bytes()]))
    subprocess.run(["tar", "-C", top, "-cf", world.path("a.tar"), "."], check=True)
    want = json.loads(read(top + "/index.json"))["manifests"][0]["digest"]
    assert image(world, "import", world.path("a.tar"), "x").ok().out.strip() == want
    r = image(world, "import", "-m", "no", world.path("a.tar"), "y").ok(2)
    assert "--message" in r.talk, r


def tool(name):
    return pytest.mark.skipif(not shutil.which(name), reason=f"{name} is not installed")


@tool("skopeo")
def test_skopeo_reads_and_writes(world):
    image(world, "import", "-c", "ENV A=b", rootfs().save(world.path("r.tar")), "team/test:1").ok()
    store = f"oci:{world.store}/images"
    env = {**os.environ, "HOME": world.home}
    got = json.loads(subprocess.run(["skopeo", "inspect", store + ":team/test:1"], env=env, check=True, capture_output=True).stdout)
    assert got["Env"] == ["A=b"] and got["Digest"] == image(world, "inspect", "--json", "team/test:1").json["digest"]
    subprocess.run(["skopeo", "--insecure-policy", "copy", "-q", store + ":team/test:1", "docker-archive:" + world.path("d.tar")],
                   env=env, check=True)
    image(world, "import", world.path("d.tar"), "back").ok()
    assert len(layers(world)) == 1
    subprocess.run(["skopeo", "--insecure-policy", "copy", "-q", store + ":team/test:1", store + ":theirs:1"], env=env, check=True)
    assert image(world, "inspect", "--json", "theirs:1").json["env"] == ["A=b"]
    image(world, "rm", "team/test:1", "back", "theirs:1").ok()
    assert empty(world)


@tool("umoci")
@pytest.mark.parametrize("packed", [False, True])
def test_umoci_unpacks(world, packed):
    data = rootfs().bytes()
    image(world, "import", write(world.path("r.tar"), gzip.compress(data) if packed else data), "test:1").ok()
    subprocess.run(["umoci", "unpack", *([] if ROOT else ["--rootless"]), "--image", world.store + "/images:test:1",
                    world.path("bundle")], check=True, capture_output=True)
    assert read(world.path("bundle/rootfs/etc/os-release")) == b"ID=test\n"


# --- owners, users, death --------------------------------------------------------------------

def test_owners(world):
    tar = rootfs().add("mine", uid=1234, gid=4321).dir("theirs", uid=7, gid=8)
    image(world, "import", tar.save(world.path("r.tar")), "x").ok()
    st, d = os.stat(fs(world) + "/mine"), os.stat(fs(world) + "/theirs")
    want = (1234, 4321, 7, 8) if ROOT else (os.getuid(), os.getgid()) * 2
    assert (st.st_uid, st.st_gid, d.st_uid, d.st_gid) == want
    with tarfile.open(world.path("r.tar")) as t:  # the blob is the archive as it came
        assert t.getmember("mine").uid == 1234
    assert hashlib.sha256(read(world.path("r.tar"))).hexdigest() in blobs(world)


@pytest.mark.user
def test_own_files_are_roots(world):
    write(world.path("root/etc/x"), "x")
    image(world, "import", world.path("root"), "x").ok()
    big = max(blobs(world), key=lambda b: os.stat(f"{world.store}/images/blobs/sha256/{b}").st_size)
    with tarfile.open(f"{world.store}/images/blobs/sha256/{big}") as t:
        assert {(m.uid, m.gid) for m in t} == {(0, 0)}


def test_locked_directories(world):
    """Directories that their owner may not enter: made, kept, and removed again."""
    tar = Tar().dir("a", mode=0).add("a/x").dir("a/b", mode=0o555).add("a/b/y").dir("etc", mode=0o500).add("etc/z", mode=0)
    image(world, "import", tar.save(world.path("r.tar")), "x").ok()
    assert stat.S_IMODE(os.stat(fs(world) + "/a").st_mode) == 0
    image(world, "rm", "x").ok()
    assert empty(world)


def test_layer_in_use_stays(world):
    image(world, "import", rootfs().save(world.path("r.tar")), "x").ok()
    with open(os.path.dirname(fs(world)) + "/lock") as f:
        fcntl.flock(f, fcntl.LOCK_SH)
        r = image(world, "rm", "x").ok()
        assert "running sandbox" in r.talk and len(layers(world)) == 1, r
        assert image(world, "ls", "--json").json == []
    image(world, "import", rootfs().save(world.path("r.tar")), "x").ok()
    image(world, "rm", "x").ok()
    assert empty(world)


def waits_for_input(p):
    """Whether a process has read all that there is, and sleeps."""
    unread = fcntl.ioctl(p.stdin, termios.FIONREAD, bytes(4))
    return unread == bytes(4) and helpers.processes()[p.pid][1] == "S"


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_killed_import(world, sig):
    """A polite signal leaves nothing; after SIGKILL the next command that writes clears up."""
    p = world.start("import", "-", "x", sub="image", cwd=world.base, stdin=subprocess.PIPE)
    data = Tar().dir("etc").add("big", data=os.urandom(8 << 20)).bytes()
    p.stdin.write(data[:6 << 20])
    p.stdin.flush()
    wait_for(lambda: layers(world) and waits_for_input(p), what="the stage")
    p.send_signal(sig)
    with p.stdin:  # open to the end: only the signal stops it
        p.stdin = None
        out, err = p.communicate(timeout=20)
    if sig == signal.SIGKILL:
        assert layers(world)
        image(world, "import", rootfs().save(world.path("r.tar")), "y").ok()
        image(world, "rm", "y").ok()
    else:
        assert p.returncode == 1 and b"interrupted" in err, err
    assert empty(world)


def test_imports_side_by_side(world):
    """Several at once, removals in between: every one ends well and the store is whole."""
    path = rootfs().save(world.path("r.tar"))
    other = rootfs().add("other", data=b"x" * 100000).save(world.path("o.tar"))
    started = [world.start("import", (path, other)[i % 2], f"n{i}", sub="image", cwd=world.base) for i in range(8)]
    for p in started:
        image(world, "ls").ok()
        out, err = p.communicate(timeout=60)
        assert p.returncode == 0, err
    assert len(image(world, "ls", "--json").json) == 8 and len(layers(world)) == 2
    started = [world.start("rm", f"n{i}", sub="image", cwd=world.base) for i in range(8)]
    for p in started:
        out, err = p.communicate(timeout=60)
        assert p.returncode == 0, err
    assert empty(world)


def test_full_disk(world):
    """No room is an error like any other."""
    path = Tar().dir("etc").add("a", data=os.urandom(8 << 20)).save(world.path("r.tar"))
    mount = world.path("small")
    os.makedirs(mount)
    script = (f"mount -t tmpfs -o size=4m none {mount} && PETRI_HOME={mount}/s {helpers.BIN} image import {path} x; "
              f"echo rc=$?; find {mount}/s/layers {mount}/s/images/blobs -mindepth 1")
    r = subprocess.run(["unshare", "-Urm" if not ROOT else "-m", "sh", "-c", script], capture_output=True, text=True,
                       env=world.env, cwd=world.base)
    assert "No space left" in r.stderr and "rc=1" in r.stdout, r
    assert [x for x in r.stdout.splitlines()[1:] if not x.endswith(("/.lock", "/sha256"))] == [], r


# --- in a sandbox ----------------------------------------------------------------------------

def add_programs(tar, *names):
    """The host's own programs with the libraries they need: enough of a system to look around in."""
    seen = set()
    for name in names:
        exe = os.path.realpath(shutil.which(name))
        libs = subprocess.run(["ldd", exe], capture_output=True, text=True, check=True).stdout.split()
        for path, at in [(exe, "/bin/" + name)] + [(w, w) for w in libs if w.startswith("/")]:
            if at not in seen:
                tar.add("." + at, data=read(path), mode=0o755)
            seen.add(at)
    return tar


def two_layers(world):
    lower = add_programs(Tar().dir("etc").add("etc/gone", data=b"x").add("etc/stays", data=b"old").dir("old")
                         .add("old/x").add("suid", data=b"x", mode=0o6755), "sh", "cat", "ls", "find", "sleep", "stat")
    upper = Tar().dir("etc").add("etc/.wh.gone").add("etc/stays", data=b"new").dir("old").add("old/.wh..wh..opq").add("old/y")
    lay = Layout(world.path("l"))
    lay.index(lay.image([lower.bytes(), upper.bytes()], {"Env": ["FROM_IMAGE=yes"]}, pack=lambda b: gzip.compress(b, 1)))
    image(world, "import", world.path("l"), "two").ok()
    shutil.rmtree(world.path("l"))


def test_run_in_an_image(world):
    two_layers(world)
    before = {n: helpers.listing(f"{world.store}/layers/{n}") for n in layers(world)}
    r = world.sh("ls /etc/gone; find /old; cat /etc/stays; echo; echo $FROM_IMAGE; stat -c %a /suid; echo w >/tmp/w",
                 "--image", "two").ok()
    assert r.out.split() == ["/old", "/old/y", "new", "yes", "755"] and "No such file" in r.err, r
    assert {n: helpers.listing(f"{world.store}/layers/{n}") for n in layers(world)} == before
    assert "did you mean 'two'" in world.run("--image", "tow", "--", "true").ok(125).talk


def test_places_of_the_project_in_an_image(world):
    """Another place than /workspace, a path that can't be written, and petri tool with the host's paths."""
    two_layers(world)
    own = world.file("f", "text")
    write(os.path.join(world.home, ".config/petri/config.json"), json.dumps({"sandbox": {
        "enabled": True, "image": "two", "network": "none", "mounts": {"workspace_path": "/srv/app", "readonly": ["f"]}}}))
    r = world.sh("echo $PWD; cat /srv/app/f; (echo x >f) 2>/dev/null || echo no; ls /workspace").ok(2)
    assert r.out == "/srv/app\ntextno\n", r
    for path in (own, "f", "/srv/app/f"):
        assert world.run("cat", "--", "cat", path, sub="tool").ok().out == "text"
    assert world.run("sh", "--", "sh", "-c", "echo $PWD", sub="tool").ok().out == world.project + "\n"
    world.run("-f", *world.run("-q", sub="ls").ok().out.split(), sub="rm").ok()
    r = world.sh("true", "--workspace-path", "/etc/x").ok(125)
    assert "/etc is the system's" in r.talk
    r = world.sh("true", "--workspace-path", "/tmp").ok(125)
    assert "/tmp is the system's" in r.talk


def test_removed_while_in_use(world):
    two_layers(world)
    p = world.start("--image", "two", "--", "sh", "-c", "echo up; cat; cat /etc/stays", stdin=subprocess.PIPE)
    assert p.stdout.readline() == b"up\n"
    r = image(world, "rm", "two").ok()
    assert "running sandbox" in r.talk and len(layers(world)) == 2, r
    out, err = p.communicate(b"", timeout=20)
    assert p.returncode == 0 and out == b"new", err
    image(world, "import", rootfs().save(world.path("r.tar")), "x").ok()
    image(world, "rm", "x").ok()
    assert empty(world)
