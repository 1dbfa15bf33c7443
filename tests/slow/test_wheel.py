"""The wheels of `make wheel`, installed where no compiler is."""

import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from model import PRESETS
from tests import ROOT
from tests.arm import COMPILER, MACHINE
from tests.pythons import find_others, here
from trainer.files.installed import missing_for_compilation

KINDS = {"x86_64": 3, "aarch64": 1}  # of CPUs that have kernels of their own
LARGEST = 15 << 20  # bytes
COMPILERS = re.compile(r"(g\+\+|gcc|cc|c\+\+|clang)(-[0-9.]+)?$")

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(bool(missing_for_compilation()), reason="needs a compiler, to build the wheel"),
]


ARM_ROOT, QEMU = os.environ.get("ADDER_SEARCH_ARM_ROOT", ""), os.environ.get("QEMU") or MACHINE


def make_wheel(machine):
    """The wheel of this tree. Only kernels that have changed are built: the first time takes some minutes."""
    words = ["make", "wheel", f"VENV={sys.prefix}", f"ARCH={machine}"]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    return max((ROOT / "dist").glob(f"*_{machine}.whl"), key=lambda file: file.stat().st_mtime)


@pytest.fixture(scope="module")
def wheel():
    return make_wheel(platform.machine())


@pytest.fixture(scope="module")
def wheel_for_arm():
    if shutil.which(COMPILER) is None:
        pytest.skip(f"needs {COMPILER}")
    return make_wheel("aarch64")


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
            if not COMPILERS.search(program.name):
                (programs / program.name).symlink_to(program)
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "CXX")}
    env = kept | {"PATH": f"{bare / 'bin'}:{programs}", "XDG_CACHE_HOME": folder / "cache"}
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("fixture", ["wheel", "wheel_for_arm"])
def test_it_is_small_for_many_linuxes_and_has_every_preset(fixture, request):
    wheel = request.getfixturevalue(fixture)
    kernels = {(k.source, tuple(k.shape.items())) for spec in PRESETS.values() if (k := spec.kernel())}
    names = zipfile.ZipFile(wheel).namelist()
    machine = wheel.stem.partition("-manylinux_2_")[2].partition("_")[2]
    assert "-py3-none-manylinux_2_" in wheel.name and wheel.stat().st_size < LARGEST
    assert sum(name.endswith(".so") for name in names) == KINDS[machine] * (len(kernels) + 1)
    assert "adder_search.py" in names and not any(name.startswith(("tests/", "lab/")) for name in names)


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


TRAIN = """
import hashlib
from model import preset
from trainer import Bank, Pair, Recipe, Seed
recipe = Recipe(steps=1_200, eval_every=150)
bank = Bank(preset("57p"), [Pair(recipe, Seed.of(n)) for n in (777, 1)])
made = [bank.backend.name]
for _ in range(2):
    bank.advance()
    state = b"".join(bank.state[name].numpy().tobytes() for name in sorted(bank.state))
    made += [hashlib.sha256(state).hexdigest(), *(bank.result(n).best_exact for n in range(2))]
print(*made)
"""


@pytest.mark.skipif(not ARM_ROOT, reason="needs ADDER_SEARCH_ARM_ROOT, a folder of tests/slow/arm_root.sh")
def test_it_trains_on_arm_to_the_bits_of_this_machine(wheel_for_arm, tmp_path):
    """By the wheel's kernels, without a compiler: θ and everything else that a bank of 57p saves, after 300 steps."""
    tag = wheel_for_arm.stem.rpartition("-")[2]
    words = ["--platform", tag, "--only-binary=:all:", "--target", tmp_path / "ours", wheel_for_arm]
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", *words], check=True)
    path = {"PATH": "/nowhere", "PYTHONPATH": f"{tmp_path / 'ours'}:/opt/site", "XDG_CACHE_HOME": tmp_path}
    (python,) = Path(ARM_ROOT).glob("usr/bin/python3.[0-9][0-9]")
    words = [QEMU, "-L", ARM_ROOT, python, "-c", TRAIN]
    there = subprocess.run(words, env=path, capture_output=True, text=True, timeout=1_200)
    here = subprocess.run([sys.executable, "-c", TRAIN], cwd=ROOT, capture_output=True, text=True, check=True)
    assert there.stdout.split() == here.stdout.split() and there.stdout.startswith("native "), there
