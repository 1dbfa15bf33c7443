"""Where adder-search does not run: one line, before a build or an import fails."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from model.supported import OLDEST, reason_against
from tests import ROOT, needs_compiler

HERE = {
    "version": (3, 11), "system": "Linux", "bits": 64, "libc": "glibc", "machine": "x86_64", "python": "CPython",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"version": (3, 10)}, "needs Python 3.11 or newer, and this is 3.10"),
        ({"version": (2, 7)}, "this is 2.7"),
        ({"system": "Windows", "libc": ""}, "inside WSL"),
        ({"system": "FreeBSD", "libc": ""}, "needs Linux or macOS, and this is FreeBSD"),
        ({"system": "", "libc": ""}, "needs Linux or macOS"),
        ({"bits": 32}, "64-bit"),
        ({"bits": 32, "machine": "armv7l"}, "64-bit"),
        ({"machine": "s390x"}, "calls x86_64 or aarch64, and this is s390x"),
        ({"machine": "ppc64"}, "and this is ppc64"),
        ({"machine": "riscv64"}, "and this is riscv64"),
        ({"system": "Darwin", "libc": ""}, "calls arm64, and this is x86_64"),
        ({"python": "PyPy"}, "needs CPython, and this is PyPy"),
        ({"libc": ""}, "musl"),
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


from model.supported import OLDEST, reason_against
from tests import ROOT, needs_compiler
