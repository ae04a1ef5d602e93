"""What the root of a sandbox that stays is mounted on: made once for all that need the same, never written to."""
import os

from helpers import tree, wait_for
from life import life  # noqa: F401


def skeletons(life):
    top = os.path.join(life.petri.store, "layers", "skeletons")
    return sorted(os.path.join(top, n) for n in os.listdir(top)) if os.path.isdir(top) else []


def swept(life):
    """None is left: whose sandbox ended just now may still be held."""
    wait_for(lambda: life("prune", "-f").ok() and not skeletons(life), what="no skeleton")


def test_one_for_all(life):
    swept(life)
    life.start()
    (one,) = skeletons(life)
    before = tree(one)
    life.fork("-n", "2")
    life("start", "--name", "third", "--aside").ok()
    assert skeletons(life) == [one]
    life.sh("rm ~/.cache/pip; rm -r ~/go; mkdir ~/mine /tmp/mine; chmod 700 ~; touch -d @1 ~ /tmp").ok()
    assert life.out("ls -A ~/.cache | grep -c pip; ls ~; stat -c %a ~") == "0\nmine\n700\n"
    third = life.out("readlink ~/.cache/pip; ls ~; stat -c %a ~", box="third")
    assert third == "/var/cache/petri/pip\ngo\n755\n"
    assert tree(one) == before
    life("restart").ok()
    assert life.out("ls -A ~/.cache | grep -c pip; ls ~; stat -c %a ~") == "0\nmine\n700\n"
    assert skeletons(life) == [one] and tree(one) == before


def test_other_places_are_another_one(life, workdir):
    swept(life)
    life.start()
    life("start", "--name", "bare", "--aside", "--caches", "off").ok()
    extra = os.path.join(workdir, "extra")
    os.mkdir(extra)
    life("start", "--name", "extra", "--aside", "-v", f"{extra}:/srv/extra").ok()
    assert len(skeletons(life)) == 3
    assert life.out("ls -A ~/.cache 2>/dev/null; ls /srv", box="bare") == ""
    assert life.out("ls /srv", box="extra") == "extra\n"
    # what was a directory is a file now
    life("stop", "extra").ok()
    os.rmdir(extra)
    with open(extra, "w", encoding="ascii") as f:
        f.write("text")
    life("start", "extra").ok()
    assert life.out("cat /srv/extra", box="extra") == "text"


def test_in_use_it_stays(life):
    swept(life)
    life.start()
    (one,) = skeletons(life)
    life("prune", "-f").ok()
    assert skeletons(life) == [one]
    life("stop").ok()
    swept(life)
    life.start()
    assert skeletons(life) == [one]


def test_without_one_it_goes_too(life):
    """Not as fast, but the same sandbox: where none can be made, or one is damaged by a crash."""
    swept(life)
    life.start()
    (one,) = skeletons(life)
    listing = "cd /; find . -xdev -path ./workspace -prune -o -printf '%p %y %m %u %g %l\\n' | sort"
    want = life.out(listing)
    life("stop").ok()
    top = os.path.dirname(one)
    swept(life)
    os.rmdir(top)
    with open(top, "w", encoding="ascii"):
        pass
    life.start()
    assert life.out(listing) == want
    life("rm", "-f", "proj-1").ok()
    os.unlink(top)


def test_left_ones_are_swept(life):
    swept(life)
    life.start()
    (one,) = skeletons(life)
    top = os.path.dirname(one)
    for name in (".new-abcdef", ".gone-0123", "0123456789abcdef"):
        os.makedirs(os.path.join(top, name, "d"))
    day = os.path.join(top, ".new-abcdef")
    os.utime(day, (1, 1))
    # a new one is made: what is old and nobody's goes
    life("start", "--name", "bare", "--aside", "--caches", "off").ok()
    assert not os.path.exists(day) and len(skeletons(life)) == 4
    life("prune", "-f").ok()
    assert len(skeletons(life)) == 2 and one in skeletons(life)
