"""petri snapshot and rollback: exactly what the sandbox had changed."""
import os
import threading

import pytest

from helpers import MODE, ROOT, tree, wait_for, write
from life import life, one_line  # noqa: F401
from test_image import Tar, add_programs

# Everything about a tree: type, mode, links, size, time to the nanosecond, owner, target, content, attributes.
LOOK = r"""
look() {
  find "$1" -printf '%P|%y|%m|%n|%s|%T@|%u:%g|%l\n' | grep -v '|d|' | LC_ALL=C sort
  find "$1" -type d -printf '%P|%m|%T@\n' | LC_ALL=C sort
  find "$1" -type f -readable -exec md5sum {} + | LC_ALL=C sort
  python3 - "$1" <<'P'
import os, sys
for d, ds, fs in os.walk(sys.argv[1]):
    for n in sorted(ds + fs):
        p = os.path.join(d, n)
        for x in sorted(os.listxattr(p, follow_symlinks=False)):
            print(p, x, os.getxattr(p, x, follow_symlinks=False))
P
}
look . ; look ~ ; look /tmp
"""
MAKE = r"""
set -e
echo a > plain; echo b > mode; chmod 2751 mode; chmod 741 .
mkdir -p d/e/f; echo x > d/e/f/deep; chmod 1777 d; touch -d '1999-12-31 23:59:59.987654321' d/e plain
ln -s ../out link; ln -sf /nonexistent/x abs; ln d/e/f/deep hard; touch -h -d '2010-01-01 00:00:00.5' link
truncate -s 64M holes; printf end >> holes; mkfifo fifo; printf z > 'new
line'; printf z > "$(printf 'b\377d')"
rm p-gone; rm -r p-dir; mkdir p-dir; echo only > p-dir/new; rm p-file; mkdir p-file; echo in > p-file/in
rm -r p-tofile; echo now a file > p-tofile; chmod 600 p-mode; mv p-old p-new; mkdir -m 0700 empty
echo h > ~/home; mkdir -p ~/.config/deep; echo t > /tmp/t; ln -s t /tmp/tl
python3 -c "
import os
os.setxattr('plain', 'user.petri', b'v\0w')
os.utime('mode', ns=(1, 2))"
"""
SPOIL = r"""
chmod -R u+rwx . ; rm -rf plain mode d link p-file; mkdir plain; echo in > plain/in; echo other > d; echo more >> holes
mkdir link; rm -rf p-dir; ln -s README p-dir; echo back > p-gone; rm -rf ~/home ~/.config /tmp/t; mkdir /tmp/t; echo n > ~/new
echo more >> hard; chmod 777 p-mode; rm -rf empty; setfattr -x user.petri plain 2>/dev/null; mv p-new p-newer; true
"""


def fill(life):
    for n in ("p-gone", "p-file", "p-mode", "p-old", "p-dir/a", "p-dir/b/c", "p-tofile/x", "p-kept"):
        life.petri.file(n, n + "\n")
    if ROOT:  # the sandbox's user is not root
        for d, ds, fs in os.walk(life.project):
            os.chmod(d, 0o777)
    return tree(life.project)


def state(life, box=None):
    return life.out(LOOK, box=box)


def differs(a, b):
    return sorted(set(a.splitlines()) ^ set(b.splitlines()))


@pytest.mark.parametrize("mode", ["overlay", "copy"])
def test_exactly_what_was_there(life, mode):
    before = fill(life)
    life.start("--workspace-mode", mode)
    life.sh(MAKE).ok()
    want = state(life)
    assert "987654321" in want and "user.petri" in want
    snap = life.snap("-m", "all of it")
    assert not differs(want, state(life)), "the snapshot itself changed something"
    life.sh(SPOIL).ok()
    spoilt = state(life)
    r = life("rollback", "--json", snap).ok().json
    assert r["snapshot"] == snap and not differs(want, state(life))
    life("rollback", r["saved"]).ok()
    assert not differs(spoilt, state(life)), "a rollback can be taken back"
    life("rollback", snap).ok()
    life("restart").ok()
    assert not differs(want, state(life))
    [fork] = life.fork()
    assert not differs(want, state(life, fork))
    assert tree(life.project) == before


