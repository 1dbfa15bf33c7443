"""The core where the folders of its plug-ins are deleted: its own tests, all but tests/adders and tests/compress."""

import os
import shutil
import subprocess
import sys

import pytest

from tests import PLUGINS, ROOT

NOT_OURS = {*PLUGINS, *(f"tests/{name}" for name in PLUGINS), "lab/tests"}
ABSENT = f"""
import sys

class Absent:
    '''The plug-ins of the checkout that this environment has installed, and the notebook, which needs them.'''

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {(*PLUGINS, "lab")!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A copy of the tree without plug-ins, as one that is installed without them: nothing declares them either."""
    folder = tmp_path_factory.mktemp("alone") / "core"
    words = ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in filter(None, subprocess.check_output(words, text=True).split("\0")):
        if not any(name.startswith(f"{other}/") for other in NOT_OURS) and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    (folder / "sitecustomize.py").write_text(ABSENT)
    for name in ("adder_search", "adder_search_lab"):  # in place of what this environment has of them
        about = folder / f"{name}-0.1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 0.1.0\n")
    return folder


def run(folder, *words):
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=os.environ | {"PYTHONPATH": str(folder)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip


def test_the_core_passes_its_tests_alone(alone):
    assert not any((alone / name).exists() for name in PLUGINS)
    listed = run(alone, "-m", "search.cli", "--help")
    assert listed.returncode == 0 and not any(f"\n  {word} " in listed.stdout for word in ("prove", "compress"))
    done = run(alone, "-m", "pytest", "tests", "-q", "-p", "no:cacheprovider", *NUMBER)
    assert done.returncode == 0, done.stdout[-8000:]


NUMBER = ("-n", os.environ.get("PYTEST_XDIST_WORKER_COUNT", "2"))
