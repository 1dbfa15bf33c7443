"""Does a submission compute what its proof bounds? `python second.py SUBMISSION.py PROOF.json CHECKPOINT [PAIRS]`.

The submission's numbers and code must be those that the proof names. It is run as it is, so look at a stranger's
first: a proof can name any program. It is asked for the logits of one digit of each of many pairs, half of which carry
often, and of all digits of the proof's own pair. Gaps of logits must lie between the bounds that check.py has for that
pair alone. Beside check.py it needs torch.
"""

from __future__ import annotations

import ast
import hashlib
import math
import random
import sys
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

try:
    from adders.proof import check
except ImportError:  # as a program, beside it
    import check  # type: ignore[import-not-found,no-redef]

PAIRS = 10_000
SEED = 50
SCALE = 2.0**-15
"""Relative error of a last norm's scale, which bounds leave out, without the error of what it is the scale of."""
ONE_STATE = {state: check.Column([state], 10) for state in product(range(10), range(10), range(2))}
HARD = (0, 1, 4, 5, 8, 9)
"""Digits whose sums often carry, or would with a carry into their column."""
NAMES = ("METADATA", "PROVENANCE")
"""Variables of the statements that name a submission."""
TYPE = "dict[str, Any]"
"""Their type."""


def program_digest(text: str) -> str:
    """Return the SHA-256 of a submission's text without the statements that name it.

    Only data are left out, in lines of their own: what can do something is a part of the program.
    """
    lines = text.split("\n")
    left_out = set[int]()
    for statement in filter(is_name, ast.parse(text).body):
        own = range(statement.lineno - 1, statement.end_lineno or statement.lineno)
        written = "\n".join(lines[n] for n in own if n < len(lines))
        # a statement that shares a line with another would take that one along
        if ast.get_source_segment(text, statement) == written:
            left_out.update(own)
    kept = [line for n, line in enumerate(lines) if n not in left_out]
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()


def is_name(statement: ast.stmt) -> bool:
    """True of a statement that gives a submission's name or provenance, as a literal."""
    if not isinstance(statement, ast.AnnAssign) or statement.value is None:
        return False
    if ast.unparse(statement.target) not in NAMES or ast.unparse(statement.annotation) != TYPE:
        return False
    try:
        ast.literal_eval(statement.value)
    except ValueError:
        return False
    return True


Ends = tuple[float, float]
"""The least and the largest that a number may be."""


def scale_of(net: check.Net, last: check.Row) -> Ends:
    """Return the ends of a net's `norm_scale`: float32 may have any residual that `last` allows."""
    if net.centres:
        return 1.0, 1.0
    least = [max(abs(x.value) - x.radius, 0.0) for x in last]
    most = [x.size for x in last]
    low = check.inner(least, least) / len(last)
    high = check.inner(most, most) / len(last)
    return math.sqrt(low + net.eps), math.sqrt(high + net.eps)


def is_inside(gap: float, scale: Ends, least: float, most: float) -> bool:
    """True if a gap of logits, times one of its scales, lies from least to most."""
    # a gap below 0 is least at the largest scale
    low, high = sorted(gap * end for end in scale)
    room = SCALE * max(abs(least), abs(most)) + check.TINY
    return high >= least - room and low <= most + room


class Outside(ValueError):
    """A logit lies where the proof says that none can."""


def outside(where: str, right: int, v: int, gap: float, scale: Ends, least: float, most: float) -> str:
    """Return the sentence that a gap does not lie where it must."""
    low, high = scale
    return f"{where}: {right} is {gap:.6g} above {v}, not {least:.6g} to {most:.6g} over {low:.6g} to {high:.6g}"


class Reader:
    """The bounds of a net's logits, pair by pair."""

    def __init__(self, spec: Any, theta: list[float]):
        self.net = check.net_of(spec, theta)
        self.attention = check.Attention(self.net)
        self.queries = dict[tuple[int, int], check.Query]()

    def box(self, a: int, b: int, k: int) -> tuple[check.Query, check.Box]:
        """Return what is asked for as digit k of a + b, and the channels that attention writes there."""
        x, y, z = digits_of(a, b)
        case = []
        for j in range(10):
            below = 10**j
            carry = (a % below + b % below) // below
            case.append(ONE_STATE[x[j], y[j], carry])
        # made once: thousands of pairs ask for some hundred queries
        token = z[k - 1] if k else 0
        if (k, token) not in self.queries:
            self.queries[k, token] = check.Query(self.attention, k, token)
        query = self.queries[k, token]
        units = check.units_of(self.attention)
        return query, check.box_around(query, tuple(case), units, is_kept=True)

    def gaps(self, a: int, b: int, k: int) -> tuple[int, list[tuple[int, float, float]], Ends]:
        """Return the right token of digit k, its rivals with the least and the largest gap, and their scale's ends.

        A gap of logits is to be multiplied by the scale: the last norm's, which no bound has.
        """
        last, _ = check.last_in(*self.box(a, b, k))
        logits = self.net.logits(last)
        _, _, answer = digits_of(a, b)
        right, rivals = check.rivals_of(k, answer[min(k, 10)], len(logits))
        bounds = []
        for v in rivals:
            gap = logits[right] - logits[v]
            bounds.append((v, gap.value - gap.radius, gap.value + gap.radius))
        return right, bounds, scale_of(self.net, last)


