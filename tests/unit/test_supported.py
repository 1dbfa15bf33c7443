"""Where adder-search does not run: one line, before a build or an import fails."""

import ast
import re
import subprocess
import sys

import pytest

from model.supported import OLDEST, reason_against
from tests import ROOT

HERE = {"version": (3, 11), "system": "Linux", "bits": 64, "libc": "glibc"}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"version": (3, 10)}, "needs Python 3.11 or newer, and this is 3.10"),
        ({"version": (2, 7)}, "this is 2.7"),
        ({"system": "Windows", "libc": ""}, "inside WSL"),
        ({"bits": 32}, "64-bit"),
        ({"libc": ""}, "musl"),
        ({"libc": "libc"}, "musl"),
    ],
)
def test_what_cannot_run_it_is_named_with_a_remedy(changed, words):
    assert words in reason_against(**HERE | changed)


@pytest.mark.parametrize("changed", [{}, {"version": (3, 14)}, {"system": "Darwin", "libc": ""}])
def test_what_may_run_it_is_not_refused(changed):
    assert reason_against(**HERE | changed) is None


@pytest.mark.parametrize("way", [("model/supported.py",), ("-c", "import model"), ("setup.py", "--version")])
def test_a_refusal_is_one_line_whichever_way_one_comes(way, tmp_path):
    """As on Windows: `sitecustomize` is what Python imports before anything else."""
    (tmp_path / "sitecustomize.py").write_text("import platform\nplatform.system = lambda: 'Windows'\n")
    path = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": "/usr/bin"}
    ran = subprocess.run([sys.executable, *way], cwd=ROOT, env=path, capture_output=True, text=True)
    assert ran.returncode == 1
    assert re.fullmatch(r"error: adder-search needs Linux: .*\n", ran.stderr), ran.stderr


def test_an_old_python_can_read_the_check():
    ast.parse((ROOT / "model/supported.py").read_text(encoding="utf-8"), feature_version=(3, 6))


def test_the_pythons_that_are_tried_are_named_the_same_everywhere():
    setup = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    pythons = re.findall(r"Python :: (\d+\.\d+)", setup)
    oldest = "{}.{}".format(*OLDEST)
    assert pythons[0] == oldest and setup.count(f"python_requires = >={oldest}\n") == 1
    *earlier, newest = pythons
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"Python {', '.join(earlier)} or {newest}" in readme
    assert f"Python {pythons[0]} to {newest}" in (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
