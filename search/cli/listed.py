"""Commands by name, section and line of help; their modules are imported when they are called."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

import click


class Listed(click.Command):
    """A command in a module that is not imported yet. In another package, with an entry point to `shares`:

    shares = Listed("shares", "Print how many seeds grok.", "adder_shares.command", section="Evidence", after="best")
    """

    def __init__(self, name: str, says: str, module: str, section: str, after: str = ""):
        """List a command.

        says: its line of help. module: has the `click.Command` of this name. section, after: of `adder-search --help`,
        and the command that it stands behind; the last of its section unless named.
        """
        super().__init__(name, short_help=says)
        self.module, self.section, self.after = module, section, after

    def load(self) -> click.Command:
        """Import the command. Raises ImportError, which `changed_library` puts into words."""
        values = vars(import_module(self.module)).values()
        return next(c for c in values if isinstance(c, click.Command) and c.name == self.name)


def arrange(sections: Mapping[str, list[str]], others: Mapping[str, Listed]) -> dict[str, list[str]]:
    """Return the names of commands by section, with others each behind the command that it names.

    One that names no command of its section is the section's last.
    """
    arranged = {section: list(names) for section, names in sections.items()}
    left = dict(others)
    while left:
        # A command may stand behind another of these: those whose places are known come first.
        placed = [name for name, command in left.items() if command.after in arranged.get(command.section, ())]
        for name in placed or list(left):
            command = left.pop(name)
            names = arranged.setdefault(command.section, [])
            place = names.index(command.after) + 1 if command.after in names else len(names)
            names.insert(place, name)
    return arranged
