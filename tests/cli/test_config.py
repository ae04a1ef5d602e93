"""petri config and petri init: values, origins, mistakes, trust, editing. What values do inside a sandbox is
in test_config_run.py."""
import json
import os
import pty
import subprocess

import pytest

import helpers

BLOCK = ('{"sandbox":{"enabled":true,"runtime":"auto","image":"wonopcode/sandbox:latest","resources":'
         '{"memory":"2G","cpus":2.0,"pids":256},"network":"limited","mounts":{"workspace_writable":true,'
         '"persist_caches":true},"bypass_tools":["todoread","todowrite"],"keep_alive":true}}')
DEFAULTS = {"enabled": False, "runtime": "auto", "keep_alive": True, "bypass_tools": [], "image": "host"}


def config(petri, *args, **kw):
    return petri.run(*args, sub="config", **kw)


def shown(petri, *args, **kw):
    return config(petri, "show", "--json", *args, **kw).ok().json


def user_file(petri, text):
    return helpers.write(os.path.join(petri.home, ".config/petri/config.json"), text)


def test_defaults(petri):
    box = shown(petri)["sandbox"]
    for key, value in DEFAULTS.items():
        assert box[key] == value, key
    assert box["resources"]["memory"] == "2G" and box["resources"]["cpus"] == 2.0
    assert box["resources"]["pids"] == 256
    assert box["network"]["policy"] == "limited"
    assert box["mounts"]["workspace_writable"] is True and box["mounts"]["persist_caches"] is True


def test_block_word_for_word(petri):
    petri.file("petri.json", BLOCK)
    r = shown(petri)
    assert r["sandbox"]["enabled"] is True
    assert r["waiting"] == ["image", "bypass_tools"]
    config(petri, "trust", "--yes").ok()
    r = shown(petri)
    assert r["waiting"] == [] and r["sandbox"]["image"] == "wonopcode/sandbox:latest"
    assert r["sandbox"]["bypass_tools"] == ["todoread", "todowrite"]
    config(petri, "untrust").ok()
    assert shown(petri)["waiting"]


def test_origin(petri):
    path = petri.file("petri.json", '{\n  "sandbox": {\n    "network": "none",\n  },\n}\n')
    user_file(petri, '{"sandbox":{"mounts":{"hide":["a"]}}}')
    box = shown(petri, "--origin", env={"PETRI_RESOURCES_PIDS": "99"})["sandbox"]
    assert box["network"]["policy"] == {"value": "none", "origin": f"{path}:3:16"}
    assert box["resources"]["pids"] == {"value": 99, "origin": "environment PETRI_RESOURCES_PIDS"}
    assert box["mounts"]["hide"]["origin"].endswith("/.config/petri/config.json:1:30")
    assert box["image"]["origin"] == "default"
    lines = config(petri, "show", "--origin").ok().out.splitlines()
    assert any(x.split() == ["network.policy", '"none"', f"{path}:3:16"] for x in lines)


def test_get(petri):
    petri.file("petri.json", '{"sandbox":{"mounts":{"hide":["a","b"]},"resources":{"memory":"1G"}}}')
    assert config(petri, "get", "resources.memory").ok().out == "1G\n"
    assert config(petri, "get", "sandbox.resources.memory").ok().out == "1G\n"
    assert config(petri, "get", "mounts.hide").ok().out == "a\nb\n"
    assert config(petri, "get", "--json", "mounts.hide").ok().json == ["a", "b"]
    assert config(petri, "get", "network").ok().out == "limited\n"
    r = config(petri, "get", "resources.memroy").ok(2)
    assert "did you mean 'resources.memory'?" in r.talk
    config(petri, "get").ok(2)
    config(petri, "get", "image", "x").ok(2)


def test_all_mistakes_at_once(petri):
    path = petri.file("petri.json", """{
  // three of them
  "sandbox": {
    "enabeld": true,
    "resources": { "memory": "2GB" },
    "network": "limted"
  }
}
""")
    for args in (["check"], ["show"], ["get", "image"], ["trust", "--yes"]):
        r = config(petri, *args).ok(1)
        assert r.talk.splitlines() == [
            f"petri: {path}:4:5: unknown key 'sandbox.enabeld' (did you mean 'sandbox.enabled'?)",
            f"petri: {path}:5:30: sandbox.resources.memory: '2GB' is not a size like \"512M\" or \"2G\"",
            f"petri: {path}:6:16: sandbox.network: 'limted' is not none, allowlist, limited or full",
        ]
    r = config(petri, "check", "petri.json", cwd=petri.project).ok(1)
    assert len(r.talk.splitlines()) == 3
    r = config(petri, "show", "--json").ok(1)
    assert r.json["error"]["code"] == "invalid" and len(r.json["error"]["mistakes"]) == 3


