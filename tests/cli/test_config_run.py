"""What is configured, seen from inside a sandbox: every key is flipped and makes a difference, or is refused with
what is missing."""
import json
import os
import socket

import pytest

import helpers
from life import life, one_line  # noqa: F401
from test_config import BLOCK, config, schema_keys, user_file



def box(**keys):
    """{"resources.memory": "1G"} as a file's text."""
    top = {}
    for name, value in keys.items():
        at = top
        *groups, last = name.split(".")
        for g in groups:
            at = at.setdefault(g, {})
        at[last] = value
    return json.dumps({"sandbox": top})


def use(petri, key, value):
    user_file(petri, box(**{key: value}))


def limit(key, value, name, want):
    """The limit itself; where nobody can set limits, that it was asked for."""
    def look(petri, life):
        use(petri, key, value)
        r = petri.run("--json", "--", "true")
        if name in ("disk", "pids") or helpers.CAN_LIMIT:
            assert r.ok().json["limits"][name]["value"] == want, r
        else:
            r.ok(125)
            assert petri.run("--json", "--", "true", env={"HOME": petri.base}).ok()
    return look


def seen(key, value, script, want):
    """What a script prints, without and with the value."""
    def look(petri, life):
        before = petri.sh(script).ok().out
        use(petri, key, value)
        after = petri.sh(script).ok().out
        assert before != after and after == want, (before, after)
    return look


def live(key, value, pick, want):
    """What the state of a running sandbox says."""
    def look(petri, life):
        use(petri, key, value)
        life.start("-q")
        assert pick(life.status()) == want
    return look


def refused(key, value, message):
    def look(petri, life):
        use(petri, key, value)
        for sub, words in (("run", ("--", "true")), ("start", ())):
            r = petri.run(*words, sub=sub)
            assert r.rc in (125, 1) and message in r.talk, r
        assert petri.run("-q", sub="ls").ok().out == ""
    return look


def enabled(petri, life):
    use(petri, "enabled", False)
    r = petri.sh("echo $SANDBOX_ID").ok()
    assert r.out.strip() and "only concerns petri tool" in r.talk
    r = petri.run("bash", "--", "sh", "-c", "echo in $SANDBOX_ID", sub="tool").ok()
    assert r.out == "in\n" and "runs on the host" in r.talk
    use(petri, "enabled", True)
    r = petri.run("bash", "--", "sh", "-c", "echo in $SANDBOX_ID", sub="tool").ok()
    assert r.out.split()[1:] and "host" not in r.talk


def profile(petri, life):
    use(petri, "profile", "untrusted")
    if not helpers.CAN_LIMIT:
        petri.sh("true").ok(125)
        return
    r = petri.sh("touch x 2>/dev/null || echo refused; touch /tmp/x && echo fine").ok()
    assert r.out == "refused\nfine\n" and "network none" in r.talk


def timeout(petri, life):
    use(petri, "resources.timeout", "1s")
    petri.sh("sleep 300").ok(124)


def output(petri, life):
    use(petri, "resources.output", "1K")
    assert len(petri.sh("head -c 5000 /dev/zero | tr '\\0' x").out.splitlines()[0]) == 1024


def publish(petri, life):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    use(petri, "network.publish", [f"{port}:80"])
    life.start()
    assert life.status()["network"]["rules"]["publish"][0]["host_port"] == port


def bind(petri, life):
    petri.sh("echo x >made").ok()
    assert not os.path.exists(os.path.join(petri.project, "made"))
    use(petri, "mounts.workspace_mode", "bind")
    petri.sh("echo x >made").ok()
    assert os.path.exists(os.path.join(petri.project, "made"))


def caches(petri, life):
    """What one sandbox fetched and a person saved is there in the next; without the key nobody has it."""
    use(petri, "mounts.persist_caches", True)
    life.start()
    life.sh("echo fetched >~/.cache/pip/f").ok()
    life("cache", "save").ok()
    assert petri.sh("cat ~/.cache/pip/f").ok().out == "fetched\n"
    use(petri, "mounts.persist_caches", False)
    assert petri.sh("ls -A ~ /var/cache").ok().out.split() == [petri.sh("echo ~").out.strip() + ":", "/var/cache:"]
    life.start("off")
    assert life.sh("ls ~/.cache/pip", box="off").rc
    life.sh("mkdir -p ~/.cache/pip; echo x >~/.cache/pip/mine", box="off").ok()
    assert life("cache", "save", "off").ok().out == "it has written to no caches\n"


def hide(petri, life):
    petri.file(".env", "secret")
    petri.sh("cat .env").ok()
    use(petri, "mounts.hide", [".env"])
    assert petri.sh("cat .env").rc


