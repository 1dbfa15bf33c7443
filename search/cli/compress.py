"""`adder-search compress` and `diagnose`: what a trained θ can bear."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from search.cli.options import checkpoint_argument, json_option, load_checkpoint, writing
from search.errors import UserError, reraise_as

if TYPE_CHECKING:
    from torch import Tensor

    from model import Verification
    from search.compress.descend import Descent, Round
    from trainer.checkpoints.checkpoint import Checkpoint

KINDS = ("zero", "equal", "opposite", "rows", "columns", "empty", "rotation", "other")
REACHES = ("tensor", "values")
kinds_option = click.option(
    "--kinds",
    default=",".join(KINDS),
    show_default=True,
    help="Which constraints, with commas between them; other: a tie loosened for another.",
)
reach_option = click.option(
    "--reach",
    type=click.Choice(REACHES),
    default="values",
    show_default=True,
    help="Tie numbers of one tensor only, or any two.",
)
cores_option = click.option("--cores", type=click.IntRange(1, 1024), help="Threads [all cores].")


@click.command()
@checkpoint_argument
@click.option("-o", "target", type=click.Path(path_type=Path), required=True, help="Folder to write.")
@click.option(
    "--beside",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Another checkpoint of the same model, which must bear every set too; again for more.",
)
@kinds_option
@reach_option
@click.option(
    "--proposals", type=click.IntRange(1, 1024), default=12, show_default=True, help="Sets a round."
)
@click.option(
    "--screen",
    type=click.IntRange(1, 1024),
    default=24,
    show_default=True,
    help="How many times as many are trained briefly first; those with the lowest loss are the round's.",
)
@click.option(
    "--patience",
    type=click.IntRange(1),
    default=40,
    show_default=True,
    help="End when nothing has shrunk for so many rounds.",
)
@click.option(
    "--seeds", type=click.IntRange(1, 64), default=1, show_default=True, help="Data seeds of a set."
)
@click.option("--first-seed", type=click.IntRange(0), default=1, show_default=True, help="The first of them.")
@click.option("--steps", type=click.IntRange(6), default=3_000, show_default=True, help="Training of a set.")
@click.option("--ramp", type=click.IntRange(0), help="Steps until its ties hold fully [half of --steps].")
@click.option(
    "--accept",
    type=click.FloatRange(0.5, 1),
    default=1.0,
    show_default=True,
    help="The share that a set must get right, of problems of our own.",
)
@click.option(
    "--finish",
    type=click.IntRange(0, 1024),
    default=4,
    show_default=True,
    help="How many sets a round that do not hold are taken on by Levenberg-Marquardt.",
)
@click.option("--max-hours", type=click.FloatRange(min=0, min_open=True), help="End after this time.")
@cores_option
@json_option
def compress(
    checkpoint: Path,
    target: Path,
    beside: tuple[Path, ...],
    kinds: str,
    ramp: int | None,
    max_hours: float | None,
    cores: int | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """Find numbers of a CHECKPOINT that are zero or each other, and train it into ties of them.

    A checkpoint is folded first where a fold is known. The same command goes on with a folder's descent.
    """
    from search.compress.descend import Descent, Settings
    from trainer.checkpoints.folded import fold_checkpoint

    start, folds = fold_checkpoint(load_checkpoint(checkpoint))
    _refuse_other(target)
    with reraise_as(checkpoint):
        half = asked["steps"] // 2
        settings = Settings(kinds=_kinds(kinds), ramp=half if ramp is None else ramp, **asked)
        settings.recipe()
        use_cores(cores)
        descent = Descent(start.spec, start.theta_P, settings, target, [_beside(p, start) for p in beside])
    with writing(target):
        target.mkdir(parents=True, exist_ok=True)
        descent.deadline = time.time() + 3600 * max_hours if max_hours else float("inf")
        _descend(descent, start, folds, quiet=as_json)
    its = _finish(descent, start, folds, target)
    if as_json:
        click.echo(json.dumps(_about(descent, its)))
    else:
        click.echo(_text(descent, its, target))


def _beside(path: Path, start: Checkpoint) -> Tensor:
    """θ of another checkpoint of the same form."""
    from model import preset_name
    from trainer.checkpoints.folded import fold_checkpoint

    other, _ = fold_checkpoint(load_checkpoint(path))
    if other.spec != start.spec:
        what = f"{preset_name(other.spec)} beside {preset_name(start.spec)}"
        raise UserError(f"{path}: another model, {what}; a set must be of one that all of them have")
    return other.theta_P


def _kinds(text: str) -> tuple[str, ...]:
    from model.fields import did_you_mean

    kinds = tuple(k.strip() for k in text.split(","))
    for kind in kinds:
        if kind not in KINDS:
            raise UserError(f"--kinds: unknown {kind!r:.80}; {did_you_mean(kind, KINDS)}")
    return kinds


def _refuse_other(target: Path) -> None:
    from search.compress.journal import FILE

    if target.exists() and not (target.is_dir() and (not any(target.iterdir()) or (target / FILE).exists())):
        raise UserError(f"{target}: exists and holds no descent; choose another folder with -o")


def use_cores(cores: int | None) -> None:
    import os

    import torch

    torch.set_num_threads(cores or os.cpu_count() or 1)


def _descend(descent: Descent, start: Checkpoint, folds: tuple[str, ...], quiet: bool) -> None:
    """Rounds with a bar on a terminal and a line each; after every gain the smallest is a checkpoint."""
    from rich.console import Console
    from rich.progress import Progress

    from search.compress.journal import Kept

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
        task = progress.add_task("training", total=None)

        def watch(done: int, of: int) -> None:
            smallest: Kept = descent.journal.kept[descent.journal.smallest()]
            progress.update(task, completed=done, total=of, description=f"{smallest.numbers} numbers")

        descent.watch = watch
        before = descent.journal.smallest()
        for done in descent.rounds():
            if not quiet:
                click.echo(_round_text(descent, done), err=True)
            if descent.journal.smallest() != before:
                before = descent.journal.smallest()
                _checkpoint(descent, start, folds).save(descent.folder)


def _round_text(descent: Descent, done: Round) -> str:
    from model.tied import describe_change

    journal = descent.journal
    best = journal.kept[journal.smallest()]
    head = f"round {done.number}, {journal.seconds:,.0f} s: {best.numbers} numbers"
    if not done.kept:
        most = max((exact for _, exact in done.reached), default=0.0)
        tried = f"none of {len(done.reached)} sets held (best exact match {most:.4f})"
        return f"{head}; from {done.parent.numbers}, {tried}"
    new = min((journal.kept[n] for n in done.kept), key=lambda k: (k.numbers, k.loss))
    loosened, tied = describe_change(descent.base, done.parent.ties, new.ties)
    by = ", ".join([*tied, *(f"not {text}" for text in loosened)])
    return f"{head}; {len(done.kept)} of {len(done.reached)} sets held, {new.numbers} by {by}"


def _checkpoint(descent: Descent, start: Checkpoint, folds: tuple[str, ...]) -> Checkpoint:
    """The smallest kept set as a checkpoint, with every step that led to it."""
    import hashlib

    from model import preset_name
    from model.tied import describe_change
    from trainer.files.installed import code_version

    journal = descent.journal
    n = journal.smallest()
    kept, line = journal.kept[n], journal.lineage(n)
    steps = []
    for a, b in pairwise(journal.kept[n] for n in line):
        loosened, tied = describe_change(descent.base, a.ties, b.ties)
        made = {"numbers": b.numbers, "tied": tied, "loss": b.loss, "data_seed": b.seed}
        by = {"finished_by": "levenberg_marquardt"} if b.finished else {}
        steps.append(made | by | ({"loosened": loosened} if loosened else {}))
    origin = {
        "model": preset_name(start.spec),
        "params": start.spec.params,
        "spec": start.spec.as_dict(),
        "theta_sha256": hashlib.sha256(start.theta_P.numpy().tobytes()).hexdigest(),
        "folds": list(folds),
        "provenance": start.provenance,
    }
    provenance = {
        "trained": "from a parent",
        "compressed_from": origin,
        "descent": steps,
        "sets_tried": len(journal.tried),
        "seed_steps": journal.seed_steps,
    }
    recipe = descent.settings.recipe()
    return replace(
        start,
        spec=descent.spec_of(kept),
        theta_P=descent.theta_of(kept),
        recipe=recipe.as_dict() if steps else start.recipe,
        seed={**start.seed, "data_seed": kept.seed} if kept.seed is not None else start.seed,
        step=recipe.steps if steps else start.step,
        metrics={"best_exact": 1.0, "loss": kept.loss},
        provenance=provenance,
        code=code_version(),
    )


def _finish(descent: Descent, start: Checkpoint, folds: tuple[str, ...], target: Path) -> Verification:
    """Write the smallest set's checkpoint and what `verify` says of it, which no choice has seen."""
    from model import verify

    made = _checkpoint(descent, start, folds)
    its = verify(made.spec, made.theta_P)
    with writing(target):
        made.save(target)
        (target / "verification.json").write_text(json.dumps(its.as_dict(), indent=2) + "\n")
    return its