def test_check_a_file(petri):
    good = petri.file("some.jsonc", "{ // x\n \"sandbox\": {}, }\n")
    assert config(petri, "check", good).ok().out == f"ok {good}\n"
    assert config(petri, "check", "none.json").ok(1).talk
    assert "is a directory" in config(petri, "check", petri.project).ok(1).talk
    fifo = os.path.join(petri.base, "pipe")
    os.mkfifo(fifo)
    assert "plain file is wanted" in config(petri, "check", fifo).ok(1).talk
    # of an agent's own file only what is about sandboxes is looked at
    theirs = petri.file("x/wonopcode.json", '{"model": "m", "sandbox": {}}')
    config(petri, "check", theirs).ok()
    mine = petri.file("x/petri.json", '{"model": "m", "sandbox": {}}')
    assert "unknown key 'model'" in config(petri, "check", mine).ok(1).talk


@pytest.mark.parametrize("what", ["link", "directory", "fifo"])
def test_odd_project_files(petri, what):
    path = os.path.join(petri.project, "petri.json")
    os.unlink(path)
    if what == "link":
        os.symlink("/etc/passwd", path)
    elif what == "directory":
        os.mkdir(path)
    else:
        os.mkfifo(path)
    r = config(petri, "show").ok(1)
    assert path in r.talk and "plain file is wanted" in r.talk


def test_trust_is_in_the_content(petri):
    petri.file("petri.json", '{"sandbox":{"network":"full"}}')
    r = config(petri, "trust").ok(1)
    assert "network.policy = full" in r.out and "--yes" in r.talk
    config(petri, "trust", "--yes").ok()
    assert config(petri, "get", "network").ok().out == "full\n"
    assert "nothing here waits" in config(petri, "trust").ok().talk
    petri.file("petri.json", '{"sandbox":{"network":"full"} }')
    assert config(petri, "get", "network").ok().out == "limited\n"
    petri.file("petri.json", '{"sandbox":{"network":"full"}}')
    assert config(petri, "get", "network").ok().out == "full\n"
    # the same content elsewhere is another file
    other = os.path.join(petri.home, "other")
    helpers.write(os.path.join(other, "petri.json"), '{"sandbox":{"network":"full"}}')
    assert config(petri, "get", "network", cwd=other).ok().out == "limited\n"


def test_trust_shows_what_agents_get(petri):
    """What is trusted with a file is shown, whoever it is for."""
    petri.file("petri.json", json.dumps({"agent": {
        "code": {"sandbox": {"enabled": False, "network": "full"}}, "explore": {"sandbox": {"workspace_writable": False}}}}))
    r = config(petri, "trust").ok(1)
    assert "agent.code.sandbox.enabled = false" in r.out and "agent.code.sandbox.network.policy = full" in r.out
    assert "explore" not in r.out
    config(petri, "trust", "--yes").ok()
    assert config(petri, "get", "network", env={"PETRI_AGENT": "code"}).ok().out == "full\n"
    assert "nothing here waits" in config(petri, "trust").ok().talk


def test_trust_covers_what_is_included(petri):
    """A file that {file:} names says what the file that names it says."""
    petri.file("policy.txt", "full")
    petri.file("petri.json", '{"sandbox":{"network":"{file:policy.txt}"}}')
    config(petri, "trust", "--yes").ok()
    assert config(petri, "get", "network").ok().out == "full\n"
    for text in ("limited", "", None, "none"):
        if text is None:
            os.unlink(os.path.join(petri.project, "policy.txt"))
        else:
            petri.file("policy.txt", text)
        r = config(petri, "get", "network").ok()
        assert r.out == "limited\n" and "network" in config(petri, "trust").ok(1).out, r
    petri.file("policy.txt", "full")
    assert config(petri, "get", "network").ok().out == "full\n"


def test_rules_are_judged_with_the_file(petri):
    petri.file("petri.json", json.dumps({"sandbox": {
        "network": {"deny": ["*.*.com", "1.2.3.4/99", "fine.example"]}, "mounts": {"workspace_path": "/etc"}}}))
    for r in (config(petri, "check").ok(1), config(petri, "check", "petri.json").ok(1), petri.sh("echo ran").ok(125)):
        assert all(x in r.talk for x in ("*.*.com", "1.2.3.4/99", "workspace_path")), r
        assert "ran" not in r.out and "fine.example" not in r.talk


def test_a_projects_file_is_checked_as_one(petri):
    petri.file("petri.json", '{"sandbox":{"locked":["image"],"env":{"A":"{file:~/.bashrc}"}}}')
    assert config(petri, "check", "petri.json").ok(1).talk.count("petri.json:1:") == 2


