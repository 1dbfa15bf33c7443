"""`make lock` without a package index: what differs between Pythons is no file of hashes for all."""

import runpy
import subprocess
from types import SimpleNamespace

import pytest

from tests import ROOT

ANSWER = "attrs==26.1.0 \\\n    --hash=sha256:aa\nray[tune]==2.60.0 \\\n    --hash=sha256:bb \\\n    --hash=sha256:cc\n"


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.chdir(ROOT)
    return runpy.run_path(str(ROOT / "requirements/lock.py"))


def test_every_python_of_setup_cfg_is_asked_for_wheels(tool, monkeypatch):
    asked = []

    def run(words, **options):
        asked.append((words[words.index("--python-version") + 1], words[words.index("--only-binary") + 1]))
        assert "torch>=2.13" in options["input"] and "pytest>=8" in options["input"]
        return SimpleNamespace(stdout=ANSWER)

    monkeypatch.setattr(subprocess, "run", run)
    found = tool["compiled"]("cluster", "test")
    assert asked == [("3.11", ":all:"), ("3.12", ":all:"), ("3.13", ":all:")]
    assert list(found) == ["attrs", "ray"] and "".join(found.values()) == ANSWER


@pytest.mark.parametrize(
    ("other", "names"),
    [
        (ANSWER.replace("sha256:cc", "sha256:dd"), "ray"),
        (f"{ANSWER}tomli==2.5.0 \\\n    --hash=sha256:ee\n", "tomli"),
    ],
)
def test_what_one_python_needs_and_another_does_not_is_an_error(other, names, tool, monkeypatch):
    def run(words, **options):
        return SimpleNamespace(stdout=other if "3.13" in words else ANSWER)

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(SystemExit, match=f"Python 3.11 and 3.13 need different {names}"):
        tool["compiled"]()
