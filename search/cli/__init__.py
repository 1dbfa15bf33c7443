"""The command line: `adder-search COMMAND`. Only the module of the command that is called is imported."""

import logging
from importlib.metadata import EntryPoint
from typing import Any, NoReturn

import click

from search import plugins
from search.cli.listed import Listed
from search.cli.surroundings import changed_library, check_libraries, settle_encoding, settle_environment, settle_output
from search.errors import Failure, UserError, masked

GROUPS = {
    "Studies": {
        "studies": ("study", "List the studies that come with the package."),
        "keys": ("study", "List the keys of a study file, with their defaults."),
        "models": ("study", "List families, constraints and presets, or itemise one preset."),
        "run": ("run", "Train a study, or go on with it."),
        "resume": ("run", "Go on with a study that was interrupted."),
        "stop": ("run", "End a running study cleanly, wherever it runs."),
        "status": ("home", "Show the recorded studies, or one seed by seed."),
        "delete": ("home", "Delete a study and all that is recorded of it."),
    },
    "Evidence": {
        "best": ("evidence", "Show the Pareto front: fewest parameters, highest grok rate."),
        "records": ("evidence", "Write a study's records to a file."),
    },
    "Checkpoints": {
        "pull": ("checkpoints", "Fetch a seed's checkpoint out of the records."),
        "verify": ("checkpoints", "Check a checkpoint on AdderBoard's 10,010 additions."),
        "rerun": ("checkpoints", "Train a checkpoint's seed again: is θ bitwise the same?"),
    },
}
"""Our commands by group: the module of this package that has the `click.Command`, and its line of help."""
COMMANDS = {
    name: Listed(name, says, f"search.cli.{module}", group)
    for group, entries in GROUPS.items()
    for name, (module, says) in entries.items()
}

LIGHT = ("search.cli.study",)
"""Modules that need no library that may have changed, and take a tenth of a second."""


class Commands(click.Group):
    """Commands that are imported when they are called (click's LazyGroup), ours and those of plug-ins.

    Turns every foreseen failure into one line on stderr and its exit code.
    """

    def main(self, *words: Any, **options: Any) -> Any:
        settle_encoding()
        settle_output()
        return super().main(*words, **options)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list({**self.commands, **plugins.added(plugins.COMMANDS)})

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by section, ours first; those that other packages add to none, by package."""
        added = plugins.added(plugins.COMMANDS)
        sections: dict[str, dict[str, click.Command]] = {}
        for name in self.list_commands(ctx):
            # Ours: another package cannot take its place.
            command = self.commands.get(name) or load_plugin(added[name])
            if isinstance(command, Listed):
                section = command.section
            else:
                package = added[name].module.partition(".")[0]
                section = f"Added by {package}"
            sections.setdefault(section, {})[name] = command

        for section, commands in sections.items():
            width = formatter.width - 2 - max(map(len, commands))
            rows = [(name, command.get_short_help_str(width)) for name, command in commands.items()]
            with formatter.section(section):
                formatter.write_dl(rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        added = plugins.added(plugins.COMMANDS)
        if command or cmd_name not in added:
            return command
        return load_plugin(added[cmd_name])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            where = f"options go after the command: adder-search COMMAND {error.option_name}"
            _end(ctx, f"{error.option_name}: {where}", UserError.code)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in plugins.NOTEBOOK and not self.get_command(ctx, args[0]):
            raise UserError(f"{args[0]} needs {plugins.NOTEBOOK_SAYS}")
        name, command, rest = super().resolve_command(ctx, args)
        settle_environment()  # before the command's module reads a path from there
        if isinstance(command, Listed):
            if command.module not in LIGHT:
                check_libraries()
            command = command.load()
        return name, command, rest

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (UserError, Failure) as error:
            _end(ctx, str(error), error.code)
        except ImportError as error:
            _end(ctx, changed_library(error), Failure.code)
        except OSError as error:
            _end(ctx, f"{error.filename or 'input or output'}: {error.strerror or error}", Failure.code)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(130)


def _end(ctx: click.Context, text: str, code: int) -> NoReturn:
    """End a command with its errors, each in a line."""
    for line in masked(text).splitlines():
        click.echo(f"error: {line}", err=True)
    ctx.exit(code)


def load_plugin(point: EntryPoint) -> click.Command:
    """Return another package's command; where it cannot be imported, one that says so when it is called."""
    try:
        return plugins.load(point, point.name)
    except Failure as error:
        reason = str(error)

        def refuse() -> None:
            raise Failure(reason)

        return click.Command(point.name, callback=refuse, short_help="(cannot be imported)")


@click.group(
    cls=Commands,
    commands=dict(COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="adder-search")
def main() -> None:
    """Train tiny transformers to add two 10-digit numbers, thousands of seeds at a time."""
    if logging.lastResort:  # prints what no other handler takes: our warnings, and urllib3's
        logging.lastResort.addFilter(_mask)


def _mask(record: logging.LogRecord) -> bool:
    """Take the secrets out of a line that is logged."""
    record.msg, record.args = masked(record.getMessage()), ()
    return True