def digits_of(a: int, b: int) -> list[list[int]]:
    """Return the digits of two numbers and of their sum, units first."""
    return [[n // 10**j % 10 for j in range(11)] for n in (a, b, a + b)]


def some_pairs(count: int) -> list[tuple[int, int]]:
    """Return pairs of numbers, half of them of digits that carry."""
    draws = random.Random(SEED)
    result = []
    for i in range(count):
        digits = HARD if i % 2 else range(10)
        a = number_of(draws.choices(digits, k=10))
        b = number_of(draws.choices(digits, k=10))
        result.append((a, b))
    return result


def number_of(digits: list[int]) -> int:
    """Return the number whose digits are these, units first."""
    return sum(digit * 10**j for j, digit in enumerate(digits))


def loaded(text: str, path: Path) -> Any:
    """Return a submission's module. path: named in its errors."""
    module = ModuleType("submission")
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


def compare(reader: Reader, submission: Any, pairs: Iterable[tuple[int, int]], every: bool = False) -> int:
    """Return how many gaps of logits were compared: of one digit of each pair, or (every) of all of them.

    Raises Outside for the first that lies outside.
    """
    # The right answer is fed, so that each digit is asked for behind right ones, as in the proof. One digit of a pair
    # is enough: there are many pairs, and a bound takes longer than a run.
    model, _ = submission.build_model()
    draws = random.Random(SEED)
    compared = 0
    for a, b in pairs:
        prompt = submission.encode(a, b)
        _, _, answer = digits_of(a, b)
        with torch.no_grad():
            (rows,) = model(torch.tensor([prompt + answer]))
        steps = range(reader.net.steps)
        for k in steps if every else [draws.choice(steps)]:
            right, gaps, scale = reader.gaps(a, b, k)
            row = rows[len(prompt) - 1 + k].tolist()
            for v, least, most in gaps:
                gap = row[right] - row[v]
                if not is_inside(gap, scale, least, most):
                    raise Outside(outside(f"digit {k} of {a} + {b}", right, v, gap, scale, least, most))
                compared += 1
    return compared


def main(submission: str, proof: str, checkpoint: str, count: str = str(PAIRS)) -> None:
    """Print what was compared, or exit with one line."""
    if not count.isdecimal():
        sys.exit(f"NOT READ: PAIRS must be a whole number, got {count:.40}")
    path = Path(proof)  # the file that a message names
    try:
        said = check.parsed(check.content(path))
        check.margin_of(said["margin"], said["digits"])
        path = Path(submission)
        text = check.content(path).decode().replace("\r\n", "\n")
        # before anything of it is run
        if said.get("program_sha256") != program_digest(text):
            sys.exit(f"NOT READ: {proof} is a proof of another program than {submission}")
        program = loaded(text, path)
        path = Path(checkpoint)
        spec, theta = check.read(path)
        reader = Reader(spec, check.numbers_of(theta))
        if reader.net.asked != check.TEN:
            raise ValueError("a submission adds ten digits in base ten")
    except OSError as error:
        sys.exit(f"NOT READ: {error.filename}: {error.strerror}")
    except Exception as error:  # whatever it is, it is none of ours
        sys.exit(f"NOT READ: {path}: cannot be read ({type(error).__name__}: {error!s:.200})")

    pairs = [said["margin"]["pair"], *some_pairs(int(count))]
    try:
        compared = compare(reader, program, pairs[:1], every=True)
        compared += compare(reader, program, pairs[1:])
    except Outside as error:
        sys.exit(f"NOT READ: {error}")
    print(f"READ: {compared:,} gaps of logits, of {len(pairs):,} pairs, lie where the proof says")


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    main(*sys.argv[1:])
