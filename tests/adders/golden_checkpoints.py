"""Published checkpoints as (spec, θ). They are not part of the repository: tests that need them skip.

The folder is `ADDER_SEARCH_GOLDEN`, by default `../shared/golden` beside the repository.
"""

import os
from pathlib import Path

import pytest
from torch import Tensor

from adders.foreign.read import read_foreign
from model import PRESETS, Spec

FOLDER = Path(__file__).resolve().parents[2] / os.environ.get("ADDER_SEARCH_GOLDEN", "../shared/golden")
SPECS: dict[str, Spec] = {name: PRESETS[name] for name in ("226p", "170p", "133p", "100p", "75p", "57p")}


def golden_file(name: str) -> Path:
    """MicroAdder's published checkpoint of a rung; skips the test where there is none."""
    return published_file(f"microadder_{name}.pt")


def published_file(name: str) -> Path:
    """A published file by its name in the folder; skips the test where there is none."""
    file = FOLDER / name
    if not file.is_file():
        pytest.skip(f"no published checkpoint {file.name}: set ADDER_SEARCH_GOLDEN to its folder")
    return file


def golden_theta(name: str) -> tuple[Spec, Tensor]:
    """The same as spec and θ [P]."""
    found = read_foreign(golden_file(name))
    assert found.spec == SPECS[name]
    return found.spec, found.theta_P