def test_back_to_nothing(life):
    before = fill(life)
    life.start()
    empty = life.snap()
    want = state(life)
    life.sh(MAKE).ok()
    life.sh(SPOIL).ok()
    life("rollback", empty).ok()
    # (when a home without files was made is no change of the sandbox's)
    assert not [x for x in differs(want, state(life)) if not x.startswith("|")] and tree(life.project) == before
    assert life("diff", "--name-status").ok().out == ""


def test_stopped_ones(life):
    fill(life)
    life.start()
    life.sh(MAKE).ok()
    want = state(life)
    life("stop").ok()
    snap = life.snap("-m", "while stopped")
    life.start()
    life.sh(SPOIL).ok()
    life("stop").ok()
    life("rollback", snap).ok()
    assert life.status()["state"] == "stopped"
    life.start()
    assert not differs(want, state(life))


def test_rollback_ends_what_runs(life):
    life.start()
    life.sh("echo 1 > f").ok()
    snap = life.snap()
    job = life("exec", "-d", "--", "sh", "-c", "while :; do date +%N > f; done").ok().out.strip()
    p = life.begin("exec", "--", "sh", "-c", "echo up; setsid sleep 300 & sleep 300")
    assert p.stdout.readline() == b"up\n"
    wait_for(lambda: life.out("cat f") != "1\n", what="the job's first line")
    life("rollback", snap).ok()
    assert p.wait(20) != 0
    assert life.out("cat f; ps ax | grep -c '[s]leep 300' || true") == "1\n0\n"
    assert [j["state"] for j in life("jobs", "--json").ok().json if j["job"] == job] in (["done"], [])
    assert life.out("cat f") == "1\n"


def test_list_and_remove(life):
    life.start()
    ids = []
    for i in range(3):
        life.sh(f"echo {i} > f{i}").ok()
        ids.append(life.snap("-m", f"number {i}" if i else "odd \x1b[2J \u202e text"))
    assert ids == ["s1", "s2", "s3"] and life.snap() == "s4"
    rows = life("snapshot", "ls").ok().out
    assert "number 1" in rows and "\x1b" not in rows and "\u202e" not in rows
    listed = life("snapshot", "ls", "--json").ok().json
    assert [s["id"] for s in listed] == ids + ["s4"] and listed[0]["message"] == "odd \x1b[2J \u202e text"
    life("snapshot", "rm", "s2").ok()
    life("snap", "rm", "proj-1", "s1").ok()
    one_line(life("snapshot", "rm", "s2"), "no snapshot 's2'")
    one_line(life("rollback", "s1"), "no snapshot 's1'")
    assert life.out("ls f?") == "f0\nf1\nf2\n"  # they were only marks: nothing of the sandbox went
    assert life.snap() == "s5"  # no number twice
    life("rollback", "s3").ok()
    assert life.out("ls f?") == "f0\nf1\nf2\n"
    life("stop").ok()
    life("snapshot", "rm", "s3").ok()
    life.start()
    assert life.out("ls f?") == "f0\nf1\nf2\n"
    life("prune", "-f").ok()
    life("restart").ok()
    assert life.out("ls f?") == "f0\nf1\nf2\n"


def test_thirty_in_a_row(life):
    """More than a kernel stacks comfortably: layers are merged, nobody sees a difference."""
    life.petri.file("p", "project\n")
    life.start()
    snaps = []
    for i in range(30):
        life.sh(f"echo {i} >> log; echo {i} > f{i}; rm -f f{i - 3} p; mkdir -p d; echo {i} > d/x; echo {i} > ~/h").ok()
        snaps.append(life.snap())
    assert len(set(snaps)) == 30 and len(life("snapshot", "ls", "--json").ok().json) == 30
    see = "cat log | tail -1; ls f*; cat d/x ~/h; ls p || true"
    want = "29\nf27\nf28\nf29\n29\n29\n"
    assert life.out(see) == want
    [fork] = life.fork()
    assert life.out(see, box=fork) == want
    for i in (3, 28, 14):
        life("rollback", snaps[i]).ok()
        assert life.out(see) == f"{i}\n" + "".join(f"{n}\n" for n in sorted(f"f{k}" for k in (i - 2, i - 1, i))) + f"{i}\n{i}\n"
    life("restart").ok()
    assert life.out("cat d/x ~/h") == "14\n14\n"


