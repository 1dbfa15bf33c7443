"""`adder-search merge`, `archive` and `delete`: the records of whole studies, joined, put away, removed."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from search.cli.options import home_option
from search.errors import UserError
from search.store.home import Home

if TYPE_CHECKING:
    from search.merge import Merged, Source
    from search.store.ledger import Ledger


@click.command()
@click.argument("homes", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="HOME...")
@click.option("--study", "studies", multiple=True, help="Only this study; may be given several times.")
@home_option
def merge(homes: tuple[Path, ...], studies: tuple[str, ...], home: str | None) -> None:
    """Join the records of other HOMEs, folders or archives, into this one.

    A pair of configuration and seed that two homes have must have the same result to the bit, or nothing is
    written. Seeds that never ended are left where they are. The other homes are only read, but that one of an
    older version is brought to this one's first, with the old database beside it.
    """
    from search.holdings import FolderHome, readable
    from search.merge import Source
    from search.merge import merge as join
    from search.store.home import home_flag
    from search.store.ledger import Ledger
    from search.store.removal import opened

    target = Home(home)
    with contextlib.ExitStack() as open_:
        scratch = Path(open_.enter_context(tempfile.TemporaryDirectory(prefix="adder-search-")))
        sources: list[Source] = []
        for path in dict.fromkeys(p.resolve() for p in homes):
            if path == target.path.resolve() and target.has_own_database:
                raise UserError(f"{path}: is the home to merge into; name the others")
            source = FolderHome(open_.enter_context(opened(path)), path)
            if not source.records_db.is_file():
                raise UserError(f"{path}: is no home, it has no optuna.db")
            with readable(source):
                sources.append(Source(source, Ledger(source)))
        names = []
        for merged in join(sources, target, studies, scratch):
            click.echo(_merged(merged, Ledger(target)))
            names.append(merged.study.name)
    if not names:
        click.echo("nothing is recorded there")
    else:
        click.echo(f"\nNext:\n  adder-search status{home_flag(target)}")


def _merged(merged: Merged, ledger: Ledger) -> str:
    """What a study got, and its rate now."""
    from search.store.ledger import is_final
    from search.store.stats import GrokRate

    rows = [r for r in ledger.rows(merged.study.name) if is_final(r)]
    rate, several = GrokRate.of(r["outcome"] for r in rows), len({r["configuration"] for r in rows})
    said = f"{merged.study.name}: {len(merged.taken)} seeds taken, {len(merged.same)} were there already"
    lines = [said + f", {merged.left} that never ended left out"]
    if merged.proposals:
        lines.append(f"  {len(merged.proposals)} proposals of its search carried over")
    lines.append(
        f"  now {rate}"
        if several == 1
        else f"  now {rate.grokked} of {rate.n} grokked over {several} configurations"
    )
    waiting = sum(not r["published"] for r in rows)
    if waiting:
        lines.append(f"  {waiting} seeds are not in MLflow yet; run the study, or merge their home again")
    return "\n".join(lines)


def _choices(command: Callable[..., Any]) -> Callable[..., Any]:
    """What `archive` and `delete` have in common."""
    for option in (
        home_option,
        click.option("--yes", is_flag=True, help="Do not ask."),
        click.option("--dry-run", is_flag=True, help="Show what would be freed and change nothing."),
        click.argument("study"),
    ):
        command = option(command)
    return command


@click.command()
@_choices
def delete(study: str, home: str | None, yes: bool, dry_run: bool) -> None:
    """Delete a STUDY: its seeds, MLflow runs, artifacts, saved banks and proposals.

    Shows them first and asks. `adder-search archive` keeps them in a file.
    """
    from search.store.removal import contents, hold, shown
    from search.store.removal import delete as remove

    ledger = _ledger(home, study)
    click.echo(shown(contents(Home(home), ledger, study)))
    _refuse_running(ledger, study, Home(home))
    if dry_run or not _agreed(f"delete all of {study}?", yes):
        return
    with hold(ledger, study):
        said = remove(contents(Home(home), ledger, study), ledger)
    click.echo(f"{study} is deleted" + (f"; {said}" if said else ""))


@click.command()
@_choices
@click.option(
    "-o", "target", type=click.Path(path_type=Path), required=True,
    help="Folder to write, or a file whose name ends in .tar.gz.",
)  # fmt: skip
@click.option("--keep", is_flag=True, help="Leave the study here too.")
def archive(study: str, target: Path, home: str | None, keep: bool, yes: bool, dry_run: bool) -> None:
    """Put a STUDY away into a home of its own, and delete it here.

    Shows first what that frees, and asks. The archive is read back and compared before anything is deleted;
    `adder-search merge` brings it back. Seeds that never ended, and their saved banks, do not go into it.
    """
    from search.store.home import home_flag
    from search.store.removal import archive as put_away
    from search.store.removal import contents, hold, shown
    from search.store.removal import delete as remove

    place, ledger = Home(home), _ledger(home, study)
    found = contents(place, ledger, study)
    click.echo(shown(found))
    _refuse_running(ledger, study, Home(home))
    if dry_run or not (keep or _agreed(f"delete all of {study} once it is in {target}?", yes)):
        return
    with hold(ledger, study) as its, tempfile.TemporaryDirectory(prefix="adder-search-") as scratch:
        merged = put_away(place, ledger, study, target, Path(scratch))
        click.echo(f"{target}: {len(merged.taken)} seeds, read back and the same")
        if merged.left:
            click.echo(f"  {merged.left} that never ended are not in it")
        if not keep:
            its.check()
            said = remove(contents(place, ledger, study), ledger)
            click.echo(f"{study} is deleted here" + (f"; {said}" if said else ""))
    click.echo(f"To bring it back:\n  adder-search merge {target}{home_flag(place)}")


def _ledger(home: str | None, study: str) -> Ledger:
    from search.store.ledger import Ledger

    place = Home(home)
    if not place.exists():
        raise UserError(f"study {study!r} has no records: nothing has run yet in {place.path}")
    return Ledger(place)


def _refuse_running(ledger: Ledger, study: str, home: Home) -> None:
    from search.store.home import home_flag

    if (kept := ledger.study(study)) and kept["owner"]:
        stop = f"adder-search stop {study}{home_flag(home)}"
        raise UserError(f"study {study} is being run by {kept['owner']}; stop it with {stop}")


def _agreed(question: str, yes: bool) -> bool:
    """Whether the user agrees. Raises UserError where nobody can be asked."""
    if yes:
        return True
    if not _is_terminal():
        raise UserError("nothing was deleted: there is no terminal to ask on; give --yes")
    agreed = click.confirm(question)
    if not agreed:
        click.echo("nothing was deleted")
    return agreed


def _is_terminal() -> bool:
    return sys.stdin.isatty()