def _about(descent: Descent, its: Verification) -> dict[str, Any]:
    """What came of a descent, as plain values."""
    from model.tied import count

    journal = descent.journal
    kept = journal.kept[journal.smallest()]
    spec = descent.spec_of(kept)
    by_numbers: dict[int, int] = {}
    for k in journal.kept:
        by_numbers[k.numbers] = by_numbers.get(k.numbers, 0) + 1
    return {
        "params": spec.params, "start": journal.kept[0].numbers, "count": asdict(count(spec)),
        "rounds": journal.rounds, "sets_tried": len(journal.tried), "kept": by_numbers,
        "seconds": journal.seconds, "core_seconds": journal.core_seconds,
        "seed_steps": journal.seed_steps, "ties": _ties(spec),
        "verification": its.as_dict(),
    }  # fmt: skip


def _ties(spec: Any) -> list[str]:
    from model.tied import Tied

    return spec.spelt() if isinstance(spec, Tied) else []


def _text(descent: Descent, its: Verification, target: Path) -> str:
    about = _about(descent, its)
    verdict = "VERIFIED" if its.verified else "QUALIFIED" if its.qualified else "NOT QUALIFIED"
    counts = about["count"]
    return "\n".join(
        [
            f"{target}: {about['start']} numbers tied to {about['params']}, "
            f"{its.correct}/{its.total} {verdict}",
            f"  {about['sets_tried']} sets tried in {about['rounds']} rounds, {about['seconds']:,.0f} s, "
            f"{about['core_seconds']:,.0f} core-seconds",
            f"  {counts['inside']} numbers with ties inside tensors, {counts['across']} with ties across"
            f" tensors, {counts['constants']} with hard-wired constants",
        ]
    )


@click.command()
@checkpoint_argument
@kinds_option
@reach_option
@click.option(
    "--most", type=click.IntRange(1, 500), default=20, show_default=True, help="Constraints to list."
)
@click.option("--problems", type=click.IntRange(1, 5_000), default=2_048, show_default=True)
@click.option("--try", "measure", is_flag=True, help="Impose each constraint and measure the loss.")
@cores_option
@json_option
def diagnose(
    checkpoint: Path,
    kinds: str,
    reach: str,
    most: int,
    problems: int,
    measure: bool,
    cores: int | None,
    as_json: bool,
) -> None:
    """Show which directions of a CHECKPOINT's θ matter, and which constraints would cost least."""
    from search.compress.diagnosis import diagnosed

    wanted = _kinds(kinds)
    use_cores(cores)
    loaded = load_checkpoint(checkpoint)
    with reraise_as(checkpoint):
        found = diagnosed(loaded.spec, loaded.theta_P, wanted, reach, most, problems, measure)
    click.echo(json.dumps(asdict(found)) if as_json else found.text())
