"""`adder-search pull`, `verify` and `rerun`: checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from search.cli.options import (
    STUDY,
    checkpoint_argument,
    counted_lines,
    exit_unless,
    grade,
    home_option,
    json_option,
    load_checkpoint,
    name_of,
    number_option,
    progress_bar,
    said_of,
    save_checkpoint,
    show,
    target_option,
    trust_option,
)
from search.errors import Failure, UserError, reraise_as

if TYPE_CHECKING:
    from model import Verification
    from search.run.rerun import Rerun
    from search.store.home import Home
    from trainer.checkpoints.checkpoint import Checkpoint

SHOWN = 20
"""Number of wrong answers that `verify` names one by one."""


@click.command()
@click.argument("study", type=STUDY)
@click.option("--best", is_flag=True, help="The best seed of the best configuration (the default).")
@click.option("--seed", help="This seed; 777.804 is the initial values of 777 with the data of 804.")
@click.option("--model", help="Of this preset only, where a study has several.")
@click.option("--configuration", metavar="KEY", help="Of this configuration only; its key, or how it begins.")
@target_option("Folder to write [STUDY-seed].")
@home_option
def pull(
    study: str,
    best: bool,
    seed: str | None,
    model: str | None,
    configuration: str | None,
    target: Path | None,
    home: Home,
) -> None:
    """Fetch a checkpoint (safetensors and JSON) of a STUDY's best or given seed out of the records.

    The best configuration is that of adder-search best whose grok rate's interval begins highest; of equal ones,
    that with most grokked seeds per million seed-steps. Of its grokked seeds a proved one comes first, then one that
    held, then the one that grokked first.
    """
    if best and seed is not None:
        raise UserError("give --best or --seed, not both")
    from search.analysis.best import Choice, choose_best
    from search.stats.counting import WORDS, grokking
    from search.store.pull import pull as fetch
    from search.store.study_records import open_records
    from search.store.verdicts import settle
    from trainer import Outcome, Seed

    with reraise_as("--seed"):
        wanted = None if seed is None else Seed.named(seed)

    records = open_records(home, study)
    choice = Choice(configuration, wanted)
    if wanted is None and configuration is None:
        choice = choose_best(records, model)
    checkpoint, claim = fetch(records, choice.seed, model, choice.configuration)
    proof = settle(claim, checkpoint.spec, checkpoint.theta_P) if claim else None

    number, metrics = Seed(**checkpoint.seed), checkpoint.metrics
    target = target or Path(f"{study}-{number}")
    save_checkpoint(checkpoint, target, proof)
    of = f" of {choice.title}" if choice.title else ""
    click.echo(f"{target}: seed {number}{of}, {checkpoint.spec.params:,} parameters, step {checkpoint.step:,}")
    if metrics["outcome"] == Outcome.GROKKED:
        hold, steps = checkpoint.recipe["hold"], checkpoint.recipe["steps"]
        click.echo(f"  {grokking(metrics['grok_step'], metrics['held'], hold, steps)}")
    else:
        click.echo(f"  {WORDS[metrics['outcome']]}; best exact match {metrics['best_exact']:.4f}")
    for line in filter(None, (proof and said_of(proof), choice.remark)):
        click.echo(f"  {line}")


@click.command()
@checkpoint_argument
@click.option("--qualified", is_flag=True, help="Exit with 0 from 99 % on.")
@click.option("--extended", is_flag=True, help="Add ten further sets of 10,000 and carry-stratified sets.")
@click.option("--run-code", is_flag=True, help="Run a submission, a .py file, in a child without network.")
@number_option("--minutes", 30, 1, 1_440, "Time that a submission has.")
@trust_option
@home_option
@json_option
def verify(
    checkpoint: Path,
    qualified: bool,
    extended: bool,
    run_code: bool,
    minutes: int,
    home: Home,
    as_json: bool,
) -> None:
    """Check a CHECKPOINT on AdderBoard's 10,010 additions. Exit code 0 only if all are right.

    One of another task is checked on edge cases and 10,000 problems of its own, or on all where there are fewer.
    A stranger's submission.py is run, with --run-code, and only its answers are judged.
    """
    from model import verify as decode_all
    from model.tasks import Rows

    if run_code:
        _verify_submission(checkpoint, qualified, extended, minutes, as_json)
    loaded = load_checkpoint(checkpoint, any_task=True)
    result = decode_all(loaded.spec, loaded.theta_P, extended=extended)
    _record_verification(loaded, home, result.correct)

    lines = [f"{name_of(loaded.spec)}: {grade(result)}", *counted_lines(loaded.spec, loaded.provenance)]
    if result.margin is not None:
        lines.append(f"  least margin {result.margin:.2g}: of a right digit's logit over the next, in float32")
    if result.verified and isinstance(loaded.spec.task, Rows):
        lines.append("  these are all problems of the task: proved by enumeration")
    lines += wrong_lines(result, loaded.spec.task)
    lines += [f"  {name}: {correct:,}/{total:,}" for name, (correct, total) in result.extended.items()]
    show(as_json, result.as_dict(), lines)
    exit_unless(result.qualified if qualified else result.verified)


def wrong_lines(result: Verification, task: Any) -> list[str]:
    """Return the first wrong answers in words, and how many more there are."""
    wrong = list(dict.fromkeys(result.failures))  # AdderBoard asks some pairs twice
    lines = []
    for a, b, answer in wrong[:SHOWN]:
        right = task.shown(task.value(a, b))
        lines.append(f"  {task.words(a, b)} = {right}, decoded {task.shown(answer)}")
    if len(wrong) > SHOWN:
        lines.append(f"  and {len(wrong) - SHOWN:,} more (--json lists all)")
    return lines


def _verify_submission(path: Path, qualified: bool, extended: bool, minutes: int, as_json: bool) -> None:
    """Run a submission in a child, show its answers and end the command."""
    from model.tasks import ADDITION
    from search.plugins import part

    if path.suffix != ".py" or not path.is_file():
        raise UserError(f"{path}: --run-code is for a submission, a .py file; a checkpoint needs none")
    if extended:
        raise UserError("--extended is for checkpoints: a submission is asked the 10,010 additions")

    result, open_ways, how = part("submission", "--run-code", "the package adders")(path, minutes)
    params = f"{result.params:,} parameters by its own count" if result.params >= 0 else "it counts no parameters"
    lines = [f"{path.name}, {params}: {grade(result)}"]
    lines += [*wrong_lines(result, ADDITION), f"  {how}"]
    show(as_json, result.as_dict() | {"not_kept_from": open_ways}, lines)
    exit_unless(result.qualified if qualified else result.verified)


def _record_verification(checkpoint: Checkpoint, home: Home, correct: int) -> None:
    """Count the call with the seed and keep its result, where this home has the seed with this θ."""
    if not (home.exists() and checkpoint.provenance.get("study")):
        return
    from search.store.ledger import Ledger
    from search.store.pull import record_verification

    try:
        record_verification(Ledger(home), checkpoint, correct)
    except (UserError, Failure) as error:
        click.echo(f"this call could not be recorded: {error}", err=True)


@click.command()
@checkpoint_argument
@trust_option
@json_option
def rerun(checkpoint: Path, as_json: bool) -> None:
    """Train a CHECKPOINT's configuration and seed again. Exit code 0 only if θ is bitwise the same.

    What the engine trained can be compared on any CPU, with any number of slots and threads. What torch's
    programs trained (on a GPU, or eager) gets the recorded ones. Other seeds of the bank make no difference.
    """
    from search.run.rerun import read_request, train_again

    loaded = load_checkpoint(checkpoint, any_task=True)
    with reraise_as(f"{checkpoint}: cannot be trained again"):
        request = read_request(loaded)
    with progress_bar("building" if request.resources.compiled else "training") as say:
        result = train_again(loaded, request, lambda step: say("training", step, request.steps))
    show(as_json, asdict(result) | {"same": result.same}, list(_rerun_lines(checkpoint, result)))
    exit_unless(result.same)


def _rerun_lines(checkpoint: Path, again: Rerun) -> Iterator[str]:
    stages = f" of the last of {again.stages} stages" if again.stages > 1 else ""
    yield f"{checkpoint}: seed {again.seed} trained again to step {again.step[0]:,}{stages}"
    if again.same:
        yield f"  θ is bitwise the same, all {again.params:,} numbers"
    else:
        different = f"{again.numbers_different:,} of {again.params:,} numbers differ"
        yield f"  θ is not the same: {different}, by {again.largest_difference:.3g} at most (in {again.largest_in})"
        yield "  exact match {:.4f}, trained again {:.4f}".format(*again.exact)
    if again.step[0] != again.step[1]:
        yield f"  trained again, the best θ until there is that of step {again.step[1]:,}"
    if again.by_curvature and not again.same:
        yield "  torch finished it, as all seeds until 2026-11-28: it rounds as the machine does (docs/determinism.md)"
    for name, (was, now) in again.differs.items():
        yield f"  {name}: {was} then, {now} here"
    if again.not_recorded:
        yield f"  the checkpoint does not record: {', '.join(again.not_recorded)}"
    elif not (again.same or again.differs or again.by_curvature):
        yield "  nothing that is recorded of the environment explains it"
