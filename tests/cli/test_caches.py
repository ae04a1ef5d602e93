"""Caches of package managers: a project's sandboxes share a base that none of them can change, and a person says what
goes into it."""
import json
import os
import random
import shutil
import signal
import subprocess
import time

import pytest

import helpers
from helpers import tree
from life import life  # noqa: F401
from test_config_run import box
from test_config import user_file
from test_image import Tar, add_programs

AT = "/var/cache/petri"
KILLS = int(os.environ.get("PETRI_TEST_KILLS", "200" if os.environ.get("PETRI_SOAK") else "12"))


def fetch(life, text, path="pip/wheels/p/package", box=None):
    """What a tool does in a sandbox: through the home, as it always does."""
    assert path.startswith("pip/")
    life.sh(f"d=~/.cache/$(dirname {path}); mkdir -p $d && printf %s '{text}' >~/.cache/{path}", box=box).ok()


def has(life, path="pip/wheels/p/package", box=None):
    return life.sh(f"cat ~/.cache/{path} 2>/dev/null", box=box).out


def run_has(petri, *flags, path="pip/wheels/p/package", **kw):
    return petri.sh(f"cat ~/.cache/{path} 2>/dev/null", *flags, **kw).out


def bases(life):
    real = os.path.realpath(life.project)
    return [b for b in life("cache", "ls", "--json").ok().json if b["project"] == real]


def generation(life):
    """The directory of the current one."""
    (b,) = bases(life)
    return os.path.join(life.petri.store, "caches", b["key"], f"gen-{b['generation']}")


def generations(life):
    (b,) = bases(life)
    return [n for n in os.listdir(os.path.join(life.petri.store, "caches", b["key"])) if n.startswith("gen-")]


def cleaned(life):
    """Only the current generation is left: what used another one may still be on its way out."""
    helpers.wait_for(lambda: life("prune", "-f").ok() and len(generations(life)) == 1, what="one generation")


def save(life, *words):
    return life("cache", "save", "--json", *words).ok().json


def test_nobody_sees_it_until_it_is_saved(petri, life):
    """A poisoned package stays where it is, whoever started before or after."""
    for name in ("a", "before"):
        life.start(name)
    fetch(life, "poison", box="a")
    life.start("after")
    assert has(life, box="a") == "poison"
    assert has(life, box="before") == has(life, box="after") == run_has(petri) == ""
    assert not run_has(petri, "--keep", "--name", "kept")
    life("rm", "kept").ok()
    assert save(life, "a")["added"] == 1
    # who runs keeps what it began with; all that start have it
    assert has(life, box="before") == has(life, box="after") == ""
    assert run_has(petri) == run_has(petri, "--keep", "--name", "kept") == "poison"
    life("restart", "before").ok()
    assert has(life, box="before") == "poison"
    life.start("new")
    assert has(life, box="new") == "poison" and has(life, box="a") == "poison"


def test_others_never_see_it(petri, life):
    life.start()
    fetch(life, "mine")
    assert save(life)["saved"]
    assert run_has(petri) == "mine"
    other = os.path.join(petri.home, "other")
    helpers.write(os.path.join(other, "petri.json"), "{}")
    assert run_has(petri, "--workspace", other, cwd=other) == ""
    if helpers.MODE != "single":
        assert run_has(petri, "-u", "5") == ""
    assert run_has(petri, "--caches", "off") == run_has(petri, "--profile", "user", "--caches", "off") == ""
    if helpers.CAN_LIMIT:
        assert run_has(petri, "--profile", "untrusted") == ""


HOSTILE = f"""
cd {AT}; rm -rf pip/wheels/p/second; echo changed >pip/wheels/p/package; mv pip/wheels npm; chmod -R 777 .
touch -d @1 npm/wheels/p/package pip; ln npm/wheels/p/package npm/hard; truncate -s 0 npm/hard; mkdir -p new/dir
ln -sf /etc/passwd npm/wheels/p/package; for d in *; do rm -rf $d; done; echo x >x
chown -R 1:1 . 2>/dev/null; mknod dev c 1 3 2>/dev/null; ls
"""


@pytest.mark.parametrize("user", [None, pytest.param("0", marks=pytest.mark.ranges)])
def test_a_sandbox_cannot_change_the_base(petri, life, user):
    flags = ("-u", user) if user else ()
    life.start(*flags)
    fetch(life, "good")
    fetch(life, "second", "pip/wheels/p/second")
    assert save(life)["added"] == 2
    top = os.path.dirname(generation(life))
    before = tree(top)
    petri.sh(HOSTILE, *flags)
    life.start(*flags, "b")
    life.sh(HOSTILE, box="b")
    life("rm", "-f", "b").ok()
    assert tree(top) == before
    assert run_has(petri, *flags) == "good"


