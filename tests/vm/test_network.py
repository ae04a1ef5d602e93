"""Network namespaces, veth and TPROXY on the stock kernel, whose modules come when they are asked for. As root and user."""
import os
import subprocess

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))


def test_agent():
    r = subprocess.run([os.path.join(HERE, "unit-net_agent")], capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, r


@pytest.mark.parametrize("policy, said", [("none", "unreachable"), ("limited", "refused"), ("allowlist", "refused")])
def test_policy(policy, said, tmp_path):
    """A documentation address, a port that no policy has: answered at once, without a packet to the outside."""
    r = subprocess.run(["petri", "run", "--network", policy, "--", "bash", "-c", "exec 3<>/dev/tcp/203.0.113.9/22"],
                       cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert r.returncode == 1 and said in r.stderr, r
    assert ("denied 203.0.113.9:22" in r.stderr) == (policy != "none"), r


def test_full(tmp_path):
    r = subprocess.run(["petri", "run", "--network", "full", "--", "bash", "-c", "exec 3<>/dev/tcp/203.0.113.9/22"],
                       cwd=tmp_path, capture_output=True, text=True, timeout=120)
    # accepted by the gateway, which has no network to dial through and hangs up: never refused by a missing listener
    assert r.returncode == 0 or "reset by peer" in r.stderr, r
