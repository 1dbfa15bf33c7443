"""Study files of experiments, by name."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from search.study.file import load_study
from search.study.schema import Study

LAB = Path(__file__).parent


@cache
def load_plan(name: str) -> Study:
    """Return the study of an experiment's folder, or one that comes with the package. Raises UserError."""
    return load_study(str(next(LAB.glob(f"*/{name}.yaml"), name)))
