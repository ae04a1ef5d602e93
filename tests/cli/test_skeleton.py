"""What the root of a sandbox that stays is mounted on: made once for all that need the same, never written to."""
import os
import shutil

from helpers import tree, wait_for
from life import life  # noqa: F401


def skeletons(life):
    top = os.path.join(life.petri.store, "layers", "skeletons")
    return sorted(os.path.join(top, n) for n in os.listdir(top) if n != "wanted") if os.path.isdir(top) else []


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
    shutil.rmtree(top)
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


def test_runs_take_the_second_chance(life):
    """A single run has no use for one; those that follow share it, and can't write to it."""
    swept(life)
    look = "find / -maxdepth 2 '(' -path /dev -o -path /etc -o -path /proc -o -path /sys -o -path /usr ')' -prune -o"
    look += " -printf '%p %y %m %u %g %l\\n' | sort; touch /x /media/x /home/x 2>&1; echo here >~/f"
    flags = ("--workspace", life.project, "-v", f"{life.project}:/srv/{os.getpid()}:ro")
    first = life.petri.sh(look, *flags).ok().out
    assert not skeletons(life)
    second = life.petri.sh(look, *flags).ok().out
    (one,) = skeletons(life)
    before = tree(one)
    third = life.petri.sh(look, *flags).ok().out
    assert first == second == third and first.count("Read-only") == 3
    assert skeletons(life) == [one] and tree(one) == before
    life.petri.sh("mkdir /made && rmdir /made", "-u", "0", *flags).ok()
    assert skeletons(life) == [one] and tree(one) == before


def test_another_ones_key_is_not_taken(life):
    """Names are hashes: what is behind one must be made of the same."""
    swept(life)
    life.start()
    (one,) = skeletons(life)
    life("stop").ok()
    with open(os.path.join(one, "key"), "ab") as f:
        f.write(b"/else")
    shutil.rmtree(os.path.join(one, "root", "tmp"))
    life.start()
    assert life.out("touch /tmp/x && ls /tmp") == "x\n"
    assert skeletons(life) == [one] and not os.path.exists(os.path.join(one, "root", "tmp"))


def test_locks_inside_hold_up_nobody(life):
    """Root's directory can be locked by who is inside, and is not what petri locks."""
    swept(life)
    life.start()
    life.start("--name", "second", "--aside")
    life.sh("flock -x / sleep 60 & flock -x /tmp sleep 60 & sleep 0.2", "-d").ok()
    (one,) = skeletons(life)
    life.start("--name", "third", "--aside")
    assert skeletons(life) == [one]


def test_many_are_not_kept_for_long(life):
    swept(life)
    life.start()
    (one,) = skeletons(life)
    top = os.path.dirname(one)
    old = [os.path.join(top, f"{i:016x}") for i in range(40)]
    for d in old:
        os.mkdir(d)
        os.utime(d, (1, os.stat(top).st_mtime - 300))
    life("start", "--name", "bare", "--aside", "--caches", "off").ok()
    assert not [d for d in old if os.path.exists(d)] and one in skeletons(life)