def test_a_list_has_an_end(petri):
    petri.file("petri.json", json.dumps({"sandbox": {"network": {"deny": [f"h{i}.example" for i in range(50000)]}}}))
    assert "50000 entries; at most 1000" in config(petri, "check").ok(1).talk


def test_a_locked_profile_stays(petri):
    user_file(petri, '{"sandbox":{"profile":"untrusted","locked":["profile"]}}')
    for flags in (["--profile", "trusted"], ["--network", "full"], ["-m", "1G"]):
        r = petri.sh("echo ran", *flags).ok(125)
        assert "is locked by" in r.talk and "ran" not in r.out, r


@pytest.mark.parametrize("answer,rc", [("y", 0), ("n", 1), ("", 1)])
def test_trust_asks(petri, answer, rc):
    petri.file("petri.json", '{"sandbox":{"network":"full"}}')
    master, slave = pty.openpty()
    try:
        p = petri.start("trust", sub="config", stdin=slave, stdout=subprocess.PIPE, stderr=slave)
        os.write(master, answer.encode() + b"\n")
        out, _ = p.communicate(timeout=60)
        assert p.returncode == rc and b"network.policy = full" in out
    finally:
        os.close(slave)
        os.close(master)
    assert config(petri, "get", "network").ok().out == ("full\n" if rc == 0 else "limited\n")


def test_set_keeps_comments(petri):
    path = petri.file("petri.json", """{
  // ours
  "sandbox": {
    "image": "host", // as it is
    /* limits */
    "resources": { "memory": "1G" }
  },
}
""", 0o640)
    config(petri, "set", "resources.memory", "512M").ok()
    config(petri, "set", "resources.pids", "99").ok()
    config(petri, "set", "mounts.hide", ".env,*.pem").ok()
    config(petri, "set", "network", "none").ok()
    assert helpers.read(path).decode() == """{
  // ours
  "sandbox": {
    "image": "host", // as it is
    /* limits */
    "resources": { "memory": "512M", "pids": 99 },
    "mounts": { "hide": [".env","*.pem"] },
    "network": { "policy": "none" }
  },
}
"""
    assert os.stat(path).st_mode & 0o777 == 0o640
    config(petri, "check").ok()


def test_unset(petri):
    path = petri.file("petri.json", """{
  // ours
  "sandbox": {
    "image": "host", // as it is
    "resources": { "memory": "1G", "pids": 99 },
    "network": "none"
  },
}
""", 0o640)
    assert config(petri, "get", "resources.memory").ok().out == "1G\n"
    for key in ("resources.memory", "network", "resources.pids"):
        config(petri, "unset", key).ok()
    assert helpers.read(path).decode() == """{
  // ours
  "sandbox": {
    "image": "host" // as it is
  },
}
"""
    assert os.stat(path).st_mode & 0o777 == 0o640
    assert config(petri, "get", "resources.memory").ok().out == "2G\n"
    r = config(petri, "unset", "resources.memory").ok(1)
    assert "is not set in " + path in r.talk and "--origin" in r.talk
    config(petri, "set", "--user", "resources.pids", "99").ok()
    config(petri, "unset", "resources.pids").ok(1)
    config(petri, "unset", "--user", "resources.pids").ok()
    assert config(petri, "get", "resources.pids").ok().out == "256\n"
    config(petri, "unset").ok(2)
    assert "did you mean" in config(petri, "unset", "resources.memroy").ok(2).talk
    petri.file("petri.json", "{")
    assert ":1:1:" in config(petri, "unset", "image").ok(1).talk


def test_set_makes_the_file(petri):
    os.unlink(os.path.join(petri.project, "petri.json"))
    os.mkdir(os.path.join(petri.project, ".git"))
    config(petri, "set", "resources.memory", "1G").ok()
    config(petri, "set", "--user", "resources.pids", "128").ok()
    config(petri, "set", "--user", "locked", '["network"]').ok()
    assert config(petri, "get", "resources.memory").ok().out == "1G\n"
    assert config(petri, "get", "resources.pids").ok().out == "128\n"
    assert config(petri, "get", "locked").ok().out == "network\n"
    assert os.path.exists(os.path.join(petri.home, ".config/petri/config.json"))


def test_set_refuses(petri):
    path = os.path.join(petri.project, "petri.json")
    before = helpers.read(path)
    assert "is not a size" in config(petri, "set", "resources.memory", "2GB").ok(1).talk
    assert "--user" in config(petri, "set", "locked", "image").ok(1).talk
    config(petri, "set", "resources.memory").ok(2)
    config(petri, "set", "nothing", "x").ok(2)
    config(petri, "set", "--user", "--project", "image", "x").ok(2)
    assert helpers.read(path) == before
    petri.file("petri.json", "{")
    assert "1:1: not JSON" in config(petri, "set", "image", "x").ok(1).talk
    assert helpers.read(path) == b"{"


