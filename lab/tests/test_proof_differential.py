"""Prover, check.py and all pairs decoded agree on a slice of the nets at random, and on a broken one they do not."""

import numpy as np
import pytest
import torch

from adders.proof import check, columns
from adders.proof.gaps import Gaps
from lab.scripts import proof_differential as differential
from model import PRESETS

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


def without_the_last(k, s, vocabulary, asked=check.TEN, whole=check.rivals_of):
    right, rivals = whole(k, s, vocabulary, asked)
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


def other_rows(net, whole=check.SplitSubspace.projection):
    """A projection whose columns are another one's."""
    return [row[::-1] for row in whole(net)]


def other_pairs(net, xs, both, whole=check.Rope.turn):
    """Four numbers turned as the other kind of pairs."""
    net.spec["half_split"] = not net.spec["half_split"]
    turned = whole(net, xs, both)
    net.spec["half_split"] = not net.spec["half_split"]
    return turned


def no_ramp(angle, whole=check.waves):
    """The sine of a steeper ramp."""
    return whole(check.Form(3 * angle.value)) if 0 < abs(angle.value) < 0.01 else whole(angle)


FORMS = {
    "toeplitz_q": ("100p", check.SplitSubspace, "projection", other_rows),
    "circulant_q": ("100p", check.SplitSubspace, "projection", other_rows),
    "rank1_q": ("100p", check.SplitSubspace, "projection", other_rows),
    "half_split": ("155p", check.Rope, "turn", other_pairs),
    "sine_input": ("58p-kv", check, "waves", no_ramp),
}
"""Forms that no checkpoint of the notebook has, and what reads them in check.py, broken."""


@pytest.mark.parametrize("form", FORMS)
def test_a_form_that_no_proved_net_has_is_read_as_its_program_has_it(form, monkeypatch):
    """By both: what attention writes lies in their boxes, and logits in their bounds; not where it is read wrongly."""
    name, owner, reader, broken = FORMS[form]
    spec = PRESETS[name] if getattr(PRESETS[name], form) else PRESETS[name].constrained(form)
    theta_P = spec.initial(5) + 0.3 * torch.randn(spec.params, generator=torch.Generator().manual_seed(5))
    net = differential.Drawn("form", spec, theta_P, 2)
    compare(net)
    monkeypatch.setattr(owner, reader, broken)
    with pytest.raises(differential.Fault):
        compare(net)


def compare(net):
    comparison = differential.Comparison(net)
    for k, token in ((0, 0), (1, 4), (3, 0)):
        comparison.compare(k, token)
    assert comparison.row["prover"] == comparison.row["checker"] == "decides"
