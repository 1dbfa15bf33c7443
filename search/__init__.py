"""How many are tried: study files, plans, Ray trials, Optuna, the ledger, MLflow, the command line.

From Python `run` trains a study and `records` reads what came of it (docs/python.md). Names are imported when they are
first read (PEP 562): none of them needs torch, Ray, MLflow or pandas before it is called.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from search.analysis.frames import records as records
    from search.errors import Failure as Failure
    from search.errors import UserError as UserError
    from search.run.entry import run as run
    from search.study.schema import Study as Study

# Before MLflow and Ray are imported: nobody is told of this machine unless its user says so.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

INSTALLED = str(Path(__file__).parents[1])
"""The folder of this package and of those that it needs."""
OURS = ("model", "trainer", "gpu", "own_modules", "reports", "tracking", "adders", "compress", "studies")


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

_PLACES = {"Failure": "errors", "Study": "study.schema", "UserError": "errors", "records": "analysis.frames"}
"""Module of each name. `run` is a package that can be called (search/run/__init__.py)."""
__all__ = [*_PLACES, "run"]


def __getattr__(name: str) -> Any:
    if name == "run":
        return import_module("search.run")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
