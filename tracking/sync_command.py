"""`adder-search sync`: MLflow, written anew from the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from search.cli.options import STUDY, home_option, progress_bar

if TYPE_CHECKING:
    from search.store.home import Home


@click.command()
@click.argument("studies", nargs=-1, type=STUDY, metavar="[STUDY ...]")
@home_option
def sync(studies: tuple[str, ...], home: Home) -> None:
    """Write in MLflow all that the records have of each STUDY; of all of them if none is named.

    What was deleted there is written again. The store is the home's, or that of MLFLOW_TRACKING_URI; it may be empty.
    """
    from search.errors import Failure, UserError
    from search.store.study_records import open_several
    from tracking.store import connect
    from tracking.sync import sync as write

    opened = open_several(home, studies)
    client = connect(home, creates=True)
    failed: list[UserError | Failure] = []
    for records in opened:
        try:
            # A study of which nothing was begun has nothing to show; one that is named is told so.
            if not (studies or records.get_definition() or records.list_seeds()):
                continue
            with records.lease, progress_bar(f"writing {records.study} to MLflow") as say:
                seeds = write(records, client, lambda: say("writing"))
        except (UserError, Failure) as error:
            failed.append(error)
        else:
            click.echo(f"{records.study}: {seeds:,} seeds are in MLflow")
    if failed:
        raise type(failed[0])("\n".join(map(str, failed)))