def extra(petri, life):
    helpers.write(os.path.join(petri.base, "data", "f"), "there")
    use(petri, "mounts.extra", [os.path.join(petri.base, "data") + ":/data:ro"])
    assert petri.sh("cat /data/f").ok().out == "there"


def bypass(petri, life):
    user_file(petri, box(**{"enabled": True, "bypass_tools": ["todoread"]}))
    r = petri.run("todoread", "--", "sh", "-c", "echo in $SANDBOX_ID", sub="tool").ok()
    assert r.out == "in\n" and "bypass_tools" in r.talk
    assert petri.run("bash", "--", "sh", "-c", "echo in $SANDBOX_ID", sub="tool").ok().out != "in\n"


def total(petri, life):
    use(petri, "limits.total.sandboxes", 1)
    life.start("one")
    r = life("start", "two")
    assert r.rc and "total" in r.talk, r


def locked(petri, life):
    user_file(petri, box(**{"network": "none", "locked": ["network"]}))
    r = petri.run("--network", "full", "--", "true").ok(125)
    assert "--network: sandbox.network.policy is locked by" in r.talk
    petri.run("--", "true").ok()


def promotion(petri, life):
    life.start()
    life.sh("echo x >made").ok()
    life("stop").ok()
    assert not os.path.exists(os.path.join(petri.project, "made"))
    use(petri, "promotion.auto", "on-stop")
    life.start()
    life("stop").ok()
    assert os.path.exists(os.path.join(petri.project, "made"))


def recorded(key, value, option):
    """The sandbox's record has it: what it does is tested where it is done."""
    def look(petri, life):
        use(petri, key, value)
        life.start()
        record = life("inspect").ok().json
        assert option in record["options"] + record.get("configured", []), record
    return look


KEYS = {
    "enabled": enabled,
    "runtime": refused("runtime", "docker", "sandbox runtime 'docker' is not available"),
    "image": refused("image", "wonopcode/sandbox:latest", "images can't be built yet"),
    "profile": profile,
    "resources.memory": limit("resources.memory", "64M", "memory", 64 << 20),
    "resources.cpus": limit("resources.cpus", 1.5, "cpus", 1.5),
    "resources.pids": limit("resources.pids", 99, "pids", 99),
    "resources.disk": limit("resources.disk", "64M", "disk", 64 << 20),
    "resources.timeout": timeout,
    "resources.output": output,
    "network.policy": live("network", "none", lambda s: s["network"]["policy"], "none"),
    "network.allow": live("network.allow", ["a.example"], lambda s: s["network"]["rules"]["allow"], ["a.example"]),
    "network.deny": live("network.deny", ["b.example"], lambda s: s["network"]["rules"]["deny"], ["b.example"]),
    "network.ports": live("network.ports", [443], lambda s: s["network"]["rules"]["ports"], [443]),
    "network.rate": live("network.rate", "1M", lambda s: s["network"]["rules"]["rate"], 1 << 20),
    "network.publish": publish,
    "mounts.workspace_writable": seen("mounts.workspace_writable", False,
                                      "touch x 2>/dev/null && echo yes || echo no", "no\n"),
    "mounts.workspace_path": seen("mounts.workspace_path", "/srv/app", "ls -d /workspace /srv/app 2>/dev/null; true",
                                  "/srv/app\n"),
    "mounts.workspace_mode": bind,
    "mounts.persist_caches": caches,
    "mounts.readonly": seen("mounts.readonly", ["README", "docs"], "(echo x >README) 2>/dev/null || echo no; "
                            "mkdir -p docs/x 2>/dev/null || echo no", "no\nno\n"),
    "mounts.hide": hide,
    "mounts.extra": extra,
    "bypass_tools": bypass,
    "keep_alive": live("keep_alive", False, lambda s: s["idle_timeout_ms"], 1000),
    "startup_timeout": recorded("startup_timeout", "50s", "startup-timeout=50s"),
    "idle_timeout": live("idle_timeout", 3600, lambda s: s["idle_timeout_ms"], 3600000),
    "max_lifetime": live("max_lifetime", "2h", lambda s: s["lifetime_ms"], 7200000),
    "limits.total.sandboxes": total,
    "limits.total.memory": recorded("limits.total.memory", "900G", "total-memory=900G"),
    "limits.total.disk": recorded("limits.total.disk", "900T", "total-disk=900T"),
    "env": seen("env", {"FOO": "a b"}, "echo $FOO", "a b\n"),
    "promotion.auto": promotion,
    "locked": locked,
}


