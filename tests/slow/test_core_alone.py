"""The core where the folders of its plug-ins are deleted: its own tests, without those of the plug-ins."""

import os
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest

from tests import PLUGINS, ROOT
from tests.commands import own_environment

LEFT = "reports", "tracking"
"""MLflow, and its pages, are how tests see what a driver has written. A study without them is tried apart."""
DELETED = {folder for name in PLUGINS if name not in LEFT for folder in (name, f"tests/{name}")}
BARE = "run smoke", "status smoke", "best", "records smoke -o rows.csv", "pull smoke -o best", "verify best"
GONE = "table", "report", "ui", "sync", "export"
SCRIPT = "#!{}\nfrom adder_search import main\n\nmain()\n"

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """A copy of the tree without its plug-ins and the notebook's code."""
    folder = tmp_path_factory.mktemp("alone") / "core"
    words = ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in filter(None, subprocess.check_output(words, text=True).split("\0")):
        is_deleted = any(name.startswith(f"{other}/") for other in DELETED)
        is_code = name.endswith(".py") and not name.endswith("/net.py")  # which study files name
        is_notebook = name.startswith("lab/") and is_code  # its checkpoints and study files stay
        if not (is_deleted or is_notebook) and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    for words in (["init", "--quiet"], ["add", "--all"]):  # tests ask git which files there are
        subprocess.run(["git", "-C", folder, *words], check=True)
    return folder


def installed(core, left):
    """The Python of an environment in which a copy is installed, with this one's dependencies. left: its plug-ins."""
    folder = core.with_name(f"{core.name}-venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    # First the copy and what it declares, then the dependencies, whose own .pth files nobody reads.
    (site / "all.pth").write_text(f"{core}\n{sysconfig.get_path('purelib')}\n")
    for name in ("adder-search", "adder-search-lab"):  # no other plug-in is declared
        about = site / f"{name.replace('-', '_')}-0.1.0.dist-info"
        about.mkdir()
        # What is installed: building a wheel leaves an .egg-info in the tree, which may be of an earlier version.
        (ours,) = metadata.distributions(name=name, path=[sysconfig.get_path("purelib")])
        (about / "METADATA").write_text(ours.read_text("METADATA"))
        points = [p for p in ours.entry_points if p.module.partition(".")[0] in left]
        lines = [f"[{p.group}]\n{p.name} = {p.value}" for p in points]
        (about / "entry_points.txt").write_text("\n".join(lines))
    command = folder / "bin/adder-search"
    command.write_text(SCRIPT.format(folder / "bin/python"))
    command.chmod(0o755)
    return folder / "bin/python"


@pytest.fixture(scope="module")
def python(core):
    return installed(core, LEFT)


def run(python, folder, *words):
    return subprocess.run(
        [python, *words], cwd=folder, env=own_environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip


def test_plug_ins_are_nowhere(core, python, tmp_path):
    for name in (*DELETED & {*PLUGINS}, "lab.forge"):
        said = run(python, tmp_path, "-c", f"import search, {name}")
        assert said.returncode == 1 and "No module named" in said.stdout, said.stdout
    listed = run(python, tmp_path, "-m", "adder_search", "--help").stdout
    assert "  verify " in listed and not any(f"  {name} " in listed for name in ("prove", "compress", "forge"))
    assert Path(run(python, tmp_path, "-c", "import search; print(search.__file__)").stdout).is_relative_to(core)


def test_a_study_runs_where_no_plug_in_is_left(core, tmp_path):
    bare = tmp_path / "of mine"  # a space, in the path of its environment too: Ray gives that path to a shell
    shutil.copytree(core, bare, ignore=lambda folder, names: LEFT if Path(folder) == core else ())
    python = installed(bare, ())
    for words in BARE:
        said = run(python, tmp_path, "-m", "adder_search", *words.split())
        assert said.returncode == (words == "verify best"), said.stdout  # nothing groks
        assert not any(f"adder-search {name}" in said.stdout for name in GONE), "nobody is sent there"
    for name in GONE:
        said = run(python, tmp_path, "-m", "adder_search", name)
        assert said.returncode == 2 and f"No such command '{name}'" in said.stdout


def test_the_core_passes_its_tests(core, python):
    workers = os.environ.get("PYTEST_XDIST_WORKER_COUNT", "2")
    done = run(python, core, "-m", "pytest", "tests", "-q", "-p", "no:cacheprovider", "-n", workers)
    assert done.returncode == 0, done.stdout[-8000:]
