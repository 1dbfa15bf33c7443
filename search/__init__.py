"""How many are tried: study files, plans, Ray trials, Optuna, the ledger, MLflow, the command line."""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

# Before MLflow and Ray are imported: nobody is told of this machine unless its user says so.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

INSTALLED = str(Path(__file__).parents[1])
"""The folder of this package and of those that it needs."""
OURS = ("model", "trainer", "adders", "compress", "studies")


class _Beside:
    """Find our packages beside this one, whatever else of their name lies on the path."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [INSTALLED]) if name in OURS else None


def _settle_path() -> None:
    """Take the current folder off the path and out of PYTHONPATH where an empty entry (`PYTHONPATH=$PYTHONPATH:/x`)
    put it there: nobody means the yaml.py that lies there. Where an entry has a module that is called as one of our
    packages, put ours first for the processes that this one starts.
    """
    value, here = os.environ.get("PYTHONPATH", ""), str(Path.cwd())
    entries = value.split(os.pathsep)
    named = list(filter(None, entries))
    if value and named != entries and here != INSTALLED:
        os.environ["PYTHONPATH"] = os.pathsep.join(named)
        sys.path[:] = [entry for entry in sys.path if entry not in ("", here) or entry in named]
    others = [entry for entry in named if entry != INSTALLED]
    if any(PathFinder.find_spec(name, others) for name in ("search", *OURS)):
        os.environ["PYTHONPATH"] = os.pathsep.join([INSTALLED, *named])


sys.meta_path.insert(0, _Beside)
_settle_path()