def test_empty_ones_cost_nothing(life):
    life.start()
    life.sh("echo 1 > f").ok()
    life.snap()
    layers = lambda: len(os.listdir(os.path.join(life.petri.store, "changes")))
    n = layers()
    for _ in range(5):
        life.snap()
    assert layers() == n


def test_snapshot_while_busy(life):
    """The sandbox goes on; the snapshot is of one moment."""
    life.start()
    p = life.begin("exec", "--", "sh", "-c", "i=0; while :; do i=$((i+1)); echo $i > .a; mv .a a; echo $i > .b; mv .b b; done")
    wait_for(lambda: life.sh("cat b").rc == 0, what="the first round")
    snaps = [life.snap() for _ in range(4)]
    n = int(life.out("cat a"))
    wait_for(lambda: int(life.out("cat a")) > n, what="the writer going on")
    p.kill()
    p.wait()
    for s in reversed(snaps):
        life("rollback", s).ok()
        a, b = map(int, life.out("cat a b").split())
        assert 0 <= a - b <= 1 and a <= n
        n = a


def test_user_zero_and_links_into_the_system(life):
    life.start("-u", "0")
    life.sh("ln -sf /etc/passwd /usr/bin/zz; echo 1 > /etc/n; chown 12:34 /etc/n 2>/dev/null; chmod 4755 /etc/n; rm -rf /usr/share/common-licenses; "
            "mkdir /usr/share/common-licenses; echo d > /usr/share/common-licenses/d; touch -d @5.000000007 /usr/share/common-licenses/d").ok()
    look = "readlink /usr/bin/zz; stat -c '%a %u:%g' /etc/n; ls /usr/share/common-licenses; stat -c %.9Y /usr/share/common-licenses/d"
    want = life.out(look)
    snap = life.snap()
    life.sh("rm /usr/bin/zz; rm -r /usr/share/common-licenses; chmod 0 /etc/n").ok()
    life("rollback", snap).ok()
    assert life.out(look) == want and want.endswith("d\n5.000000007\n")


def an_image(life, name, text):
    tar = add_programs(Tar().dir("etc").dir("usr").add("etc/which", data=text).dir("opt").add("opt/a", data=b"a"),
                       "sh", "cat", "ls", "rm", "mkdir", "sleep")
    path = tar.save(life.petri.path("image.tar"))
    life("image", "import", path, name).ok()
    os.unlink(path)


def test_on_an_image(life):
    """All of it on another system than the host's."""
    life.petri.own_store()
    an_image(life, "mine", b"one\n")
    life.petri.file("p", "project\n")
    life.start("--image", "mine")
    life.start("--image", "mine", "-u", "0", "root")
    life.sh("echo w > /workspace/w; echo t > /tmp/t").ok()
    life.sh("echo changed > /etc/which; rm /opt/a; mkdir /usr/new", box="root").ok()
    snap = life.snap("root")
    life.sh("rm -r /usr/new /workspace/p; echo later > /etc/which", box="root").ok()
    [fork] = life.fork("root")
    life("rollback", "root", snap).ok()
    look = "cat /etc/which; ls /opt /usr; cat /workspace/p"
    assert life.out(look, box="root") == "changed\n/opt:\n\n/usr:\nnew\nproject\n"
    assert life.sh(look, box=fork).out == "later\n/opt:\n\n/usr:\n"
    life("restart").ok()
    assert life.out("cat /etc/which /workspace/w /tmp/t /workspace/p") == "one\nw\nt\nproject\n"
    one_line(life("start", "--image", "nosuch", "other"), "nosuch")
