"""`adder-search prove`: is a checkpoint right on all 10^20 pairs?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from search.cli.options import (
    checkpoint_argument,
    exit_unless,
    json_option,
    load_checkpoint,
    show,
    target_option,
    write_text,
)
from search.errors import UserError, reraise_as

if TYPE_CHECKING:
    from model import Spec
    from model.proof.prover import Proof

LIMIT_S, DIGITS = 600, 10


@click.command()
@checkpoint_argument
@click.option(
    "--digits", type=click.IntRange(1, DIGITS), default=DIGITS, show_default=True, help="Of the numbers."
)
@click.option(
    "--limit", "limit_s", type=click.IntRange(1), default=LIMIT_S, show_default=True, help="In seconds."
)
@click.option(
    "--level", type=click.Choice(["any", "here"]), help="Of floating point; any, then here, if not set."
)
@click.option("--record", is_flag=True, help="Write the verdict into the folder, for export and thresholds.")
@click.option("--count", "counts", is_flag=True, help="Count the wrong pairs, where there are any.")
@target_option("File to write the proof to, for check.py.")
@json_option
def prove(
    checkpoint: Path,
    digits: int,
    limit_s: int,
    level: str | None,
    record: bool,
    counts: bool,
    target: Path | None,
    as_json: bool,
) -> None:
    """Prove or refute that a CHECKPOINT adds all 10^20 pairs right.

    PROVED, COUNTEREXAMPLE (a pair that the exported program gets wrong), or UNDECIDED. Exit code 0 only if proved.
    """
    from model.proof.count import count_wrong
    from model.proof.file import VERDICT_FILE, proof_text, verdict_of
    from model.proof.prover import COUNTEREXAMPLE, PROVED
    from model.proof.prover import prove as decide
    from model.proof.rounding import MACHINES

    if record and (digits < DIGITS or not checkpoint.is_dir()):
        raise UserError(f"--record writes into a folder, and what holds for {DIGITS} digits")
    loaded = load_checkpoint(checkpoint)
    with reraise_as(checkpoint):
        machine = MACHINES[level] if level else None
        proof = decide(loaded.spec, loaded.theta_P, machine, digits=digits, limit_s=limit_s)
    if target and proof.verdict == PROVED:
        write_text(target, proof_text(loaded.spec, loaded.theta_P, proof))
    values, lines = verdict_of(loaded.spec, loaded.theta_P, proof), list(_lines(loaded.spec, proof))
    if counts and proof.verdict == COUNTEREXAMPLE:
        count = count_wrong(loaded.spec, loaded.theta_P, digits=digits, limit_s=limit_s)
        values["count"] = asdict(count)
        lines.append(f"  {count.wrong:,} pairs are wrong for certain, {count.possible:,} may be")
    if record:
        write_text(checkpoint / VERDICT_FILE, json.dumps(values) + "\n")
    show(as_json, values, lines)
    exit_unless(proof.verdict == PROVED)


def _lines(spec: Spec, proof: Proof) -> Iterator[str]:
    """Yield the verdict and what it rests on."""
    from model import preset_name
    from model.proof.prover import COUNTEREXAMPLE, PROVED

    a, b = proof.pair
    pairs = f"all 10^{2 * proof.digits} pairs"
    head = f"{preset_name(spec)}, {spec.params} parameters: {proof.verdict}"
    if proof.verdict == PROVED:
        yield f"{head} right on {pairs}, at level {proof.level!r}"
    elif proof.verdict == COUNTEREXAMPLE:
        wrong = proof.wrong[0]
        yield f"{head} {wrong.a} + {wrong.b} = {wrong.a + wrong.b}, decoded {wrong.answer}"
    else:
        cases = sum(o.cases for o in proof.open)
        reasons = ", ".join(sorted({o.reason for o in proof.open}))
        yield f"{head}, {cases} of {proof.cases:,} cases are left ({reasons})"
    yield f"  smallest margin {proof.margin:.3g} logits, at digit {proof.digit} of {a} + {b}"
    yield f"  {proof.cases:,} cases, {proof.boxes:,} boxes, {proof.seconds:.1f} s"