def test_agents(petri):
    user_file(petri, json.dumps({"sandbox": {"enabled": True}, "agent": {
        "code": {"sandbox": {"network": "full", "resources": {"memory": "4G"}}},
        "explore": {"sandbox": {"workspace_writable": False}},
        "trusted": {"sandbox": {"enabled": False}}}}))
    code = shown(petri, "--agent", "code")["sandbox"]
    assert code["network"]["policy"] == "full" and code["resources"]["memory"] == "4G"
    explore = shown(petri, env={"PETRI_AGENT": "explore"})["sandbox"]
    assert explore["mounts"]["workspace_writable"] is False and explore["enabled"] is True
    assert shown(petri, "--agent", "trusted")["sandbox"]["enabled"] is False
    r = config(petri, "show", "--agent", "nobody").ok()
    assert "agent 'nobody' has no entry" in r.talk
    assert "--agent '../x'" in config(petri, "show", "--agent", "../x").ok(1).talk


def test_profiles(petri):
    box = shown(petri, "--profile", "untrusted")["sandbox"]
    assert box["network"]["policy"] == "none" and box["mounts"]["workspace_writable"] is False
    assert shown(petri, "--profile", "user")["sandbox"]["network"]["policy"] == "allowlist"
    assert shown(petri, "--profile", "trusted")["sandbox"]["network"]["policy"] == "full"
    assert "untrusted, user or trusted" in config(petri, "show", "--profile", "x").ok(1).talk


def test_locks(petri):
    user_file(petri, '{"sandbox":{"network":"limited","locked":["network"]}}')
    petri.file("petri.json", '{"sandbox":{"network":"full","resources":{"memory":"1G"}}}')
    config(petri, "trust", "--yes").ok()
    r = shown(petri)
    assert r["sandbox"]["network"]["policy"] == "limited" and len(r["locked"]) == 1
    r = config(petri, "show", env={"PETRI_NETWORK": "full"}).ok(1)
    assert "PETRI_NETWORK: network.policy is locked by" in r.talk
    config(petri, "show", env={"PETRI_NETWORK": "none"}).ok()


def schema_keys(schema):
    found = []

    def walk(node):
        if "x-petri" in node:
            found.append(node)
            return
        for alternative in node.get("anyOf", []):
            walk(alternative)
        for below in node.get("properties", {}).values():
            walk(below)
    walk(schema["properties"]["sandbox"])
    return found


def test_schema(petri):
    schema = config(petri, "schema").ok().json
    keys = {n["x-petri"]["key"]: n for n in schema_keys(schema)}
    assert len(keys) > 30
    # every default is right where it came from
    for key, node in keys.items():
        if node["default"] not in (None, [], {}) and key != "locked":
            value = node["default"]
            text = value if isinstance(value, str) else json.dumps(value)
            petri.file("petri.json", "{}")
            config(petri, "set", key, text).ok()
            config(petri, "check").ok()


def test_documented(petri):
    """docs/config.md has a row for every key, made of the same table."""
    doc = os.path.join(os.path.dirname(os.path.dirname(helpers.HERE)), "docs", "config.md")
    lines = set(helpers.read(doc).decode().splitlines())
    for node in schema_keys(config(petri, "schema").ok().json):
        x, default = node["x-petri"], node["default"]
        kind = x["type"] + (": " + ", ".join(f"`{w}`" for w in x["words"].split("|"))
                            if x.get("words") else "")
        shown_default = "" if default in (None, [], {}) else \
            f"`{default if isinstance(default, str) else json.dumps(default)}`"
        row = f"| `{x['key']}` | {kind} | {shown_default} | {x['trust']} | {node['description']} |"
        assert row in lines, row


def test_init(petri):
    path = os.path.join(petri.project, "petri.json")
    assert "is there already" in petri.run(sub="init").ok(1).talk
    os.unlink(path)
    os.mkdir(os.path.join(petri.project, ".git"))
    petri.file("package.json", "{}")
    petri.file("server.pem", "x")
    printed = petri.run("--print", sub="init").ok().out
    assert not os.path.exists(path)
    petri.run(sub="init").ok()
    text = helpers.read(path).decode()
    assert text == printed and "JavaScript" in text
    r = shown(petri)
    assert r["waiting"] == [] and r["sandbox"]["enabled"] is True
    assert r["sandbox"]["mounts"]["hide"] == [".env", "*.pem"]
    petri.run("x", sub="init").ok(2)