def test_a_run_throws_its_own_away(petri, life):
    life.start()
    fetch(life, "base")
    save(life)
    out = petri.sh("echo new >~/.cache/pip/wheels/p/package; echo x >~/.cache/pip/y; cat ~/.cache/pip/wheels/p/package").ok().out
    assert out == "new\n"
    assert petri.sh("cat ~/.cache/pip/wheels/p/package; cat ~/.cache/pip/y").out == "base"


def test_without_a_base_a_run_has_nothing_of_it(petri):
    r = petri.sh(f"ls {AT} ~/.cache ~/.npm; true").ok()
    assert r.out == "" and r.err.count("No such file") == 3
    assert not os.path.exists(os.path.join(petri.store, "caches")) or not any(
        b["project"] == os.path.realpath(petri.project) for b in petri.run("ls", "--json", sub="cache").ok().json)


def test_a_kept_run(petri, life):
    petri.sh("mkdir -p ~/.cache/pip/d; echo x >~/.cache/pip/d/f", "--keep", "--name", "kept").ok()
    assert save(life, "kept")["added"] == 1
    assert run_has(petri, path="pip/d/f") == "x\n"
    life("rm", "kept").ok()
    assert run_has(petri, path="pip/d/f") == "x\n"


def test_fork_snapshot_rollback(petri, life):
    life.start()
    fetch(life, "one")
    snap = life.snap()
    fetch(life, "two")
    (fork,) = life.fork()
    assert has(life, box=fork) == "two"
    life("rollback", snap).ok()
    assert has(life) == "one"
    assert save(life, fork)["saved"]
    assert run_has(petri) == "two" and has(life) == "one"
    assert not save(life)["saved"] and run_has(petri) == "two"  # its layer went along with the fork's
    life("refresh").ok()
    life("restart").ok()
    assert has(life) == "one"  # its own copy, whatever the base has


def test_removed_inside(petri, life):
    life.start()
    fetch(life, "x")
    fetch(life, "y", "pip/wheels/p/stays")
    save(life)
    life("restart").ok()
    life.sh("rm ~/.cache/pip/wheels/p/package").ok()
    assert save(life)["removed"] == 1
    assert run_has(petri) == "" and run_has(petri, path="pip/wheels/p/stays") == "y"


def test_saved_twice(life):
    life.start()
    assert life("cache", "save").ok().out == "it has written to no caches\n"
    fetch(life, "x")
    assert save(life)["saved"]
    one = generation(life)
    assert not save(life)["saved"] and generation(life) == one
    fetch(life, "other text")
    assert save(life)["added"] == 1 and generation(life) != one
    life("stop").ok()
    assert not save(life)["saved"]


def test_stopped_and_at_work(life):
    life.start()
    p = life.begin("exec", "--", "sh", "-c", "echo half >~/.cache/pip/f; echo up; sleep 300")
    assert p.stdout.readline() == b"up\n"
    r = life("cache", "save")
    assert r.rc == 1 and "processes run in the sandbox" in r.talk and "petri stop" in r.talk, r
    life("stop").ok()
    assert save(life)["added"] == 1


def test_promote_saves(petri, life):
    life.start()
    fetch(life, "x")
    life.sh("echo new >made").ok()
    life("promote", "--dry-run").ok()
    assert run_has(petri) == ""
    r = life("promote", "--yes", "--json").ok()
    assert r.json["state"] == "applied" and "caches: 1 files" in r.talk
    assert run_has(petri) == "x"
    fetch(life, "later")
    assert life("promote", "--yes").rc == 1  # nothing to promote
    assert run_has(petri) == "x"


def test_promote_from_one_at_work(petri, life):
    life.start()
    p = life.begin("exec", "--", "sh", "-c", "echo x >~/.cache/pip/f; echo new >made; echo up; sleep 300")
    assert p.stdout.readline() == b"up\n"
    r = life("promote", "--yes").ok()
    assert "its caches were not saved" in r.talk and "petri cache save" in r.talk
    assert os.path.exists(os.path.join(petri.project, "made")) and run_has(petri, path="pip/f") == ""


def test_a_promotion_that_nobody_asked_for_saves_nothing(petri, life):
    user_file(petri, box(**{"promotion.auto": "on-stop"}))
    life.start()
    fetch(life, "x")
    life.sh("echo new >made").ok()
    life("stop").ok()
    assert os.path.exists(os.path.join(petri.project, "made")) and run_has(petri) == ""


