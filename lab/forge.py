"""`adder-search forge`: forgeformer's trace in the terminal, as JSON, or as a page to step through."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from search.cli.options import PATH, json_option, save_checkpoint, show, write_text
from search.errors import UserError, reraise_as

if TYPE_CHECKING:
    from torch import Tensor

    from lab.forged import Forged

EXAMPLE = (37, 46)
NOTES = {
    "x1": "the tokens as vectors",
    "x2": "x1 + attn1 v1: what layer 1 gathered is added",
    "output": "x2 + attn2 v2: what layer 2 gathered is added",
    "q": "x{n} wq{n}: what each token looks for",
    "k": "x{n} wk{n}: what each token is forged by",
    "v": "x{n} wv{n}: what each token hands over",
    "kq": "q{n} k{n}ᵀ: how well row and column match",
    "attn": "softmax of each row of kq{n}: the row's attention, shared out",
}
"""How a state follows from those before it, by name, or by kind in layer n."""


@click.command(short_help="Add two numbers by a transformer forged by hand, step by step.")
@click.argument("operands", nargs=-1, metavar="[A B]")
@click.option("--forging", "name", default="published", show_default=True, help="published, literal, corrected")
@click.option("--page", type=PATH, help="Write the trace as an HTML page to step through.")
@click.option(
    "--ten-digits", "adder", type=PATH, metavar="DIR",
    help="Write the ten-digit adder built by hand as a checkpoint, to verify and export.",
)  # fmt: skip
@json_option
def forge(operands: tuple[str, ...], name: str, page: Path | None, adder: Path | None, as_json: bool) -> None:
    """Add A and B, from 1 to 99, with a transformer forged by hand, and show every number on the way.

    literal takes the end token's id for a digit, and is wrong; corrected makes up for that.
    """
    from lab import forged

    if page and as_json:
        raise UserError("give --page or --json, not both")
    if adder:
        if operands or page or as_json:
            raise UserError("--ten-digits goes alone")
        _write_adder(adder)
        return
    a, b = _operands(operands)
    with reraise_as():
        result = forged.forge(a, b, forged.forging(name))
    if page:
        write_text(page, html(result), "--page")
        click.echo(f"{page}: {a} + {b} step by step, in any browser")
    else:
        show(as_json, result.as_dict(), trace(result))


def _write_adder(target: Path) -> None:
    from lab.forged_numbers import forged_adder
    from trainer.checkpoints.checkpoint import Checkpoint

    spec, theta_P = forged_adder()
    save_checkpoint(Checkpoint(spec, theta_P, provenance={"built_by_hand": "lab/forged_adder.py"}), target)
    click.echo(f"{target}: {spec.params:,} parameters, none of them trained")


def _operands(arguments: tuple[str, ...]) -> tuple[int, int]:
    if not arguments:
        return EXAMPLE
    if len(arguments) != 2:
        raise UserError(f"give two numbers, not {len(arguments)}")
    try:
        a, b = (int(word) for word in arguments)
    except ValueError:
        raise UserError(f"give two integers, not {' and '.join(arguments)}") from None
    return a, b


def trace(forged: Forged) -> str:
    """Return the sum, the states and the reading of the answer, for a terminal of 80 columns or more."""
    from lab.forged import HIGHEST, LOWEST, count_correct

    forging, pairs = forged.forging, (HIGHEST - LOWEST + 1) ** 2
    verdict = "" if forged.correct else f"   WRONG: {forged.a + forged.b}"
    units, tens, carry = forged.units_sum, forged.tens_sum, forged.carry
    head = [
        f"{forged.a} + {forged.b} = {forged.answer}{verdict}",
        f"{forging.name}: {forging.about}",
        f"{forging.params:,} numbers, {forging.nonzero} not 0; right on {count_correct(forging):,} of {pairs:,} pairs",
    ]
    states = [[f"{name:<8}{_note(name)}", *_rows(state)] for name, state in forged.states.items()]
    answer = [
        "answer  read from the row eos of output",
        f"  units sum {units:>4}   accumulator",
        f"  tens sum  {tens:>4}   digit",
        f"  carry     {carry:>4}   1 if the units sum is 10 or more",
        f"  answer    {forged.answer:>4}   ({tens} + {carry}) * 10 + {units % 10}",
    ]
    return "\n\n".join("\n".join(lines) for lines in (head, *states, answer))


def _note(state: str) -> str:
    """Return how a state follows from those before it."""
    return NOTES[state if state in NOTES else state.rstrip("12")].format(n=state[-1])


def _rows(state: Tensor) -> list[str]:
    """Return a state [T, D] or [T, T] as lines: tokens down, dimensions or tokens across."""
    from lab.forged import DIMENSIONS, TOKENS

    across = DIMENSIONS if state.shape[1] == len(DIMENSIONS) else TOKENS
    lines = [" " * 9 + "".join(f"{name:>13}" for name in across)]
    for name, row in zip(TOKENS, state.tolist(), strict=True):
        lines.append(f"  {name:7}" + "".join(f"{number(n):>13}" for n in row))
    return lines


def number(n: float) -> str:
    """Format a number for reading: 13, 0.3333, ~0 for a softmax weight near zero."""
    return "~0" if 0 < abs(n) < 1e-6 else f"{n + 0.0:.4g}"  # + 0.0: no -0


def html(forged: Forged) -> str:
    """Return a self-contained page with all forgings, which begins with this addition."""
    from adders.explain.explain import page
    from lab.forged import DIMENSIONS, FORGINGS, HIGHEST, LOWEST, TOKENS, count_correct

    forgings = [
        {name: getattr(f, name) for name in ("name", "about", "eos_digit", "params", "nonzero")}
        | {"weights": f.weights(), "right": count_correct(f)}
        for f in FORGINGS.values()
    ]
    model = {
        "range": [LOWEST, HIGHEST],
        "start": [forged.a, forged.b, forged.forging.name],
        "tokens": TOKENS,
        "dimensions": DIMENSIONS,
        "forgings": forgings,
    }
    return page(Path(__file__).with_name("forge.html"), model)
