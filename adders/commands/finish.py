"""`adder-search finish`: what is nearly right, taken to where all is right."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from adders.finishing import METHODS
from search.cli.options import (
    checkpoint_argument,
    exit_unless,
    grade,
    json_option,
    load_checkpoint,
    number_option,
    progress_bar,
    refuse_full,
    save_checkpoint,
    show,
    target_option,
)


@click.command()
@checkpoint_argument
@target_option("Folder to write.", required=True)
@click.option(
    "--method",
    "methods",
    type=click.Choice(METHODS),
    multiple=True,
    help="Only this; may be given again, in order [all, until one is enough].",
)
@number_option("--turns", 3, 1, 100, "Of a method, while each helps.")
@number_option("--seed", 1, 0, None, "Of the problems that methods see.")
@json_option
def finish(
    checkpoint: Path,
    target: Path,
    methods: tuple[str, ...],
    turns: int,
    seed: int,
    as_json: bool,
) -> None:
    """Take a CHECKPOINT that gets nearly everything right to where it gets everything right.

    Methods see problems of our own alone, and are judged on others of our own. AdderBoard's 10,010 are
    read once, at the end. Exit code 0 only if all of them are right.
    """
    from adders.acceptance import AcceptanceSet
    from adders.finishing.finish import Turn, finished
    from adders.finishing.finish import finish as run_methods
    from model import verify

    loaded = load_checkpoint(checkpoint)
    refuse_full(target)

    def watch(turn: Turn) -> None:
        counts = f"{turn.wrong:,} wrong, {turn.problems:,} problems"
        if not as_json:
            click.echo(f"  {turn.method}: {counts}, {turn.cpu_s:.1f} core-seconds", err=True)

    with progress_bar("finishing", quiet=as_json):
        exam = AcceptanceSet(loaded.spec)
        result = run_methods(
            loaded.spec,
            loaded.theta_P,
            exam.errors,
            methods or tuple(METHODS),
            turns=turns,
            seed=seed,
            watch=watch,
        )
        better = finished(loaded, result) if result.turns else loaded
        save_checkpoint(better, target)
        verification = verify(better.spec, better.theta_P)
    counts = {"by": result.by, "wrong_before": result.before, "wrong": result.wrong}
    cost = {
        "problems": sum(t.problems for t in result.turns),
        "cpu_s": sum(t.cpu_s for t in result.turns),
    }
    details = {
        "turns": [asdict(turn) for turn in result.turns],
        "verification": verification.as_dict(),
    }
    by = f"by {result.by}" if result.by else "by nothing that was tried"
    changes = f"of {exam.size:,} problems of our own {result.before:,} were wrong and {result.wrong:,} are"
    paid = f"{cost['problems']:,} problems, {cost['cpu_s']:.1f} core-seconds"
    right = f"of {exam.size:,} problems of our own none is wrong: already right; copied"
    text = [
        f"{target}: {grade(verification)}",
        f"  {changes}, {by}; {paid}" if result.turns else f"  {right}",
    ]
    show(as_json, counts | cost | details, text)
    exit_unless(verification.verified)
