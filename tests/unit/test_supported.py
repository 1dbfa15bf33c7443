"""Where adder-search does not run: one line, before a build or an import fails."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from model.supported import OLDEST, reason_against
from tests import ROOT

HERE = {
    "version": (3, 11), "system": "Linux", "bits": 64, "libc": "glibc", "machine": "x86_64", "python": "CPython",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"version": (3, 10)}, "needs Python 3.11 or newer, and this is 3.10"),
        ({"system": "Windows", "libc": ""}, "inside WSL"),
        ({"system": "FreeBSD", "libc": ""}, "needs Linux or macOS, and this is FreeBSD"),
        ({"system": "", "libc": ""}, "needs Linux or macOS"),
        ({"bits": 32}, "64-bit"),
        ({"machine": "s390x"}, "calls x86_64 or aarch64, and this is s390x"),
        ({"system": "Darwin", "libc": ""}, "calls arm64, and this is x86_64"),
        ({"python": "PyPy"}, "needs CPython, and this is PyPy"),
        ({"libc": "libc"}, "musl"),
    ],
)
def test_what_cannot_run_it_is_named_with_a_remedy(changed, words):
    assert words in reason_against(**HERE | changed)


@pytest.mark.parametrize(
    "changed", [{}, {"version": (3, 14)}, {"machine": "aarch64"}, {"system": "Darwin", "libc": "", "machine": "arm64"}]
)
def test_what_may_run_it_is_not_refused(changed):
    assert reason_against(**HERE | changed) is None


FAKES = {
    "Windows": ("system = lambda: 'Windows'", "needs Linux: .*"),
    "musl": ("libc_ver = lambda: ('', '')", "needs a Linux with glibc: .*"),
    "big-endian": ("machine = lambda: 's390x'", "needs a CPU .*"),
}
ENTRIES = [("model/supported.py",), ("-c", "import model"), ("setup.py", "--version"), ("adder_search.py", "keys")]
WAYS = [*(("Windows", entry) for entry in ENTRIES), *((fake, ENTRIES[0]) for fake in FAKES if fake != "Windows")]


@pytest.mark.parametrize(("fake", "entry"), WAYS)
def test_a_refusal_is_one_line_whichever_way_one_comes(fake, entry, tmp_path):
    """`sitecustomize` is what Python imports before anything else."""
    code, line = FAKES[fake]
    (tmp_path / "sitecustomize.py").write_text(f"import platform\nplatform.{code}\n")
    path = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": "/usr/bin"}
    ran = subprocess.run([sys.executable, *entry], cwd=ROOT, env=path, capture_output=True, text=True)
    assert ran.returncode == 1
    assert re.fullmatch(f"error: adder-search {line}\n", ran.stderr), ran.stderr


@pytest.mark.parametrize(
    "python", sorted(Path.home().glob(".pyenv/versions/3.*/bin/python")), ids=lambda p: p.parts[-3]
)
@pytest.mark.parametrize("entry", ["adder_search.py", "model/supported.py", "setup.py"])
def test_other_pythons_that_are_here_are_refused_or_not_by_their_version(entry, python):
    ran = subprocess.run([python, ROOT / entry, "--version"], cwd=ROOT, capture_output=True, text=True)
    minor = int(python.parts[-3].split(".")[1])
    refused = f"error: adder-search needs Python 3.11 or newer, and this is 3.{minor}: make demo PYTHON=python3.11\n"
    assert (ran.stderr == refused) == (minor < 11), ran


def test_an_old_python_can_read_the_check_and_what_runs_it():
    for name in ("model/supported.py", "adder_search.py", "setup.py"):
        ast.parse((ROOT / name).read_text(encoding="utf-8"), feature_version=(3, 6))


LINUX_ALONE = {
    "os": (
        "sched_getaffinity", "sched_setaffinity", "memfd_create", "pidfd_open", "posix_fadvise", "posix_fallocate",
        "getrandom", "setns", "unshare", "eventfd", "copy_file_range", "splice", "fdatasync", "pipe2", "getresuid",
        "getxattr", "setxattr", "O_TMPFILE", "O_PATH", "O_DIRECT",
    ),
    "signal": ("sigtimedwait", "sigwaitinfo", "SIGPWR", "SIGRTMIN", "SIGPOLL"),
    "resource": ("prlimit",),
    "select": ("epoll",),
    "time": ("CLOCK_BOOTTIME",),
}  # fmt: skip
"""Module -> what it has on Linux and not on macOS, by Python's documentation."""


def test_nothing_is_called_that_macos_lacks():
    found = []
    files = [file for package in ("model", "trainer", "search") for file in (ROOT / package).rglob("*.py")]
    for file in files:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in LINUX_ALONE.get(getattr(node.value, "id", ""), ()):
                found.append(f"{file.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")
    assert found == []


def test_the_pythons_that_are_tried_are_named_the_same_everywhere():
    setup = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    pythons = re.findall(r"Python :: (\d+\.\d+)", setup)
    oldest = "{}.{}".format(*OLDEST)
    assert pythons[0] == oldest and setup.count(f"python_requires = >={oldest}\n") == 1
    *earlier, newest = pythons
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"Python {', '.join(earlier)} or {newest}" in readme
