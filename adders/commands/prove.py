"""`adder-search prove`: is a checkpoint right on all 10^20 pairs?"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from search.cli.checkpoints import wrong_lines
from search.cli.options import (
    PATH,
    check_file,
    exit_unless,
    home_option,
    json_option,
    load_checkpoint,
    name_of,
    progress_bar,
    right_on,
    said_of,
    show,
    target_option,
    write_text,
)
from search.errors import Failure, UserError, reraise_as
from search.store.home import home_flag

if TYPE_CHECKING:
    from adders.proof.net import Asked
    from adders.proof.prover import Proof
    from model import Spec
    from search.store.home import Home
    from search.store.study_records import StudyRecords
    from trainer.checkpoints.checkpoint import Checkpoint

LIMIT_S = 600
SAMPLED = 20_000
"""Pairs that are decoded of what stays undecided."""
SAMPLE_SEED = 20


@click.command()
@click.argument("checkpoint", type=PATH, required=False)
@click.option(
    "--study",
    help="Instead: the grokked seeds of this study. The records get the verdicts.",
)
@click.option(
    "--digits",
    type=click.IntRange(1, 20),
    help="Of the numbers. Not set: as many as the task has.",
)
@click.option(
    "--limit",
    "limit_s",
    type=click.IntRange(1),
    default=LIMIT_S,
    show_default=True,
    help="In seconds.",
)
@click.option(
    "--level",
    type=click.Choice(["any", "here"]),
    help="Of float32 (docs/proof.md). Not set: any, then here.",
)
@click.option(
    "--record",
    is_flag=True,
    help="Write the verdict into the folder, for export and thresholds.",
)
@click.option(
    "--count",
    "counts",
    is_flag=True,
    help="Count the wrong pairs, where there are any.",
)
@target_option("File to write the proof to, for check.py.")
@home_option
@json_option
def prove(
    checkpoint: Path | None,
    study: str | None,
    digits: int | None,
    limit_s: int,
    level: str | None,
    record: bool,
    counts: bool,
    target: Path | None,
    home: Home,
    as_json: bool,
) -> None:
    """Prove or refute that a CHECKPOINT adds, or subtracts, all pairs right. Of another task, decode every problem.

    PROVED, COUNTEREXAMPLE (a pair that the exported program gets wrong), or UNDECIDED. Exit code 0 only if proved.
    """
    if study and not checkpoint:
        given = {
            "--digits": digits,
            "--level": level,
            "--record": record,
            "--count": counts,
            "-o": target,
        }
        for option in filter(given.get, given):
            raise UserError(f"{option} is of a CHECKPOINT, and does not go with --study")
        _prove_study(home, study, limit_s, as_json)
    if not checkpoint or study:
        raise UserError("give a CHECKPOINT, or --study STUDY")
    from adders.proof.file import verdict_of
    from adders.proof.net import Asked
    from adders.proof.prover import prove as decide
    from adders.proof.rounding import MACHINES
    from model.adderboard import failures
    from model.verdict import COUNTEREXAMPLE, PROVED, UNDECIDED

    # before the proof, which may take minutes
    if record:
        _check_folder(checkpoint, digits)
    if target:
        check_file(target)
    loaded = load_checkpoint(checkpoint, any_task=True)
    by_columns = {"--digits": digits, "--level any": level == "any", "-o": target}
    if not loaded.spec.task.is_measured:
        _other_task(loaded, checkpoint, limit_s, as_json, record, counts, by_columns)
    digits = _digits(loaded.spec, digits)
    with reraise_as(checkpoint), progress_bar("proving", quiet=as_json) as say:
        machine = MACHINES[level] if level else None
        watch = partial(say, "proving")
        proof = decide(loaded.spec, loaded.theta_P, machine, digits=digits, limit_s=limit_s, watch=watch)
    values = verdict_of(loaded.spec, loaded.theta_P, proof)
    lines = list(_lines(loaded.spec, proof))
    if counts and proof.verdict == COUNTEREXAMPLE:
        lines.append(_counted(loaded, digits, limit_s, values))
    if proof.verdict == UNDECIDED:
        if not any(by_columns.values()):
            _decode_few(loaded, checkpoint, limit_s, as_json, counts)
        # UNDECIDED alone does not say how often it is wrong, if it is
        pairs = _some_pairs(digits, Asked.of(loaded.spec.task))
        wrong = len(failures(loaded.spec, loaded.theta_P, pairs))
        values["sampled"] = {"pairs": SAMPLED, "wrong": wrong}
        lines.append(f"  of {SAMPLED:,} pairs at random {wrong:,} are decoded wrongly")
    if record:
        lines += _record(checkpoint, loaded, values)
    show(as_json, values, lines)
    if target:
        click.echo(f"{target}: {_written(target, checkpoint, loaded, proof)}", err=as_json)
    exit_unless(proof.verdict == PROVED)


def _check_folder(folder: Path, digits: int | None) -> None:
    """Raise UserError where a verdict on numbers of so many digits cannot be recorded."""
    from model.verdict import refuse_proof

    if digits or not folder.is_dir():
        raise UserError("--record writes into a folder, and what holds for all digits")
    with reraise_as():
        refuse_proof(folder)


def _record(folder: Path, loaded: Checkpoint, values: dict[str, Any]) -> Iterator[str]:
    """Write a verdict beside a folder's checkpoint. Yield a line where the folder keeps another one."""
    from model.verdict import write_verdict
    from search.store.verdicts import own, sealed

    new = sealed(values)
    kept = write_verdict(folder, loaded.spec, loaded.theta_P, new)
    if kept != new:
        yield f"  not recorded: the folder's verdict is: {said_of(own(kept) or kept)}"