def test_switched_off(petri, life):
    user_file(petri, box(**{"mounts.persist_caches": False}))
    life.start()
    life.sh("mkdir -p ~/.cache/pip; echo x >~/.cache/pip/f").ok()
    assert life.sh(f"ls {AT}").rc and life("cache", "save").ok().out == "it has written to no caches\n"
    assert not bases(life)
    r = petri.sh("true", "--caches", "maybe").ok(125)
    assert "--caches 'maybe': on or off" in r.talk


def test_what_comes_out_is_tame(petri, life):
    life.start()
    life.sh(f"""cd {AT}/pip; echo x >suid; chmod 6755 suid; mkfifo fifo; ln -s /etc/passwd abs; ln -s ../../../../etc up
        ln -s suid good; ln -s loop loop; ln suid hard; mkdir -m 1777 d; chmod 000 d; printf y >"$(printf 'a\\nb\\033[31m')"
        mkdir ../strange; echo z >../strange/f; mknod null c 1 3 || true""").ok()
    r = save(life)
    assert r["left_out"] >= 4, r
    out = petri.sh("cd ~/.cache/pip; stat -c '%n %a %F' suid hard good loop d; ls abs up fifo null ../../strange 2>/dev/null; ls | wc -l",
                   ).ok(0).out.splitlines()
    assert out[:5] == ["suid 755 regular file", "hard 755 regular file", "good 777 symbolic link", "loop 777 symbolic link",
                       "d 755 directory"], out
    assert out[5:] == ["7"], out  # with the line break in a name
    top = generation(life)
    assert all(not os.path.islink(p) or not os.readlink(p).startswith(("/", "../../..")) for p in
               (os.path.join(d, n) for d, dirs, files in os.walk(top) for n in dirs + files))


def test_limits(petri, life):
    life.start()
    life.sh("truncate -s 1T ~/.cache/pip/huge; echo x >~/.cache/pip/f").ok()
    r = life("cache", "save")
    assert r.rc == 1 and "more than 10G" in r.talk and "--max" in r.talk
    assert run_has(petri, path="pip/f") == "" and len(generations(life)) == 1
    life.sh("rm ~/.cache/pip/huge").ok()
    assert life("cache", "save", "--max", "1").rc == 1
    assert life("cache", "save", "--max", "x").rc == 2
    assert save(life, "--max", "1M")["added"] == 1


def test_saves_at_the_same_time(petri, life):
    names = [f"s{i}" for i in range(5)]
    for n in names:
        life.start(n)
        fetch(life, n, f"pip/wheels/{n}", box=n)
    started = [life.begin("cache", "save", "--json", n) for n in names]
    for p in started:
        out, err = p.communicate(timeout=60)
        assert p.returncode == 0, err
    for n in names:
        assert run_has(petri, path=f"pip/wheels/{n}") == n
    life("rm", "-f", *names).ok()
    cleaned(life)


def test_killed_in_the_middle(petri, life):
    """The base is the old one or the new one, and the next save works."""
    rnd = random.Random(os.environ.get("PETRI_TEST_SEED"))
    life.start()
    life.sh("cd ~/.cache/pip; mkdir all; i=0; while [ $i -lt 1500 ]; do i=$((i+1)); echo $i >all/$i; done").ok()
    life("stop").ok()
    at = time.monotonic()
    life.start("timed")
    life.sh("cp -r ~/.cache/pip ~/.cache/pip/other; mkdir -p ~/.cache/pip/all2; cp /etc/passwd ~/.cache/pip/all2", box="timed").ok()
    life("stop", "timed").ok()
    save(life, "timed")
    took = time.monotonic() - at
    life("cache", "rm").ok()
    done = 0
    for _ in range(KILLS):
        p = life.begin("cache", "save", stderr=subprocess.DEVNULL)
        time.sleep(rnd.uniform(0, took / 4))
        p.kill()
        p.wait()
        n = petri.sh("ls ~/.cache/pip/all 2>/dev/null | wc -l").ok().out.strip()
        assert n in ("0", "1500"), n
        if n == "1500":
            done += 1
            life("cache", "rm").ok()
        life.whole()
    assert life("cache", "save").ok()
    assert petri.sh("cat ~/.cache/pip/all/1500").ok().out == "1500\n"
    cleaned(life)
    life("fsck").ok()


