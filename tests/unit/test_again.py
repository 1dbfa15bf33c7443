"""Beginning again: another vector where a seed has not got somewhere, within the same budget."""

import pytest
import torch

from search.errors import UserError
from search.study.file import parse_study
from tests.banks import EVERY, SPEC, finish, make, pair
from trainer import Outcome, Pair, Recipe, Seed
from trainer.recipe.restarts import is_restart_due, restart_seed

ON = {"again_at": 2 * EVERY, "again_unless": [["token", 1]], "again_most": 2, "steps": 8 * EVERY}
"""Nobody gets there, so all begin again."""


def alone(seed, steps, data_seed=None):
    """The curve of a seed that begins once, of ON's schedules."""
    plain = pair(seed, steps=8 * EVERY)
    bank = make([Pair(plain.recipe, Seed(seed, data_seed or seed))])
    for _ in range(steps // EVERY):
        bank.advance()
    return bank.result(0).curve_EM


def test_whoever_has_not_got_there_begins_again_so_often_and_no_oftener():
    recipe = Recipe(again_at=4_000, again_unless=(("switches", 0.9), ("token", 0.5)), again_most=2)
    low = {"switches": 0.1, "token": 0.2}
    ages = [age for age in range(1_000, 9_000, 1_000) if is_restart_due(recipe, age, 0, low)]
    assert ages == [4_000]
    assert [is_restart_due(recipe, 4_000, before, low) for before in (0, 4_000, 8_000)] == [True, True, False]
    assert not is_restart_due(recipe, 4_000, 0, {**low, "token": 0.5})
    assert not is_restart_due(recipe, 4_000, 0, {**low, "switches": 0.9})
    assert is_restart_due(recipe, 4_000, 0, {**low, "switches": float("nan")})
    assert not is_restart_due(Recipe(), 4_000, 0, low)


def test_each_try_is_a_run_of_its_own_vector_from_step_0_on():
    """The curve is three curves, one after the other, and counts every step."""
    bank = finish(make([pair(3, **ON)]))
    mine = bank.result(0)
    assert mine.steps == 8 * EVERY and bank.seed_steps == 8 * EVERY and mine.outcome is Outcome.FAILED
    parts = [(3, 2), (restart_seed(3, 1), 2), (restart_seed(3, 2), 4)]
    expected = torch.cat([alone(vector, count * EVERY, 3)[:count] for vector, count in parts])
    assert torch.equal(mine.curve_EM, expected) and len({vector for vector, _ in parts}) == 3


def test_whoever_gets_there_goes_on_as_if_nothing_were_asked():
    """At once, or in the second try."""
    reached = {**ON, "again_unless": [["token", 0]]}
    mine = finish(make([pair(3, **reached)])).result(0)
    assert torch.equal(mine.curve_EM, alone(3, 8 * EVERY))

    def reached_by(vector, seed):
        return alone(vector, 2 * EVERY, seed)[:, 1].max().item()

    seed = next(s for s in range(3, 40) if reached_by(s, s) < reached_by(restart_seed(s, 1), s))
    between = (reached_by(seed, seed) + reached_by(restart_seed(seed, 1), seed)) / 2
    mine = finish(make([pair(seed, **{**ON, "again_unless": [["token", between]]})])).result(0)
    expected = torch.cat([alone(seed, 2 * EVERY), alone(restart_seed(seed, 1), 6 * EVERY, seed)])
    assert torch.equal(mine.curve_EM, expected)


@pytest.mark.parametrize(
    ("recipe", "says"),
    [
        ("again_at: 4000", "again_at=4000 needs again_unless"),
        ("again_most: 2", "again_most=2 needs again_at"),
        ("again_at: 4500, again_unless: [[token, 1]]", "eval_every must divide again_at, got 1000 and 4500"),
        ("again_at: 30000, again_most: 2, again_unless: [[token, 1]]", "must leave steps for the last try"),
        ("again_at: 4000, again_unless: [[tokne, 1]]", "unknown probe 'tokne'; did you mean token?"),
        ("again_at: 4000, again_unless: token", "recipe.again_unless: must be a list"),
        ("again_at: 4000, again_unless: [[token]]", "recipe.again_unless: must be pairs"),
    ],
)
def test_what_cannot_be_is_one_clear_line(recipe, says):
    with pytest.raises(UserError) as error:
        parse_study(f"name: x\nmodel: 57p\nrecipe: {{{recipe}}}\nseeds: [1]", "x.yaml")
    assert says in str(error.value) and "\n" not in str(error.value)


def test_a_start_that_is_given_cannot_be_drawn_again():
    given = pair(1, **ON)
    with pytest.raises(ValueError, match="again_at needs vectors that are drawn"):
        make([Pair(given.recipe, given.seed, start=tuple(SPEC.initial(1).tolist()))])