@pytest.mark.parametrize("key", KEYS)
def test_key(petri, life, key):  # noqa: F811
    KEYS[key](petri, life)


def test_every_key_is_tested(petri):
    assert [n["x-petri"]["key"] for n in schema_keys(config(petri, "schema").ok().json)] == list(KEYS)


def test_block_word_for_word(petri):
    """Untrusted it tightens and the rest waits; trusted, its image is refused with the reason."""
    petri.file("petri.json", BLOCK)
    r = petri.sh("echo $SANDBOX_ID").ok()
    assert r.out.strip() and "image, bypass_tools" in r.talk and "petri config trust" in r.talk
    config(petri, "trust", "--yes").ok()
    r = petri.sh("true").ok(125)
    assert "images can't be built yet" in r.talk and "petri.json:1:53" in r.talk
    petri.file("petri.json", BLOCK.replace('"image":"wonopcode/sandbox:latest",', ""))
    config(petri, "trust", "--yes").ok()
    petri.sh("true").ok()


BAD = ["", "{", "[1", '{"sandbox":{"a":1,"a":2}}', '{"sandbox":"\0"}', '{"sandbox":"\\ud800"}', "[" * 1000000,
       '{"sandbox":{"resources":{"cpus":1e400}}}', box(**{"resources.memory": "2GB"}),
       box(**{"resources.memory": "1.5G"}), box(**{"resources.memory": "-1"}), box(**{"resources.memory": "abc"}),
       box(**{"resources.cpus": 0}), box(**{"env": {"A": "{file:/etc/shadow}"}}),
       '{"agent":{"../x":{"sandbox":{}}}}', '{"sandbox":{"enabeld":true}}']


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_bad_files(petri, text):
    path = petri.file("petri.json", text)
    for sub, words in (("run", ("--", "true")), ("start", ()), ("tool", ("x", "--", "true"))):
        r = petri.run(*words, sub=sub)
        assert r.rc == 125 and path + ":" in r.talk and not r.out, r
    assert petri.run("-q", sub="ls").ok().out == ""


def test_a_domain_that_is_none(petri):
    path = user_file(petri, box(**{"network.allow": ["a..b"]}))
    assert f"{path}:1:" in petri.sh("true").ok(125).talk


def test_a_place_that_is_the_systems(petri):
    path = user_file(petri, box(**{"mounts.workspace_path": "/usr/src"}))
    r = petri.sh("true").ok(125)
    assert f"{path}:1:" in r.talk and "--workspace-path '/usr/src'" in r.talk


def test_flags_win(petri):
    use(petri, "env", {"A": "1", "B": "2"})
    petri.file("petri.json", box(**{"network": "none"}))
    r = petri.sh("echo $A$B", "-e", "A=5", "--network", "limited").ok()
    assert r.out == "52\n" and "network limited" in r.talk


def policy(life, *name):  # noqa: F811
    return life.status(*name)["network"]["policy"]


def test_a_fork_asks_the_configuration_anew(petri, life):  # noqa: F811
    """What its source had from there is no flag that somebody gave."""
    data = helpers.write(os.path.join(petri.base, "data", "f"), "there")
    petri.file("petri.json", box(**{"network": "full", "mounts.extra": [os.path.dirname(data) + ":/data"],
                                    "promotion.auto": "on-stop"}))
    config(petri, "trust", "--yes").ok()
    life.start("-e", "FOO=given", "s")
    life.fork("--name", "b", "s")
    assert policy(life, "b") == "full" and life.out("cat /data/f; echo $FOO", box="b") == "theregiven\n"
    record = life("inspect", "b").ok().json
    assert "env=FOO=given" in record["options"] and set(record["configured"]) <= set(record["options"])
    config(petri, "untrust").ok()
    life.fork("--name", "c", "s")
    for name in ("b", "c"):
        assert "mounts.extra" in life("restart", name).ok().talk
        assert policy(life, name) == "limited"
        assert life.out("cat /data/f; echo $FOO", box=name) == "given\n"
    petri.file("petri.json", box(network="none"))
    life("restart", "b").ok()
    assert policy(life, "b") == "none"