def test_a_generation_in_use_stays(petri, life):
    life.start()
    fetch(life, "x")
    save(life)
    life.start("user")
    old = generation(life)
    fetch(life, "other text")
    save(life)
    assert os.path.isdir(old) and has(life, box="user") == "x"
    life("cache", "rm").ok()
    assert os.path.isdir(old) and has(life, box="user") == "x" and run_has(petri) == ""
    life("fsck").ok()
    # its snapshot builds the walls again, over the same
    life.sh("echo y >f", box="user").ok()
    life.snap("user")
    assert has(life, box="user") == "x"
    os.kill(life.keeper("user"), signal.SIGKILL)
    life.stopped("user")
    life("prune", "-f").ok()
    helpers.wait_for(lambda: life("prune", "-f").ok() and not os.path.exists(old), what="its end")


def test_rm_and_ls(petri, life):
    life.start()
    fetch(life, "x")
    save(life)
    (b,) = bases(life)
    assert b["files"] == 3 and b["bytes"] == 1 and b["generation"] == 2 and b["image"] == "host"
    assert f"{b['key']}  {os.path.realpath(petri.project)}  host" in life("cache", "ls").ok().out
    for word in ("nothing", "../caches", ".", ".gone-x"):
        r = life("cache", "rm", word)
        assert r.rc == 1 and "petri cache ls lists them" in r.talk
    life("rm", "-f", "proj-1").ok()
    assert life("cache", "rm", "--json").ok().json == {"removed": [b["key"]]}
    assert not bases(life) and not os.path.exists(os.path.join(petri.store, "caches", b["key"]))
    assert life("cache", "rm").ok().out == "0 removed\n"
    life.start()
    assert has(life) == ""


def test_prune_forgets_projects_that_are_gone(petri, life):
    other = os.path.join(petri.home, "other")
    helpers.write(os.path.join(other, "petri.json"), "{}")
    life("start", "-q", "x", cwd=other).ok()
    life.sh("echo x >~/.cache/pip/f", box="x").ok()
    save(life, "x")
    life("rm", "-f", "x").ok()
    life("prune", "-f").ok()
    assert run_has(petri, path="pip/f", cwd=other) == "x\n"
    shutil.rmtree(other)
    life("prune", "-f").ok()
    assert not [b for b in life("cache", "ls", "--json").ok().json if b["project"] == os.path.realpath(other)]


def test_fsck(petri, life):
    life.start()
    fetch(life, "x")
    save(life)
    life("rm", "-f", "proj-1").ok()
    cleaned(life)
    top = os.path.dirname(generation(life))
    os.mkdir(os.path.join(top, "gen-77"))
    r = life("fsck", "--json")
    assert r.rc == 1 and [p["path"] for p in r.json["problems"]] == [os.path.join(top, "gen-77")], r
    life("fsck", "--repair").ok()
    assert not os.path.exists(os.path.join(top, "gen-77")) and run_has(petri) == "x"


def test_an_image(petri, life):
    """Another base than the machine's own; the links are none of its changes, and what an image has stays."""
    tar = Tar()
    add_programs(tar, "sh", "cat", "readlink", "mkdir", "ls")
    tar.dir("home").dir("home/sandbox", uid=1000, gid=1000).dir("home/sandbox/.npm", uid=1000, gid=1000)
    tar.link("home/sandbox/.cache", "/etc")
    life("image", "import", tar.save(petri.path("image.tar")), "caches-test").ok()
    flags = ("--image", "caches-test", *(() if helpers.MODE != "single" else ("-u", "0")))
    life.start(*flags)
    home = life.out("echo ~").strip()
    link = life.out("readlink ~/.npm/_cacache").strip()
    assert link == f"{AT}/npm", link
    life.sh("mkdir -p ~/.npm/_cacache/d; echo x >~/.npm/_cacache/d/f; echo y >~/mine").ok()
    assert "cache" not in life("diff", "--rootfs").ok().out
    assert f"A\t{home}/mine\n" in life("diff", "--rootfs").out
    life("restart").ok()
    assert save(life)["added"] == 1
    assert petri.sh("cat ~/.npm/_cacache/d/f", *flags).ok().out == "x\n"
    assert petri.sh("cat ~/.npm/_cacache/d/f").rc
    life("rm", "-f", "proj-1").ok()
    life("image", "rm", "caches-test").ok()


def test_a_volume_in_its_place(petri, life):
    mine = helpers.write(os.path.join(petri.home, "mine", "f"), "host's")
    home = petri.sh("echo ~").ok().out.strip()
    life.start("-v", f"{os.path.dirname(mine)}:{home}/.cache/pip:ro")
    assert life.out("cat ~/.cache/pip/f; ls -d ~/.npm/_cacache/.") == f"host's{home}/.npm/_cacache/.\n"


