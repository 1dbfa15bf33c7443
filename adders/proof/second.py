"""Does a submission compute what its proof bounds? `python second.py SUBMISSION.py PROOF.json CHECKPOINT [PAIRS]`.

The submission's numbers and code must be those that the proof names. It is run as it is, on pairs of numbers of which
half carry often and on the proof's own, for the logits of a digit of each. Their gaps must lie between the bounds that
check.py has for that pair alone. Beside check.py it needs torch.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import random
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

try:
    from adders.proof import check
except ImportError:  # as a program, beside it
    import check  # type: ignore[import-not-found,no-redef]

PAIRS, SEED = 10_000, 50
SCALE = 2.0**-15
"""Relative error of a last norm's scale, which bounds leave out."""
ONE_STATE = {state: check.Column([state]) for state in check.EVERY.states}
HARD = (0, 1, 4, 5, 8, 9)
"""Digits that carries are made of."""


def program_digest(text: str) -> str:
    """Return the SHA-256 of a submission's text without the statements that name it: METADATA and PROVENANCE."""
    lines: list[str | None] = list(text.splitlines(keepends=True))
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) in ("METADATA", "PROVENANCE"):
            first, last = statement.lineno - 1, statement.end_lineno or statement.lineno
            lines[first:last] = [None] * (last - first)
    kept = "".join(line for line in lines if line is not None)
    return hashlib.sha256(kept.encode()).hexdigest()


class Outside(ValueError):
    """A logit lies where the proof says that none can."""


class Reader:
    """The bounds of a net's logits, pair by pair."""

    def __init__(self, spec: Any, theta: list[float]):
        self.net = check.net_of(spec, theta)
        self.attention = check.Attention(self.net)
        self.queries = dict[tuple[int, int], check.Query]()

    def gaps(self, a: int, b: int, k: int) -> tuple[int, list[tuple[int, float, float]], float]:
        """Return the right token of digit k, its rivals with the least and the largest gap, and the gaps' scale."""
        x, y, z = ([n // 10**j % 10 for j in range(11)] for n in (a, b, a + b))
        case = []
        for j in range(10):
            carry = (a % 10**j + b % 10**j) // 10**j
            case.append(ONE_STATE[x[j], y[j], carry])
        token = z[k - 1] if k else 0
        if (k, token) not in self.queries:
            self.queries[k, token] = check.Query(self.attention, k, token)
        query = self.queries[k, token]
        units = check.units_of(self.attention)
        box = check.box_around(query, tuple(case), units, is_kept=True)
        logits, _, scale = check.logits_in(query, box)
        right, rivals = check.rivals_of(k, z[min(k, 10)], len(logits))
        gaps = [(v, logits[right] - logits[v]) for v in rivals]
        return right, [(v, gap.value - gap.radius, gap.value + gap.radius) for v, gap in gaps], scale


def some_pairs(count: int) -> list[tuple[int, int]]:
    """Return pairs of numbers, half of them of digits that carry."""
    draws = random.Random(SEED)
    result = []
    for i in range(count):
        digits = HARD if i % 2 else range(10)
        numbers = [draws.choices(digits, k=10) for _ in range(2)]
        a, b = (sum(d * 10**j for j, d in enumerate(row)) for row in numbers)
        result.append((a, b))
    return result


def loaded(path: Path) -> Any:
    """Return a submission's module."""
    about = importlib.util.spec_from_file_location("submission", path)
    assert about and about.loader
    module = importlib.util.module_from_spec(about)
    about.loader.exec_module(module)
    return module


def compare(reader: Reader, submission: Any, pairs: Iterable[tuple[int, int]], every: bool = False) -> int:
    """Return how many gaps of logits were compared: of one digit of each pair, or of every one.

    Raises Outside for the first that lies outside.
    """
    model, _ = submission.build_model()
    draws, compared = random.Random(SEED), 0
    for a, b in pairs:
        prompt = submission.encode(a, b)
        answer = [(a + b) // 10**j % 10 for j in range(11)]
        with torch.no_grad():
            (rows,) = model(torch.tensor([prompt + answer]))
        steps = range(reader.net.steps)
        for k in steps if every else [draws.choice(steps)]:
            right, gaps, scale = reader.gaps(a, b, k)
            row = rows[len(prompt) - 1 + k].tolist()
            for v, least, most in gaps:
                gap = (row[right] - row[v]) * scale
                room = SCALE * max(abs(least), abs(most))
                if not least - room <= gap <= most + room:
                    raise Outside(
                        f"digit {k} of {a} + {b}: {right} is {gap:.6g} above {v}, not {least:.6g} to {most:.6g}"
                    )
                compared += 1
    return compared


def main(submission: str, proof: str, checkpoint: str, count: str = str(PAIRS)) -> None:
    """Print what was compared, or exit with one line."""
    said = check.parsed(check.content(Path(proof)))
    text = Path(submission).read_text(encoding="utf-8")
    if said.get("program_sha256") != program_digest(text):
        sys.exit(f"NOT READ: {proof} is a proof of another program than {submission}")
    spec, theta = check.read(Path(checkpoint))
    reader, program = Reader(spec, check.numbers_of(theta)), loaded(Path(submission))
    worst = said["margin"]["pair"]
    try:
        compared = compare(reader, program, [worst], every=True)
        compared += compare(reader, program, some_pairs(int(count)))
    except Outside as error:
        sys.exit(f"NOT READ: {error}")
    print(f"READ: {compared:,} gaps of logits, of {int(count) + 1:,} pairs, lie where the proof says")


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    main(*sys.argv[1:])
