"""petri dies at any moment by any signal; the machine is as before."""
import os
import random
import signal
import subprocess
import time

import pytest

from helpers import SLOW, Leaks, descendants, store_left, wait_for

KILLS = int(os.environ.get("PETRI_TEST_KILLS", "200"))
BATCH = min(KILLS, 40)


def nothing_left(petri, leaks, what):
    """Processes, mounts and namespaces go by themselves; the rest with the next petri command."""
    wait_for(lambda: not set(descendants()) - leaks.procs, what=f"the end of all processes ({what})")
    petri.run("--", "true").ok()
    left = leaks.left()
    assert not left, (what, left)
    assert not store_left(petri.store), what


@pytest.mark.parametrize("batch", range(KILLS // BATCH))
def test_sigkill_at_random_moments(petri, batch):
    seed = int(os.environ.get("PETRI_TEST_SEED", random.SystemRandom().randrange(1 << 30)))
    rnd = random.Random(seed + batch)
    leaks = Leaks(deep=True)
    if batch == 0:  # petri is killed while it makes its store as well
        petri.own_store()
    else:
        petri.run("--", "true").ok()
    for _ in range(BATCH):
        p = petri.start("--", "sh", "-c", "setsid sleep 300 & sleep 300", stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL)
        time.sleep(rnd.uniform(0, 0.03) * SLOW)
        p.kill()
        p.wait()
    nothing_left(petri, leaks, f"PETRI_TEST_SEED={seed}")


@pytest.mark.parametrize("flags", [("--timeout", "20"), ("--disk", "16M"), ("--workspace-mode", "copy"),
                                   ("--keep",), ("-u", "0")], ids=lambda f: f[0] + "=" + f[-1])
def test_sigkill_with_flags(petri, flags):
    rnd = random.Random(len(flags[0]))
    if flags == ("--keep",):
        petri.own_store(kept=True)
    petri.run(*[f for f in flags if f != "--keep"], "--", "true")
    leaks = Leaks(deep=True)
    for _ in range(8):
        p = petri.start(*flags, "--", "sleep", "300", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rnd.uniform(0, 0.04) * SLOW)
        p.kill()
        p.wait()
    if flags == ("--keep",):  # a kept sandbox may stay, stopped; nothing of it may run
        wait_for(lambda: not set(descendants()) - leaks.procs, what="the end of all processes")
        petri.run("--", "true").ok()
        assert not leaks.left()
        return
    nothing_left(petri, leaks, flags)


SIGNALS = sorted(s for s in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP} if s < 32)


@pytest.mark.parametrize("sig", SIGNALS, ids=lambda s: signal.Signals(s).name)
def test_other_signals(petri, sig):
    """At three moments of the start and one of the run: petri ends soon, or lives until the command
    is over (stop signals are followed by CONT)."""
    leaks = Leaks(deep=True)
    for delay in (0.0, 0.004, 0.012, 0.1):
        p = petri.start("--", "sleep", "0.3", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay * SLOW)
        p.send_signal(sig)
        if sig in (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
            time.sleep(0.05)
            p.send_signal(signal.SIGCONT)
        p.wait(15)
    nothing_left(petri, leaks, signal.Signals(sig).name)


def test_whole_process_group_killed(petri):
    """What a terminal or a CI system does: SIGKILL to the group."""
    leaks = Leaks(deep=True)
    for delay in (0.0, 0.005, 0.01, 0.02, 0.1):
        p = petri.start("--", "sleep", "300", start_new_session=True)
        time.sleep(delay * SLOW)
        os.killpg(p.pid, signal.SIGKILL)
        p.communicate(timeout=10)
    nothing_left(petri, leaks, "group")


def settled(pid):
    """The processes below a petri that has started its command: those that only helped with it are gone,
    the command's own child is there."""
    def look():
        found = descendants(pid)
        return ("sleep (S)" in found.values() and not any("(Z)" in n for n in found.values()) and
                found.keys() == descendants(pid).keys() and found)
    return wait_for(look, what="a sandbox at rest")


def goes_on(p, victim, name):
    """Of its network's processes one is replaced and one is not; the command lives on, petri ends with all."""
    def another():
        return any(n.startswith("petri-gateway") and pid != victim for pid, n in descendants(p.pid).items())
    wait_for(another, what=f"a gateway after the death of '{name}'")
    assert p.poll() is None
    p.kill()


@pytest.mark.parametrize("policy", ["none", "limited"])
def test_any_process_of_petri_killed(petri, policy):
    """Each process of a running sandbox in turn, petri's own helpers and PID 1 included: all ends."""
    leaks = Leaks(deep=True)
    index, tried = 0, 0
    while True:
        p = petri.start("--network", policy, "--", "sh", "-c", "echo ready; sleep 300; exit 1")
        assert p.stdout.readline() == b"ready\n"
        found = settled(p.pid)
        if index >= len(found):
            p.kill()
            p.communicate()
            break
        victim, name = sorted(found.items())[index]
        os.kill(victim, signal.SIGKILL)
        if name.startswith(("petri-gateway", "petri-agent")):
            goes_on(p, victim, name)
        try:
            p.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            p.kill()
            p.communicate()
            raise AssertionError(f"petri hangs after its process '{name}' was killed")
        assert p.returncode != 0, name
        tried += 1
        index += 1
    assert tried >= (2 if policy == "none" else 4)
    nothing_left(petri, leaks, "helpers")


def test_killed_while_the_output_is_full(petri):
    leaks = Leaks(deep=True)
    p = petri.start("--max-output", "1T", "--", "yes")
    time.sleep(0.3)
    p.kill()
    p.communicate()
    nothing_left(petri, leaks, "full pipe")


def test_killed_while_stopped_inside(petri):
    """Stopped processes die too."""
    leaks = Leaks(deep=True)
    p = petri.start("--", "sh", "-c", "sh -c 'kill -STOP $$' & echo ready; sleep 300")
    assert p.stdout.readline() == b"ready\n"
    p.kill()
    p.communicate()
    nothing_left(petri, leaks, "stopped")


def test_concurrent_runs_survive_a_sweep(petri):
    """The sweep after a crash takes only what is dead."""
    live = petri.start("--", "sh", "-c", "echo x >new; echo ready; read x; cat new", stdin=subprocess.PIPE)
    assert live.stdout.readline() == b"ready\n"
    for _ in range(5):
        p = petri.start("--", "sleep", "300")
        time.sleep(0.02)
        p.kill()
        p.communicate()
        petri.run("--", "true").ok()
    out, err = live.communicate(b"\n", timeout=10)
    assert (live.returncode, out) == (0, b"x\n"), err


def test_killed_while_it_would_be_kept(petri):
    """What it wrote has no sandbox to belong to, and goes with the next command."""
    petri.own_store(kept=True)
    p = petri.start("--keep", "--", "sh", "-c", "head -c 4M /dev/zero >big; echo up; sleep 300", stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL)
    assert p.stdout.readline() == b"up\n"
    p.kill()
    p.wait()
    p.stdout.close()
    changes = os.path.join(petri.store, "changes")
    assert os.listdir(changes)

    def gone():
        petri.run("--", "true").ok()
        return not os.listdir(changes)
    wait_for(gone, what="its layers to go")


def test_a_stopped_launcher_dies_too(petri):
    """It is asked to die with its parent, and acting as somebody else on the way does not make it forget."""
    p = petri.start("--", "sh", "-c", "echo up; sleep 300", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert p.stdout.readline() == b"up\n"
    stat = [open(f"/proc/{x}/stat", encoding="utf-8", errors="replace").read().split() for x in descendants(p.pid)]
    (launcher,) = [int(x[0]) for x in stat if x[3] == str(p.pid) and "gateway" not in x[1]]
    os.kill(launcher, signal.SIGSTOP)
    p.kill()
    p.wait()
    p.stdout.close()
    wait_for(lambda: not os.path.exists(f"/proc/{launcher}") or launcher not in descendants(), what="its end")
