"""`adder-search compress` and `diagnose`: constraints that a trained θ can bear."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from compress.section import KINDS, SCOPES, check_kinds
from search.cli.options import (
    HOURS,
    PATH,
    FiniteRange,
    checkpoint_argument,
    grade,
    json_option,
    load_checkpoint,
    number_option,
    progress_bar,
    writing,
)
from search.errors import UserError, reraise_as

if TYPE_CHECKING:
    from torch import Tensor

    from compress.candidates import TieCandidate
    from compress.local import LocalDescent
    from model import Verification
    from trainer.checkpoints.checkpoint import Checkpoint

A_ROUND = "A round tries some sets of ties (--proposals): it trains each, and keeps those that still add"
SHOWN = 4
"""Ties of a round that are named."""
kinds_help = "Which constraints, with commas between them; other: a tie loosened for another."
kinds_option = click.option("--kinds", default=",".join(KINDS), show_default=True, help=kinds_help)
reach_option = click.option(
    "--reach", type=click.Choice(list(SCOPES)), default="values", show_default=True,
    help="Tie numbers of one tensor only, or any two.",
)  # fmt: skip
cores_option = click.option("--cores", type=click.IntRange(1, 1024), help="Threads [all cores].")


@click.command()
@checkpoint_argument
@click.option("-o", "target", type=PATH, required=True, help="Folder to write.")
@click.option(
    "--beside", type=PATH, multiple=True,
    help="Another checkpoint of the same model, which must bear every set too; again for more.",
)  # fmt: skip
@kinds_option
@reach_option
@number_option("--proposals", 12, 1, 1024, "Sets a round.")
@number_option(
    "--screen",
    24,
    1,
    1024,
    "How many times as many to train briefly first; the best are the round's.",
)
@number_option("--patience", 40, 1, None, "End when nothing has shrunk for so many rounds.")
@number_option("--seeds", 1, 1, 64, "Data seeds of a set.")
@number_option("--first-seed", 1, 0, 1 << 30, "The first of them.")
@number_option("--steps", 3_000, 6, None, "Training of a set.")
@click.option(
    "--ramp",
    type=click.IntRange(0),
    help="Steps until its ties hold fully [half of --steps].",
)
@click.option(
    "--accept", type=FiniteRange(0.5, 1), default=1.0, show_default=True,
    help="The share that a set must get right, of problems of our own.",
)  # fmt: skip
@click.option(
    "--proved", type=click.Choice(["any", "here"]),
    help="Sets must be proved right on all 10^20 pairs, on any machine or here, and go by their smallest margin.",
)  # fmt: skip
@number_option(
    "--finish",
    4,
    0,
    1024,
    "Sets a round that do not hold and are finished by Levenberg-Marquardt.",
)
@click.option("--max-hours", type=HOURS, help="End after this time.")
@cores_option
@json_option
def compress(
    checkpoint: Path,
    target: Path,
    beside: tuple[Path, ...],
    kinds: str,
    reach: str,
    screen: int,
    ramp: int | None,
    max_hours: float | None,
    cores: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Find numbers of a CHECKPOINT that are zero or each other, and train it into ties of them.

    A checkpoint is folded first where a fold is known. The same command goes on with a folder's descent.
    """
    from adders.folding.folded import fold_checkpoint
    from compress.journal import FILE
    from compress.local import (
        LONGEST,
        LocalDescent,
        Settings,
        summary,
        time_limit,
        to_checkpoint,
    )
    from model import verify

    began = time.monotonic()
    loaded = load_checkpoint(checkpoint)
    start, folds = fold_checkpoint(loaded)
    _refuse_other(target)
    with reraise_as(checkpoint), progress_bar("building", quiet=as_json):
        half = options["steps"] // 2
        settings = Settings(
            kinds=_kinds(kinds),
            scope=SCOPES[reach],
            preview=screen,
            ramp=half if ramp is None else ramp,
            **options,
        )
        settings.recipe(LONGEST)
        use_cores(cores)
        thetas = [start.theta_P, *(_theta_beside(path, start) for path in beside)]
        local = LocalDescent(start.spec, thetas, settings, target)
    with writing(target), progress_bar("proposing sets", quiet=as_json) as say:
        target.mkdir(parents=True, exist_ok=True)
        if not (target / FILE).exists():
            # a folder without it is refused, and time may end before a round does
            local.journal.end_round(local.descent.candidates, local.descent.progress)
        is_late = True  # unless the block comes to its end
        with time_limit(began + 3600 * max_hours - time.monotonic() if max_hours else None):
            _show_rounds(
                local,
                say,
                lambda: to_checkpoint(local, start, folds).save(target),
                quiet=as_json,
            )
            is_late = local.is_late
        say("verifying")
        smallest = to_checkpoint(local, start, folds)
        verification = verify(smallest.spec, smallest.theta_P)
        smallest.save(target)
        (target / "verification.json").write_text(json.dumps(verification.as_dict(), indent=2) + "\n", encoding="utf-8")
    about = summary(local, verification)
    click.echo(json.dumps(about) if as_json else _text(about, verification, target, loaded.spec.params, is_late))


