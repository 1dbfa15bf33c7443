"""The CUDA engine's self-test against the CPU's, in a child process: a GPU that hangs or crashes ends the child alone.

The verdict lies in the user's cache, for each GPU, driver, compiler, source and program; a bad one for a day.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import model
import trainer
from gpu import nvrtc
from gpu.backend import CudaBackend, macros_of
from gpu.card import Card, keep
from gpu.comparison import failure
from gpu.driver import CudaError, Gpu
from gpu.machine import source_of
from model.spec import Kernel, Spec
from trainer.engine.build import LONGEST_LINE, BuildError, digest_of
from trainer.engine.native import EngineBackend
from trainer.files.installed import cache_folder, own_module
from trainer.recipe import Recipe

TEST_S = 120.0
"""Seconds that the test gets, which needs some twenty, compilation included."""
BAD_FOR_S = 86_400.0


def verdict(gpu: Gpu, spec: Spec, recipe: Recipe) -> str:
    """Return the failure of a GPU's engine with a spec and a recipe, or "", from the cache or by a test now."""
    kernel = spec.kernel()
    assert isinstance(kernel, Kernel)
    text, headers = source_of(kernel, macros_of(spec, kernel, recipe))
    about = [
        json.dumps(asdict(gpu)),
        repr(spec),
        repr(recipe.program()),
        text,
        *headers.values(),
    ]
    about += [nvrtc.version(), *nvrtc.options(), *code_of(spec)]

    path = cache_folder() / "cuda" / f"{digest_of(about, [])}.json"
    try:
        known = str(json.loads(path.read_bytes())["failure"])
        if not known or time.time() - path.stat().st_mtime < BAD_FOR_S:
            return known
    except (OSError, ValueError, LookupError):  # never tested, or the file is damaged
        pass
    # A bad verdict is kept too, for a day, so that each bank does not wait for it.
    bad = _tested(spec, recipe)
    keep(path, json.dumps({"failure": bad, **asdict(gpu)}).encode())
    return bad


def code_of(spec: Spec) -> list[str]:
    """Return the texts of all code that may change the tapes of a spec."""
    folders = Path(model.__file__).parent, Path(trainer.__file__).parent, Path(__file__).parent
    paths = {path for folder in folders for path in folder.rglob("*.py")}
    for place in spec.places():
        file = getattr(sys.modules.get(place), "__file__", None)
        # In a package: what a family's wide tensors are is said in a module beside its own.
        if file and "." in place:
            paths.update(Path(file).parent.glob("*.py"))
        elif file:
            paths.add(Path(file))
    return [path.read_text(encoding="utf-8", errors="replace") for path in sorted(paths)]


def _tested(spec: Spec, recipe: Recipe) -> str:
    command = own_module("gpu.check")
    # The last line alone: something else may have printed before it.
    try:
        child = subprocess.run(
            command,
            input=pickle.dumps((spec, recipe)),
            capture_output=True,
            timeout=TEST_S,
            check=False,
        )
        return str(json.loads(child.stdout.splitlines()[-1]))
    except subprocess.TimeoutExpired:
        return f"no end of a test in {TEST_S:.0f} s"
    except (ValueError, IndexError):
        said = child.stderr.decode(errors="replace").strip()
        last = said.rpartition("\n")[2][:LONGEST_LINE]
        return f"a test that ended its process (code {child.returncode}){last and f': {last}'}"


def main() -> None:
    """Test a spec and a recipe, which are pickled in standard input by `verdict`."""
    spec, recipe = pickle.load(sys.stdin.buffer)
    try:
        bad = failure(CudaBackend(spec, recipe, Card()), EngineBackend(spec, recipe), recipe)
    except (CudaError, BuildError, ValueError, OSError) as error:
        bad = str(error)
    print(json.dumps(bad))


if __name__ == "__main__":
    main()
