"""The rule that gives seeds up, what it counts as progress, and whom it spares."""

import pytest
import torch

from trainer import FUTILITY_RULE, FutilityRule, Recipe, Seed
from trainer.bank.futility import full_length_from, is_control, progress_of

TWO = FutilityRule(checkpoints=((0.3, 0.01, 0.25), (0.7, 0.2, 0.9)))
RULES = pytest.mark.parametrize("rule", [TWO, FUTILITY_RULE])


def calls(rule, progress, exact, token):
    """The rule on one row, or on rows."""
    rows = [torch.atleast_1d(torch.tensor(x, dtype=torch.float32)) for x in (exact, token)]
    progress_R = torch.atleast_1d(torch.tensor(progress, dtype=torch.float64))
    called_R = rule.is_futile(progress_R, *rows)
    assert called_R.dtype == torch.bool
    assert called_R.shape == progress_R.shape
    return called_R.tolist() if isinstance(progress, list) else bool(called_R)


def by_hand(rule, progress, exact, token):
    return any(progress >= p and exact < e and token < t for p, e, t in rule.checkpoints)


# The rule


@RULES
def test_rows_at_once_are_a_loop_over_rows(rule):
    gen = torch.Generator().manual_seed(5)
    rows = torch.rand((2000, 3), generator=gen) * torch.tensor([1.0, 0.4, 1.0])
    progress, exact, token = rows.T.tolist()
    called = calls(rule, progress, exact, token)
    assert called == [by_hand(rule, *row) for row in rows.tolist()]
    assert 100 < sum(called) < 1900


@RULES
def test_a_checkpoint_counts_from_its_progress_on_and_below_both_thresholds(rule):
    first = rule.checkpoints[0][0]
    for progress, exact, token in rule.checkpoints:
        low = (exact - 0.001, token - 0.001)
        assert calls(rule, progress, *low)
        assert calls(rule, progress + 0.01, *low)
        if progress == first:
            assert not calls(rule, progress - 1e-9, *low)
        alone = FutilityRule(((progress, exact, token),))
        assert not calls(alone, progress, exact, token - 0.001), "exact match at the threshold is enough"
        assert not calls(alone, progress, exact - 0.001, token), "so is token accuracy"


# Progress


@pytest.mark.parametrize(
    ("curriculum", "step"),
    [
        (Recipe().curriculum, 7_000),
        ((), 0),
        (((10, 5_000),), 0),
        (((4, 1_000), (10, 5_000)), 1_000),
        (((10, 1_000), (4, 5_000)), 6_000),
        ([[3, 2_000]], 2_000),
        (((3, 0), (6, 0)), 0),
    ],
)
def test_when_a_curriculum_has_taught_all_digits(curriculum, step):
    assert full_length_from(curriculum) == step


def test_progress_begins_where_ten_digits_do_and_ends_with_the_budget():
    step_R = torch.tensor([1_000, 7_000, 33_500, 60_000])
    progress_R = progress_of(step_R, torch.full((4,), 7_000), torch.full((4,), 60_000))
    assert progress_R.tolist() == [-6 / 53, 0.0, 0.5, 1.0]


def test_an_evaluation_exactly_at_a_checkpoint_is_there():
    for steps in (27_000, 30_000, 60_000, 100_000, 120_000):
        for tenths in range(1, 10):
            at = progress_of(*torch.tensor([steps // 10 * tenths, 0, steps]))
            rule = FutilityRule(((tenths / 10, 0.5, 0.5),))
            assert bool(rule.is_futile(at, torch.tensor(0.0), torch.tensor(0.0)))


# The spared tenth


def test_a_tenth_of_the_seeds_is_spared():
    count = sum(is_control(Seed.of(n)) for n in range(10_000))
    assert 900 < count < 1_100
    mixed = sum(is_control(Seed(n % 100, n // 100)) for n in range(10_000))
    assert 900 < mixed < 1_100


def test_who_is_spared_was_fixed_once():
    assert [n for n in range(60) if is_control(Seed.of(n))] == [2, 7, 9, 11]
    assert not any(is_control(Seed(1, n)) for n in range(12))
