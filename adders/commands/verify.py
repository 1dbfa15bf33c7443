"""`adder-search verify`: AdderBoard's 10,010 additions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from search.cli.options import (
    checkpoint_argument,
    exit_unless,
    grade,
    home_option,
    json_option,
    load_checkpoint,
    name_of,
    show,
)
from search.errors import Failure, UserError

if TYPE_CHECKING:
    from search.store.home import Home
    from trainer.checkpoints.checkpoint import Checkpoint

SHOWN = 20
"""Number of wrong answers that are named one by one."""


@click.command()
@checkpoint_argument
@click.option("--qualified", is_flag=True, help="Exit with 0 from 99 % on.")
@click.option("--extended", is_flag=True, help="Add ten further sets of 10,000 and carry-stratified sets.")
@home_option
@json_option
def verify(checkpoint: Path, qualified: bool, extended: bool, home: Home, as_json: bool) -> None:
    """Check a CHECKPOINT on AdderBoard's 10,010 additions. Exit code 0 only if all are right."""
    from model import verify as decode_all

    loaded = load_checkpoint(checkpoint)
    result = decode_all(loaded.spec, loaded.theta_P, extended=extended)
    _record_verification(loaded, home, result.correct)
    lines = [f"{name_of(loaded.spec)}: {grade(result)}"]
    if result.margin is not None:
        lines.append(f"  least margin {result.margin:.2g}: of a right digit's logit over the next, in float32")
    wrong = list(dict.fromkeys(result.failures))  # AdderBoard asks some pairs twice
    lines += [f"  {a} + {b} = {a + b}, decoded {answer}" for a, b, answer in wrong[:SHOWN]]
    if len(wrong) > SHOWN:
        lines.append(f"  and {len(wrong) - SHOWN} more (--json lists all)")
    lines += [f"  {name}: {correct}/{total}" for name, (correct, total) in result.extended.items()]
    show(as_json, result.as_dict(), lines)
    exit_unless(result.qualified if qualified else result.verified)


def _record_verification(checkpoint: Checkpoint, home: Home, correct: int) -> None:
    """Count the call with the seed and keep its result, where this home has the seed with this θ."""
    if not (home.exists() and checkpoint.provenance.get("study")):
        return
    from search.store.ledger import Ledger
    from search.tracking.artifacts import record_verification

    try:
        record_verification(Ledger(home), checkpoint, correct)
    except (UserError, Failure) as error:
        click.echo(f"this call could not be recorded: {error}", err=True)
