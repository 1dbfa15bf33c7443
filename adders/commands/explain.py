"""`adder-search explain`: a page in which a checkpoint adds, digit by digit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from search.cli.options import (
    PATH,
    check_file,
    home_option,
    load_checkpoint,
    progress_bar,
    target_option,
    write_text,
)
from search.errors import Failure, UserError, reraise_as
from search.plugins import part

if TYPE_CHECKING:
    from search.store.home import Home
    from trainer.checkpoints.checkpoint import Checkpoint


@click.command()
@click.argument("checkpoints", nargs=-1, required=True, type=PATH, metavar="CHECKPOINT [OTHER ...]")
@target_option("Page to write.", required=True)
@click.option(
    "--landscape",
    is_flag=True,
    help="Add the loss around the first one's numbers, on planes.",
)
@click.option(
    "--carries",
    is_flag=True,
    help="Train seeds again: when was each length of carry learned?",
)
@home_option
def explain(
    checkpoints: tuple[Path, ...],
    target: Path,
    landscape: bool,
    carries: bool,
    home: Home,
) -> None:
    """Write a page in which a CHECKPOINT adds any two numbers, digit by digit; up to three side by side.

    The page is one file and needs no network. It runs the model itself, with a slider for every number. Where the
    home has the seed's records, its curve is on the page.
    """
    from adders.explain.explain import MOST, Shown
    from adders.explain.explain import explain as page_of
    from adders.proof.file import own_verdict
    from search.store.verdicts import beside

    if len(checkpoints) > MOST:
        raise UserError(f"give at most {MOST} checkpoints, not {len(checkpoints)}")
    check_file(target)
    names = [path.resolve().name for path in checkpoints]
    loaded = [load_checkpoint(path) for path in checkpoints]
    proofs = list[dict[str, Any] | None]()
    for path, checkpoint in zip(checkpoints, loaded, strict=True):
        spec, theta_P = checkpoint.spec, checkpoint.theta_P
        # neither another user's claim nor a proof of another program is one: the page decides again
        with reraise_as(path):
            proofs.append(own_verdict(beside(path, spec, theta_P), spec, theta_P))
    with progress_bar("reading records") as say:
        trainings = [_training(home, checkpoint) for checkpoint in loaded]
        say("training again" if carries else "looking for the worst pairs")
        learned = [_carries(path, c) if carries else None for path, c in zip(checkpoints, loaded, strict=True)]
        say("measuring the loss around it" if landscape else "looking for the worst pairs")
        html = page_of(list(map(Shown, names, loaded, trainings, learned, proofs)), landscape)
    write_text(target, html)
    click.echo(f"{target}: {' and '.join(names)}, in any browser")


def _training(home: Home, checkpoint: Checkpoint) -> dict[str, Any] | None:
    """Return what the home has of a seed's training. What cannot be read is said, and left out of the page."""
    from adders.explain.recorded import Recorded

    try:
        recorded = Recorded.find(home, checkpoint)
        return recorded.training() if recorded else None
    except (UserError, Failure) as error:
        click.echo(f"its records could not be read: {error}", err=True)
        return None


def _carries(path: Path, checkpoint: Checkpoint) -> dict[str, Any]:
    """Return when a seed learned each length of carry, of training it again. Another plug-in does that."""
    carries = part("carries", "--carries")
    with reraise_as(f"{path}: cannot be trained again"):
        return dict(carries(checkpoint))
