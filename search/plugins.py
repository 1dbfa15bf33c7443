"""What other installed packages add to ours: commands, and parts of commands, each an entry point."""

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from search.errors import Failure, UserError

COMMANDS = "adder_search.commands"
"""Group of commands: NAME = module:click_command."""
PARTS = "adder_search.parts"
"""Group of what options of our commands need: NAME = module:function."""

NOTEBOOK = ("forge", "cascade", "claims", "thresholds")
"""Commands that the research notebook adds."""


@cache
def added(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name."""
    return {point.name: point for point in entry_points(group=group)}


def part(name: str, option: str) -> Any:
    """Return the part that an option needs. Raise UserError where no package has it, Failure as `load` does."""
    if name not in added(PARTS):
        raise needs_notebook(option)
    return load(added(PARTS)[name], option)


def needs_notebook(name: str) -> UserError:
    """Return the error of a command or option that comes with the notebook, where that is not installed."""
    return UserError(f"{name} needs the research notebook: pip install -e ./lab")


def load(point: EntryPoint, name: str) -> Any:
    """Load what an entry point names. Raise Failure, whatever is wrong with the other package."""
    try:
        return point.load()
    except Exception as error:
        raise Failure(f"{name}: {point.value} cannot be imported ({error})") from None