def _theta_beside(path: Path, start: Checkpoint) -> Tensor:
    """Return θ of another checkpoint of the same form."""
    from adders.folding.folded import fold_checkpoint
    from model import preset_name

    checkpoint, _ = fold_checkpoint(load_checkpoint(path))
    if checkpoint.spec != start.spec:
        both = f"{preset_name(checkpoint.spec)} beside {preset_name(start.spec)}"
        raise UserError(f"{path}: another model, {both}; a set must be of one that all of them have")
    return checkpoint.theta_P


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(k.strip() for k in text.split(","))
    with reraise_as("--kinds"):
        check_kinds(kinds)
    return kinds


def _refuse_other(target: Path) -> None:
    from compress.journal import FILE

    if target.exists() and not (target.is_dir() and (not any(target.iterdir()) or (target / FILE).exists())):
        raise UserError(f"{target}: exists and holds no descent; choose another folder with -o")


def use_cores(cores: int | None) -> None:
    """Set the threads of this process; None: all cores."""
    import torch

    from trainer.files.cores import usable_cores

    torch.set_num_threads(cores or usable_cores())


def _show_rounds(local: LocalDescent, say: Callable[..., None], save: Callable[[], None], quiet: bool) -> None:
    """Go through the rounds with a line each; save after every gain."""
    smallest = local.descent.smallest
    local.on_progress = lambda text, *done: say(f"{smallest.numbers:,} numbers, {text}", *done)
    for candidates in local.rounds():
        if not quiet:
            click.echo(_round_text(local, candidates), err=True)
        if local.descent.smallest != smallest:
            smallest = local.descent.smallest
            save()


def _round_text(local: LocalDescent, candidates: list[TieCandidate]) -> str:
    """Return a round in one line: numbers that are left, sets that held, and the ties of the smallest one."""
    from compress.ties import describe_change

    descent = local.descent
    accepted = [c for c in candidates if c.start]
    parent = descent.parent_of(candidates[0])
    seconds = local.journal.seconds
    numbers = descent.smallest.numbers
    head = f"round {descent.progress.rounds}, {seconds:,.0f} s: {numbers:,} numbers"
    if not accepted:
        best = max(c.reached or 0.0 for c in candidates)
        none = f"none of {len(candidates)} sets held (best exact match {best:.4f})"
        return f"{head}; from {parent.numbers:,}, {none}"
    new = min(accepted, key=lambda c: (c.numbers, c.loss))
    loosened, tied = describe_change(local.base, parent.ties, new.ties)
    ties = [*tied, *(f"not {text}" for text in loosened)]
    more = f" and {len(ties) - SHOWN} more" if len(ties) > SHOWN else ""
    by = f"{', '.join(ties[:SHOWN])}{more}"
    return f"{head}; {len(accepted)} of {len(candidates)} sets held, {new.numbers:,} by {by}"


def _text(about: dict[str, Any], verification: Verification, target: Path, before: int, is_late: bool) -> str:
    """Return the outcome of a descent in lines.

    before: numbers of the checkpoint, before it was folded. is_late: its time ended it.
    """
    counts = about["count"]
    start = about["start"]
    lines = [f"  folded from {before:,} to {start:,} numbers, exactly"] if start < before else []
    if not about["rounds"]:
        why = "--max-hours ended the first one, and the same command goes on" if is_late else "no set was left to try"
        lines.append(f"  no round has ended. {A_ROUND}; {why}")
    return "\n".join(
        [
            f"{target}: {start:,} numbers tied to {about['params']:,}, {grade(verification)}",
            *lines,
            f"  {about['sets_tried']:,} sets tried in {about['rounds']:,} rounds, {about['seconds']:,.0f} s, "
            f"{about['core_seconds']:,.0f} core-seconds",
            f"  {counts['across']:,} as AdderBoard has counted, {counts['hidden']:,} with hidden constants;"
            f" {counts['inside']:,} with ties inside tensors alone, {counts['constants']:,} with all constants"
            " (docs/counting.md)",
        ]
    )


@click.command()
@checkpoint_argument
@kinds_option
@reach_option
@click.option(
    "--most",
    "limit",
    type=click.IntRange(1, 500),
    default=20,
    show_default=True,
    help="Constraints to list.",
)
@number_option("--problems", 2_048, 1, 5_000, "Selection problems on which curvature is measured.")
@click.option(
    "--try",
    "measure",
    is_flag=True,
    help="Impose each constraint and measure the loss.",
)
@cores_option
@json_option
def diagnose(
    checkpoint: Path,
    kinds: str,
    reach: str,
    limit: int,
    problems: int,
    measure: bool,
    cores: int | None,
    as_json: bool,
) -> None:
    """Show which directions of a CHECKPOINT's θ matter, and which constraints would cost least."""
    from compress import diagnosis

    wanted = _kinds(kinds)
    use_cores(cores)
    loaded = load_checkpoint(checkpoint)
    with reraise_as(checkpoint), progress_bar("measuring curvature", quiet=as_json):
        result = diagnosis.diagnose(loaded.spec, loaded.theta_P, wanted, SCOPES[reach], limit, problems, measure)
    click.echo(json.dumps(asdict(result)) if as_json else result.text())
