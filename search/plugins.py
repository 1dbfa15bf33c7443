"""The doors of other packages: entry points, a group for each door. Those of adders/ and compress/ come by them too.

docs/extending.md has an example.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from search.errors import Failure, UserError

if TYPE_CHECKING:
    from torch import Tensor

    from model import Spec
    from trainer.checkpoints.checkpoint import Checkpoint
    from trainer.stopping import Rule

COMMANDS = "adder_search.commands"
"""Commands: NAME = module:click_command (search/cli/listed.py)."""
PARTS = "adder_search.parts"
"""Parts that options of our commands need: NAME = module:function."""
KINDS = "adder_search.proposers"
"""Kinds of study: NAME = module:class (search/study/kind.py)."""
STUDIES = "adder_search.studies"
"""Studies that come with a package: NAME = a package with YAML files."""
READERS = "adder_search.checkpoint_readers"
"""Readers of other programs' checkpoints: NAME = module:function (`Reader`)."""
PROVERS = "adder_search.provers"
"""Deciders of all pairs of numbers: NAME = module:function (`Prover`)."""
STOPPING = "adder_search.stopping"
"""Rules that end seeds early: NAME = module:class (`Rule` in trainer/stopping/rule.py)."""
MIRRORS = "adder_search.mirrors"
"""Places that show studies, as MLflow does: NAME = module:object (`Mirror` in search/run/mirror.py)."""

NOTEBOOK = ("forge", "cascade", "claims", "thresholds")
"""Commands that the research notebook adds."""
NOTEBOOK_SAYS = "the research notebook: pip install -e ./lab"


class Reader(Protocol):
    """Read another program's checkpoint. A package with `def read(path)` in adder_npz.py has in its pyproject.toml:

    [project.entry-points."adder_search.checkpoint_readers"]
    npz = "adder_npz:read"
    """

    def __call__(self, path: Path, /) -> Checkpoint:
        """Return the checkpoint in a file, and run nothing of it. Raise ValueError with the file's fault."""


class Prover(Protocol):
    """Decide all pairs of numbers. A package with `def decide(spec, theta_P, limit_s)` in adder_window.py has:

    [project.entry-points."adder_search.provers"]
    window = "adder_window:decide"
    """

    def __call__(self, spec: Spec, theta_P: Tensor, limit_s: float, /) -> dict[str, Any] | None:
        """Return the verdict (model/verdict.py) within `limit_s` seconds; None for a spec that is not known here."""


@cache
def added(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, as model/doors.py does, which `--help` does not need."""
    return {point.name: point for point in entry_points(group=group)}


def loaded(group: str) -> dict[str, Any]:
    """Return the loaded entry points of a group, by name. One that fails to load is left out; a line says so once."""
    parts: dict[str, Any] = {}
    for name, point in added(group).items():
        try:
            parts[name] = load(point, name)
        except Failure as error:
            package = point.module.partition(".")[0]
            _warn_once(f"package {package}: its {group} are left out: {error}")
    return parts


@cache
def _warn_once(line: str) -> None:
    logging.getLogger(__name__).warning("%s", line)


def readers() -> list[Reader]:
    return list(loaded(READERS).values())


def provers() -> list[Prover]:
    return list(loaded(PROVERS).values())


@cache
def rules() -> dict[str, type[Rule]]:
    """Return the stopping rules by their key in a study file: ours, then those of packages."""
    from trainer.stopping import RULES  # not at the head: `--help` needs no rules

    # Ours come first and last: no package takes the place of one.
    every = (*RULES, *loaded(STOPPING).values(), *RULES)
    return {rule.key: rule for rule in every}


def part(name: str, option: str, brought_by: str = NOTEBOOK_SAYS) -> Any:
    """Return the part that an option needs. Raise UserError where no package has it, Failure as `load` does."""
    if name not in added(PARTS):
        raise UserError(f"{option} needs {brought_by}")
    return load(added(PARTS)[name], option)


def load(point: EntryPoint, name: str) -> Any:
    """Load an entry point. Raise Failure, whatever is wrong with the other package."""
    try:
        return point.load()
    except Exception as error:
        raise Failure(f"{name}: {point.value} cannot be imported ({error})") from None