def test_the_home_as_project(petri, life):
    """What lies in a project is the project's."""
    helpers.write(os.path.join(petri.home, ".cache", "pip", "f"), "own")
    home = petri.sh("echo ~").ok().out.strip()
    life.start("--workspace", petri.home, "h")
    assert life.out(f"cat {petri.home}/.cache/pip/f", box="h") == "own"
    if home == petri.home:
        assert life.sh("test -L ~/.cache/pip", box="h").rc


SERVER = """
import hashlib, http.server, io, json, os, sys, tarfile, threading
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        kind, data = FILES.get(self.path, (None, b''))
        self.send_response(200 if kind else 404)
        self.send_header('Content-Type', kind or 'text/plain')
        self.send_header('Content-Length', str(len(data)))
        self.send_header('Cache-Control', 'public, max-age=31536000')
        self.end_headers()
        self.wfile.write(data)
    def log_message(self, *a):
        pass
def tar(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w:gz') as t:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            t.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()
"""
NPM = SERVER + """
tgz = tar({'package/package.json': json.dumps({'name': 'thing', 'version': '1.0.0'}), 'package/index.js': ''})
FILES = {'/thing': ('application/json', json.dumps({'name': 'thing', 'dist-tags': {'latest': '1.0.0'}, 'versions': {'1.0.0': {
    'name': 'thing', 'version': '1.0.0', 'dist': {'tarball': 'http://127.0.0.1:8099/thing.tgz',
    'shasum': hashlib.sha1(tgz).hexdigest()}}}}).encode()), '/thing.tgz': ('application/octet-stream', tgz)}
"""
PIP = SERVER + r"""
backend = '''
import os, zipfile
def build_wheel(where, settings=None, metadata=None):
    with zipfile.ZipFile(os.path.join(where, 'thing-1.0-py3-none-any.whl'), 'w') as z:
        z.writestr('thing.py', '')
        z.writestr('thing-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: thing\\nVersion: 1.0\\n')
        z.writestr('thing-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
        z.writestr('thing-1.0.dist-info/RECORD', '')
    return 'thing-1.0-py3-none-any.whl'
'''
name = 'thing-1.0.tar.gz'
FILES = {'/simple/thing/': ('text/html', f'<a href="http://127.0.0.1:8099/{name}">{name}</a>'.encode()),
         '/' + name: ('application/gzip', tar({'thing-1.0/backend.py': backend, 'thing-1.0/PKG-INFO': '',
         'thing-1.0/pyproject.toml': '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'}))}
if 'again' in sys.argv:
    del FILES['/' + name]
"""
SERVE = """
s = http.server.ThreadingHTTPServer(('127.0.0.1', 8099), H)
threading.Thread(target=s.serve_forever, daemon=True).start()
sys.exit(os.spawnvp(os.P_WAIT, 'sh', ['sh', '-c', sys.argv[1]]))
"""


@pytest.mark.skipif(not shutil.which("npm"), reason="no npm here")
def test_npm(petri, life):
    petri.file("serve.py", NPM + SERVE)
    get = "mkdir -p /tmp/n; cd /tmp/n && npm install --no-audit --no-fund --registry http://127.0.0.1:8099 {} thing"
    life.start("--network", "none")
    life("exec", "--", "python3", "serve.py", get.format("")).ok()
    assert petri.sh(get.format("--offline"), "--network", "none").rc
    assert save(life)["added"]
    assert petri.sh(get.format("--offline") + " && ls node_modules", "--network", "none").ok().out.endswith("thing\n")


@pytest.mark.skipif(not os.path.exists("/usr/bin/pip3"), reason="no pip here")
@pytest.mark.parametrize("user", [None, "0"])
def test_pip(petri, life, user):
    flags = ("--network", "none", *(("-u", user) if user else ()))
    petri.file("serve.py", PIP + SERVE)
    get = ("/usr/bin/pip3 wheel --disable-pip-version-check --no-deps -w /tmp/d --index-url http://127.0.0.1:8099/simple "
           "thing 2>&1")
    life.start(*flags)
    r = life("exec", "--", "/usr/bin/python3", "serve.py", get).ok()
    assert "cache has been disabled" not in r.out, r
    again = ("--", "/usr/bin/python3", "serve.py", get, "again")
    assert petri.run(*flags, *again).rc
    assert save(life)["added"]
    assert "Using cached" in petri.run(*flags, *again).ok().out


def test_json_of_an_error(life):
    r = life("cache", "save", "--json", "nobody")
    assert r.rc == 1 and json.loads(r.out)["error"]["code"] == "not_found"