def _counted(loaded: Checkpoint, digits: int, limit_s: float, values: dict[str, Any]) -> str:
    """Count the pairs that are wrong into `values`. Return how many there are, in words."""
    from adders.proof.count import count_wrong
    from adders.proof.rounding import Lost

    try:
        count = count_wrong(loaded.spec, loaded.theta_P, digits=digits, limit_s=limit_s)
    except Lost as lost:
        return f"  wrong pairs are not counted: {lost}"
    values["count"] = asdict(count)
    return f"  {count.wrong:,} pairs are wrong for certain, {count.possible:,} may be"


def _digits(spec: Spec, digits: int | None) -> int:
    """Return of how many digits numbers are. Raises UserError for more than the task has."""
    from model.tasks import in_columns

    most = in_columns(spec.task).digits
    if digits and digits > most:
        raise UserError(f"--digits: {spec.task.title} has {most}, got {digits}")
    return digits or most


def _some_pairs(digits: int, asked: Asked) -> list[tuple[int, int]]:
    """Draw pairs of numbers of so many digits; of a difference the larger one is the first."""
    # always the same pairs, so that two runs of the command say the same
    draws = random.Random(SAMPLE_SEED)
    end = asked.base**digits
    pairs = [(draws.randrange(end), draws.randrange(end)) for _ in range(SAMPLED)]
    return [(max(pair), min(pair)) for pair in pairs] if asked.is_difference else pairs


def _other_task(
    loaded: Checkpoint,
    path: Path,
    limit_s: float,
    as_json: bool,
    record: bool,
    counts: bool,
    by_columns: Mapping[str, object],
) -> None:
    """Refuse options that do not go with a checkpoint's task; decide it by decoding every problem, and end the command.

    Return where proofs by columns are of the task and of the family. by_columns: their options, by name; true where
    they are given.
    """
    from adders.proof.net import FAMILIES, is_by_columns
    from model.tasks import Subtraction, only_addition
    from model.tied import ties_of

    spec, task = loaded.spec, loaded.spec.task
    is_proved = is_by_columns(task) and ties_of(spec)[0].family in FAMILIES
    with reraise_as():
        if record:
            only_addition(task, "--record")
    if counts and is_proved and isinstance(task, Subtraction):
        raise UserError(f"--count counts wrong sums, and this model's task is {task.title}")
    if is_proved:
        return
    for option in filter(by_columns.get, by_columns):
        columns = "of proofs by columns: of a + b and of a - b, a >= b, in families of columns"
        raise UserError(f"{option} is {columns}; {task.title} is decoded, problem by problem")
    _decode(loaded, path, limit_s, as_json, counts)


def _decode_few(loaded: Checkpoint, path: Path, limit_s: float, as_json: bool, counts: bool) -> None:
    """Decide what a proof by columns left undecided by decoding every problem, and end the command.

    Return where there are too many problems.
    """
    from adders.proof.enumeration import MOST, count

    if count(loaded.spec.task) <= MOST:
        _decode(loaded, path, limit_s, as_json, counts)


def _decode(loaded: Checkpoint, path: Path, limit_s: float, as_json: bool, counts: bool) -> NoReturn:
    """Decide a checkpoint by decoding every problem of its task, and end the command."""
    from adders.proof.enumeration import count, decode_all
    from model.verdict import COUNTEREXAMPLE, PROVED, UNDECIDED

    task = loaded.spec.task
    with reraise_as(path), progress_bar("decoding", quiet=as_json) as say:
        result = decode_all(loaded.spec, loaded.theta_P, limit_s=limit_s, counts=counts, watch=partial(say, "decoding"))
    whole = count(task)
    said = f"{result.correct:,} of the {result.total:,} problems that this machine decoded are right, of {whole:,}"
    if result.failures:
        verdict = COUNTEREXAMPLE
    elif result.total == whole:
        verdict = PROVED
        said = f"right on all {whole:,} problems of the task, which this machine decoded"
    else:
        verdict = UNDECIDED
    lines = [f"{name_of(loaded.spec)}: {verdict}, {said}"]
    if result.margin is not None:
        lines.append(f"  smallest margin of a right answer {result.margin:.3g} logits")
    lines += wrong_lines(result, task)
    values = {"verdict": verdict, "level": "here", "task": str(task), "problems": whole}
    show(as_json, values | result.as_dict(), lines)
    exit_unless(verdict == PROVED)