def test_locks_hold_for_recorded_flags(petri, life):  # noqa: F811
    life.start("--network", "full", "--no-keep-alive", "s")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    life.start("--network", "none", "-p", f"{port}:80", "tight")
    user = user_file(petri, box(**{"network": "none", "locked": ["network"]}))
    one_line(life("restart", "tight").ok(125), "--publish: sandbox.network.publish is locked by", "petri rm tight")
    life("fork", "tight").ok()  # it has no ports
    for sub in ("restart", "fork"):
        one_line(life(sub, "s").ok(125), "--network: sandbox.network.policy is locked by " + user, "'s'",
                 "petri restart --network VALUE s", "petri rm s")
    assert policy(life, "s") == "full"
    life("stop", "s").ok()
    for sub in ("start", "restart", "fork"):
        one_line(life(sub, "s").ok(125), "--network: sandbox.network.policy is locked by " + user)
    assert life.status("s")["state"] == "stopped" and len(life.ls()) == 3
    life("restart", "--network", "none", "s").ok()
    assert policy(life, "s") == "none"
    life("fork", "s").ok()
    life("stop", "s").ok()
    user_file(petri, box(**{"locked": ["keep_alive"]}))
    r = one_line(life("start", "s").ok(125), "--no-keep-alive: sandbox.keep_alive is locked by", "petri rm s")
    assert "petri restart" not in r.talk


def test_locks_hold_for_the_own_sandbox(petri, life):  # noqa: F811
    """Whatever starts it: exec and tool as well as start."""
    life.start("-e", "FOO=1")
    life("stop").ok()
    user_file(petri, box(enabled=True, locked=["env"]))
    one_line(life("start").ok(125), "--env: sandbox.env is locked by", "petri rm ")
    assert life.sh("true").rc
    assert "--env: sandbox.env is locked by" in tool(petri, "bash", "--", "true").ok(125).talk
    assert life.status()["state"] == "stopped"


def test_locks_hold_for_a_forks_flags(petri, life):  # noqa: F811
    user_file(petri, box(**{"limits.total.sandboxes": 1, "locked": ["limits"]}))
    life.start("s")
    one_line(life("fork", "--total-sandboxes", "9", "s").ok(125),
             "--total-sandboxes: sandbox.limits.total.sandboxes is locked by")
    r = life("fork", "--json", "--total-sandboxes", "9", "s").ok(125)
    assert "is locked by" in r.json["error"]["message"]
    assert life("fork", "s").rc and list(life.ls()) == ["s"]
    user_file(petri, "{")
    assert "config.json:1:" in life("fork", "s").ok(125).talk and list(life.ls()) == ["s"]


@pytest.mark.parametrize("lock", ["network", "network.allow"])
def test_locks_hold_for_rules_that_come_later(petri, life, lock):  # noqa: F811
    user_file(petri, box(**{"network.policy": "allowlist", "network.allow": ["a.example"], "locked": [lock]}))
    life.start("s")
    for running in (True, False):
        for rule in ("1.1.1.1", "*.com"):
            one_line(life("net", "allow", "-s", "s", "a.example", rule).ok(1),
                     "--allow-domain: sandbox.network.allow is locked by")
        life("net", "allow", "-s", "s", "a.example").ok()
        life("net", "deny", "-s", "s", "b.example" if running else "c.example").ok()
        if running:
            assert life.status("s")["network"]["rules"]["allow"] == ["a.example"]
            life("stop", "s").ok()
    life("start", "s").ok()
    rules = life.status("s")["network"]["rules"]
    assert rules["allow"] == ["a.example"] and rules["deny"] == ["b.example", "c.example"]


def test_a_file_of_variables_is_locked_as_they_are(petri, life):  # noqa: F811
    path = petri.file("vars", "FOO=1\n")
    assert petri.sh("echo $FOO", "--env-file", path).ok().out == "1\n"
    life.start("--env-file", path, "s")
    life("stop", "s").ok()
    user_file(petri, box(locked=["env"]))
    for sub, words in (("run", ("--", "true")), ("start", ())):
        r = one_line(petri.run("--env-file", path, *words, sub=sub).ok(125), "--env-file: sandbox.env is locked by")
    assert "petri rm" not in r.talk
    one_line(life("start", "s").ok(125), "--env-file: sandbox.env is locked by", "petri rm s")


def test_agents(petri):
    user_file(petri, json.dumps({"agent": {"explore": {"sandbox": {"workspace_writable": False}}}}))
    script = "touch x 2>/dev/null && echo yes || echo no"
    assert petri.sh(script).ok().out == "yes\n"
    assert petri.sh(script, "--agent", "explore").ok().out == "no\n"
    assert petri.sh(script, env={"PETRI_AGENT": "explore"}).ok().out == "no\n"
    r = petri.sh(script, "--agent", "nobody").ok()
    assert r.out == "yes\n" and "agent 'nobody' has no entry" in r.talk


def tool(petri, *words, **kw):
    return petri.run(*words, sub="tool", **kw)


