"""Planner, driver, messages, executors and worker of a run. Called, it trains a study (`search.run.entry.run`)."""

import sys
from types import ModuleType
from typing import Any

from search.run.entry import Trained, run


class _Callable(ModuleType):
    """This package: `search.run` names what a user calls as well as the folder of what trains."""

    def __call__(self, *args: Any, **options: Any) -> Trained:
        return run(*args, **options)


__wrapped__ = run
"""What `help`, completion and `inspect.signature` show."""
sys.modules[__name__].__class__ = _Callable
