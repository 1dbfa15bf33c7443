"""The wheel of `make wheel`, installed where no compiler is."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from model import PRESETS
from tests import ROOT
from tests.pythons import find_others, here
from trainer.files.installed import missing_for_compilation

KINDS = 3  # of x86-64
LARGEST = 15 << 20  # bytes
COMPILER = re.compile(r"(g\+\+|gcc|cc|c\+\+|clang)(-[0-9.]+)?$")

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(bool(missing_for_compilation()), reason="needs a compiler, to build the wheel"),
]


@pytest.fixture(scope="module")
def wheel():
    """The wheel of this tree. Only kernels that have changed are built: the first time takes some minutes."""
    subprocess.run(["make", "wheel", f"VENV={sys.prefix}"], cwd=ROOT, check=True, capture_output=True)
    return max((ROOT / "dist").glob("*.whl"), key=lambda file: file.stat().st_mtime)


@pytest.fixture(scope="module", params=[here(), *find_others()])
def bare(request, wheel, tmp_path_factory):
    """A virtual environment that has the wheel, and the dependencies of this one or another Python's; its folder."""
    whole = find_others().get(request.param, Path(sys.prefix))
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([whole / "bin/python", "-m", "venv", folder], check=True)
    words = [folder / "bin/pip", "install", "--no-deps", "--no-index", "--quiet", wheel]
    subprocess.run(words, check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (dependencies,) = whole.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(str(dependencies))
    return folder


def run(bare, folder, *words):
    """Run a command of the wheel's where PATH has no compiler. Return what it said."""
    programs = folder / "programs"
    if not programs.exists():
        programs.mkdir()
        for program in Path("/usr/bin").iterdir():
            if not COMPILER.search(program.name):
                (programs / program.name).symlink_to(program)
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "CXX")}
    env = kept | {"PATH": f"{bare / 'bin'}:{programs}", "XDG_CACHE_HOME": str(folder / "cache")}
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_it_is_small_for_many_linuxes_and_has_every_preset(wheel):
    kernels = {(k.source, tuple(k.shape.items())) for spec in PRESETS.values() if (k := spec.kernel())}
    names = zipfile.ZipFile(wheel).namelist()
    assert "-py3-none-manylinux_2_" in wheel.name and wheel.stat().st_size < LARGEST
    assert sum(name.endswith(".so") for name in names) == KINDS * (len(kernels) + 1)
    assert not any(name.startswith(("tests/", "lab/")) for name in names)


def test_it_trains_without_a_compiler(bare, tmp_path):
    """The example, and 57p by the engine; a shape of no preset says that it will be slow."""
    run(bare, tmp_path, "adder-search", "run", "smoke")
    short = {"steps": 40, "eval_every": 20, "batch": 32, "warmup": 10}
    for model, said in (("57p", ""), ({"preset": "62p", "ffn": 4}, "has no shipped kernel")):
        study = {"name": f"s{len(said)}", "model": model, "recipe": short, "seeds": {"first": 1, "count": 2}}
        (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
        printed = run(bare, tmp_path, "adder-search", "run", "study.yaml")
        assert said in printed and ("a hundred times slower" in printed) == bool(said), printed
    assert not (tmp_path / "cache/adder-search/native").exists()