def _written(target: Path, folder: Path, loaded: Checkpoint, proof: Proof) -> str:
    """Write a proof of a folder's checkpoint. Return what became of it, and the command that checks it."""
    from adders.proof.file import CHECKER, proof_text
    from model.verdict import PROVED
    from search.store.home import typed

    if proof.verdict != PROVED:
        return "not written, as there is no proof"
    write_text(target, proof_text(loaded.spec, loaded.theta_P, proof))
    if proof.level != "any":
        return "the proof; check.py knows level any alone"
    # a shorter command, where one goes on from the repository
    here = Path.cwd()
    checker = CHECKER.relative_to(here) if CHECKER.is_relative_to(here) else CHECKER
    return f"the proof; python {typed(checker)} {typed(target)} {typed(folder)} checks it"


def _prove_study(home: Home, name: str, limit_s: int, as_json: bool) -> None:
    """Decide a study's grokked seeds, one line per seed, and end the command."""
    from adders.commands.prove_study import prove_study
    from model.verdict import is_right
    from search.stats.counting import proof_counts
    from search.store.study_records import open_records

    records = open_records(home, name)
    with records.lease, progress_bar("proving grokked seeds", quiet=as_json):
        for row, proof in prove_study(records, limit_s):
            if not as_json:
                click.echo(f"seed {row.seed} of {row.configuration[:6]}: {said_of(proof)}")
        _show_in_mlflow(records)
    rows = [row for row in records.list_seeds() if row.has_grokked]
    verdicts = [is_right(row.proof) for row in rows]
    proved = verdicts.count(True)
    wrong = verdicts.count(False)
    undecided = verdicts.count(None)
    text = f"{name}: of {len(rows)} grokked seeds {proved} are proved, {wrong} are wrong, {undecided} are undecided"
    seeds = []
    for row in rows:
        about = {"configuration": row.configuration, "seed": str(row.seed)}
        seeds.append(about | (row.proof or {}))
    counts = {
        "grokked": len(rows),
        **proof_counts(rows),
        "wrong": wrong,
        "undecided": undecided,
    }
    show(as_json, {"study": name, **counts, "seeds": seeds}, text)
    exit_unless(0 < len(rows) == proved)


def _show_in_mlflow(records: StudyRecords) -> None:
    """Write the verdicts to MLflow. Where that fails they are recorded all the same, and a line says how to go on."""
    from tracking.store import connect
    from tracking.sync import sync

    try:
        sync(records, connect(records.home), only_stale=True)
    except (Failure, UserError) as error:
        again = f"adder-search sync {records.study}{home_flag(records.home)}"
        click.echo(
            f"{error}; the verdicts are recorded, and `{again}` writes them to MLflow",
            err=True,
        )


def _lines(spec: Spec, proof: Proof) -> Iterator[str]:
    """Yield the verdict and what it rests on."""
    from adders.proof.net import Asked
    from model.verdict import COUNTEREXAMPLE, PROVED

    a, b = proof.pair
    task = spec.task
    head = f"{name_of(spec)}: {proof.verdict}"
    if proof.verdict == PROVED:
        asked = Asked.of(task)
        pairs = "" if spec.adds else f"{asked.base}^{2 * proof.digits}"
        if asked.is_difference:
            pairs = f"{asked.pairs(proof.digits):,} (a >= b)"
        yield f"{head} {right_on(proof.digits, proof.level, pairs)}"
    elif proof.verdict == COUNTEREXAMPLE:
        wrong = proof.wrong[0]
        problem = task.words(wrong.a, wrong.b)
        right = task.value(wrong.a, wrong.b)
        yield f"{head} {problem} = {right}, decoded {wrong.answer}"
    else:
        cases = sum(o.cases for o in proof.open)
        reasons = ", ".join(sorted({o.reason for o in proof.open}))
        yield f"{head}, {cases} of {proof.cases:,} cases are left ({reasons})"
    if proof.cases:
        yield f"  smallest margin {proof.margin:.3g} logits, at digit {proof.digit} of {task.words(a, b)}"
    yield f"  {proof.cases:,} cases, {proof.boxes:,} boxes tried, {proof.seconds:.1f} s"
