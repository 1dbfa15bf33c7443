"""Prover, check.py and all pairs decoded agree on a slice of the nets at random, and on a broken one they do not."""

import csv

import numpy as np
import pytest

from adders.proof import check, columns
from adders.proof.gaps import Gaps
from lab.scripts import proof_differential as differential

NUMBERS = (2, 6, 11, 25)
"""Of each family; the prover decides of some cases, refutes others and leaves some open."""


def test_they_agree():
    rows = [differential.compared(number) for number in NUMBERS]
    assert {row["fault"] for row in rows} == {""}
    assert {row["family"] for row in rows} == set(differential.KNOWN)
    for verdict in differential.COUNTS:
        assert sum(row[verdict] for row in rows) > 5


def shorter(self, case, whole=check.Side.end):
    """An end of a direction that is a little too near."""
    return whole(self, case) - 0.002 * (self.levels[-1] - self.levels[0])


def nearer(self, direction, cases, whole=columns.Sums.highest):
    value, states = whole(self, direction, cases)
    return value - 0.002 * np.abs(value) - 1e-6, states


def without_the_last(k, s, vocabulary, whole=check.rivals_of):
    right, rivals = whole(k, s, vocabulary)
    return right, rivals[:-1]


def without_carries(self, case):
    """The largest sum of the pairs that do not carry out of an even number of columns."""
    total = self.fixed
    for j, column in enumerate(case):
        total += self.best(j, column)[0]
    return total


def larger(self, channels, right, whole=Gaps.at):
    gaps, scale = whole(self, channels, right)
    return gaps + 0.3 * np.abs(gaps).max(initial=0), scale


BROKEN = {
    "an end of attention in check.py": (check.Side, "end", shorter, 2),
    "an end of attention in the prover": (columns.Sums, "highest", nearer, 2),
    "a rival is forgotten in check.py": (check, "rivals_of", without_the_last, 3),
    "pairs that carry are forgotten in check.py": (check.Sums, "longest", without_carries, 2),
    "gaps of the prover are larger": (Gaps, "at", larger, 3),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_fault_is_found(fault, monkeypatch):
    owner, name, broken, number = BROKEN[fault]
    monkeypatch.setattr(owner, name, broken)
    assert differential.compared(number)["fault"]


def test_the_command_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(differential, "compared", lambda number: {"net": number, "fault": "one, of two parts"})
    path = tmp_path / "rows.csv"
    for count in ("2", "5", "5"):
        differential.main(str(path), count)
    with path.open() as file:
        assert [row["net"] for row in csv.DictReader(file)] == ["0", "1", "2", "3", "4"]