def test_an_agents_sandbox_is_never_the_projects_own(petri, life):  # noqa: F811
    """Even as the first: whoever names no agent would get its network."""
    user_file(petri, json.dumps({"sandbox": {"enabled": True, "network": "none"},
                                 "agent": {"code": {"sandbox": {"network": "limited"}}}}))
    tool(petri, "--agent", "code", "bash", "--", "true").ok()
    r = tool(petri, "bash", "--", "sh", "-c", "echo $SANDBOX_NAME").ok()
    assert not r.out.startswith("code-") and len(life.ls()) == 2
    assert life.status()["network"]["policy"] == "none"
    names = list(life.ls())
    tool(petri, "--agent", "code", "bash", "--", "true").ok()
    assert list(life.ls()) == names


def test_enabled_false_is_said_by_all(petri, life):  # noqa: F811
    petri.file("petri.json", box(enabled=False))
    life.start()
    assert "only concerns" not in life.sh("true").ok().talk
    config(petri, "trust", "--yes").ok()
    sub = os.path.join(petri.project, "sub")
    os.mkdir(sub)
    for r in (life.sh("true", cwd=sub), life("fork"), life("exec", "-d", "--", "true")):
        assert "enabled: false (" in r.ok().talk and "only concerns petri tool" in r.talk, r
    assert "only concerns" not in life.sh("true", "-q").ok().talk
    assert "only concerns" not in life("fork", "--json").ok().talk


def test_tool_paths(petri, life):  # noqa: F811
    """Paths of the project mean the same on both sides, whatever the image and wherever it is seen inside."""
    user_file(petri, box(**{"enabled": True, "mounts.workspace_path": "/srv/app", "bypass_tools": ["host"]}))
    own = petri.file("f", "text")
    sub = os.path.dirname(petri.file("sub/g", "deep"))
    link = os.path.join(petri.base, "link")
    os.symlink(petri.project, link)
    for path in (own, "../f", "/srv/app/f", link + "/f"):
        assert tool(petri, "cat", "--", "cat", path, cwd=sub).ok().out == "text", path
    assert tool(petri, "pwd", "--", "pwd", cwd=sub).ok().out == sub + "\n"
    r = tool(petri, "grep", "--", "grep", "-l", "--file=" + link + "/f", own, cwd=sub).ok()
    assert r.out == own + "\n"
    for path in (own, "../f", "/srv/app/f", link + "/f"):
        assert tool(petri, "host", "--", "cat", path, cwd=sub).ok().out == "text", path
    assert tool(petri, "host", "--", "echo", "/srv/application", "a/srv/app/f", "--x=/srv/app/sub").ok().out == (
        f"/srv/application a/srv/app/f --x={sub}\n")


def test_bind_leaves_the_configuration_alone(petri, life):  # noqa: F811
    """What is written inside is written for good: all but what says how it may be written."""
    text = box(**{"network": "none", "mounts.workspace_mode": "bind", "mounts.hide": ["secret"]})
    petri.file("petri.json", text)
    petri.file("secret", "x")
    config(petri, "trust", "--yes").ok()
    life.start()
    script = ("echo new >f; echo {} >petri.json; rm -f petri.json; mv f petri.json; chmod 666 petri.json; "
              """echo '{"sandbox":{"network":"limited","mounts":{"workspace_writable":true}}}' >wonopcode.json; cat f""")
    assert "new" in life.sh(script).out
    assert helpers.read(os.path.join(petri.project, "petri.json")).decode() == text
    assert life("restart").ok()
    assert life.status()["network"]["policy"] == "none" and "x" not in life.sh("cat secret").out


def test_tool_output(petri, life):  # noqa: F811
    """What is configured cuts a tool's output too, also into a file; what nobody configured does not."""
    words = ("bash", "--", "head", "-c", "5000", "/dev/zero")
    assert len(tool(petri, *words).ok().outb) == 5000
    user_file(petri, box(**{"resources.output": "1K"}))
    r = tool(petri, *words).ok()
    assert r.outb.count(b"\0") == 1024 and "truncated after 1K" in r.out, r


def test_never_from_inside(petri, life):  # noqa: F811
    """A copy of the configuration that is changed inside has no effect."""
    petri.file("petri.json", box(**{"mounts.workspace_writable": True}))
    life.start()
    life.sh("echo '{\"sandbox\":{\"env\":{\"FOO\":\"inside\"}}}' >petri.json").ok()
    assert life.out("echo in$FOO") == "in\n"
    life("restart").ok()
    assert life.out("echo in$FOO") == "in\n"
    r = life("promote", "--yes")
    assert "petri.json" in r.out + r.talk + r.err
    assert b"FOO" not in helpers.read(os.path.join(petri.project, "petri.json"))
