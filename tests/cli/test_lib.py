"""libpetri: what is installed, what it exports, and programs that use it."""
import glob
import os
import re
import shutil
import subprocess

import pytest

import helpers
import proto
from test_exec import EXIT0, box, liar, raw  # noqa: F401

PREFIX = os.path.dirname(os.path.dirname(os.path.realpath(helpers.BIN)))
LIBDIRS = [d for d in glob.glob(f"{PREFIX}/lib*") + glob.glob(f"{PREFIX}/lib/*") if glob.glob(f"{d}/libpetri.so*")]
SOURCES = os.path.join(os.path.dirname(helpers.HERE), "lib")


def flags():
    """As pkg-config has them, where there is one."""
    libdir = LIBDIRS[0]
    if shutil.which("pkg-config"):
        env = dict(os.environ, PKG_CONFIG_PATH=f"{libdir}/pkgconfig")
        out = subprocess.run(["pkg-config", "--cflags", "--libs", "petri"], env=env, check=True, stdout=subprocess.PIPE)
        return out.stdout.decode().split()
    return [f"-I{PREFIX}/include", f"-L{libdir}", "-lpetri"]


@pytest.fixture(scope="module")
def build(workdir):
    """A program of tests/lib, built as its users would."""
    def make(name, *more):
        out = os.path.join(workdir, name)
        subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-o", out,
                        os.path.join(SOURCES, name + ".c"), *flags(), *more], check=True)
        return out
    return make


def run(petri, program, *args, **kw):
    env = dict(petri.env, LD_LIBRARY_PATH=LIBDIRS[0], PETRI_PROGRAM=helpers.BIN)
    return subprocess.run([program, *args], env=env, cwd=petri.project, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=helpers.patience(120), **kw)


def test_example(box, build):
    program = build("example")
    for args in ((), (box.name,), (box.id,)):
        r = run(box.petri, program, *args)
        assert (r.returncode, r.stdout, r.stderr) == (0, f"{box.name}: done\nHELLO\n", ""), r
    assert not os.path.exists(os.path.join(box.petri.project, "NOTE"))
    with open(os.path.join(SOURCES, "example.c")) as f:
        assert len(f.readlines()) <= 35


def test_example_without_a_sandbox(petri, build):
    r = run(petri, build("example"), "nobody")
    assert r.returncode == 1 and r.stderr == "not_found: no sandbox 'nobody'; petri ls lists them\n", r
    r = run(petri, build("example"))
    assert r.returncode == 1 and r.stderr.startswith("not_found: this project has no sandbox yet"), r
    r = run(petri, build("example"), "../x")
    assert r.returncode == 1 and r.stderr.startswith("invalid: "), r


def test_what_programs_rely_on(box, build):
    r = run(box.petri, build("check"))
    assert (r.returncode, r.stdout) == (0, ""), r.stdout + r.stderr


def test_start_and_end_in_one_piece(petri, liar, build):
    """And the connection stays open: nothing more makes it readable."""
    liar(lambda c, _: c.sock.sendall(raw(proto.STARTED) + raw(proto.EXIT, EXIT0)))
    r = run(petri, build("check"), "liar", "true")
    assert (r.returncode, r.stdout) == (0, ""), r.stdout
    petri.run("liar", "--", "true", sub="exec").ok()


def test_from_a_program_that_ignores_its_children(box, build):
    """SIGCHLD ignored, SIGPIPE at its default, signals blocked: the library copes."""
    r = subprocess.run(["sh", "-c", "trap '' CHLD; exec env --ignore-signal=CHLD \"$@\"", "sh", build("check")],
                       env=dict(box.petri.env, LD_LIBRARY_PATH=LIBDIRS[0], PETRI_PROGRAM=helpers.BIN), cwd=box.petri.project,
                       stdout=subprocess.PIPE, timeout=helpers.patience(120))
    assert (r.returncode, r.stdout) == (0, b"")


def test_header_stands_alone(build, workdir):
    for compiler, std in (("cc", "c99"), ("c++", "c++11")):
        if not shutil.which(compiler):
            continue
        src = os.path.join(workdir, f"header-{std}.c")
        with open(src, "w") as f:
            f.write("#include <petri.h>\nint main(void) { return !petri_version(); }\n")
        subprocess.run([compiler, "-x", "c" if compiler == "cc" else "c++", f"-std={std}", "-pedantic", "-Wall", "-Wextra",
                        "-Werror", src, "-x", "none", "-o", src + ".out", *flags()], check=True)


def symbols(*flags_):
    out = subprocess.run(["nm", "-D", *flags_, os.path.join(LIBDIRS[0], "libpetri.so")], check=True, stdout=subprocess.PIPE)
    return {line.split()[-1].split("@")[0] for line in out.stdout.decode().splitlines()}


@pytest.mark.skipif(not shutil.which("nm"), reason="no nm")
def test_exports():
    names = symbols("--defined-only") - {"PETRI_0"}
    assert names and all(n.startswith("petri_") for n in names), sorted(names)
    with open(f"{PREFIX}/include/petri.h") as f:
        declared = set(re.findall(r"^PETRI_API [^(]*?\b(petri_\w+)\(", f.read(), re.M))
    assert names == declared, names ^ declared


@pytest.mark.skipif(not shutil.which("nm"), reason="no nm")
def test_what_it_must_not_do():
    forbidden = {"fork", "vfork", "clone", "pthread_create", "signal", "sigaction", "sigprocmask", "exit", "_exit", "printf",
                 "puts", "stdout", "stderr", "system", "popen", "setenv", "chdir"}
    assert not symbols("--undefined-only") & forbidden


@pytest.mark.skipif(not shutil.which("readelf"), reason="no readelf")
def test_soname_and_what_it_needs():
    out = subprocess.run(["readelf", "-d", os.path.join(LIBDIRS[0], "libpetri.so")], check=True, stdout=subprocess.PIPE)
    text = out.stdout.decode()
    assert re.search(r"SONAME.*\[libpetri\.so\.0\]", text)
    assert set(re.findall(r"NEEDED.*\[([^]]+)\]", text)) <= {"libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
