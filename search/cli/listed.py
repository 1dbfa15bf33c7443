"""Commands by name, section and line of help; their modules are imported when they are called."""

from __future__ import annotations

from importlib import import_module

import click


class Listed(click.Command):
    """A command in a module that is not imported yet. In another package, with an entry point to `shares`:

    shares = Listed("shares", "Print how many seeds grok.", "adder_shares.command", section="Evidence")
    """

    def __init__(self, name: str, says: str, module: str, section: str):
        """List a command.

        says: its line of help. module: has the `click.Command` of this name. section: of `adder-search --help`.
        """
        super().__init__(name, short_help=says)
        self.module, self.section = module, section

    def load(self) -> click.Command:
        """Import the command. Raises ImportError, which `changed_library` puts into words."""
        values = vars(import_module(self.module)).values()
        return next(c for c in values if isinstance(c, click.Command) and c.name == self.name)
