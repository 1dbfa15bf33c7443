"""`python -m benchmarks.screening` on curves whose answer is known."""

from math import inf

import pytest

from benchmarks import screening
from benchmarks.recorded import read
from benchmarks.screening import exact_interval, replay, rung_of, screened_at, tuned
from tests.test_stopping import KEPT, OTHERS, STEPS, bloomer, plateau, record
from trainer.recipe.screen import Rung


def home(folder):
    """Two losers, one of them spared; a winner that comes early and one that comes late; and a spared one."""
    early, late, lost, kept, lucky = OTHERS[0], OTHERS[1], OTHERS[2], KEPT[0], KEPT[1]
    seeds = {
        early: bloomer(3, 8),
        late: bloomer(8, 12),
        lost: plateau(),
        kept: plateau(),
        lucky: bloomer(9, 12),
    }
    record(folder, "a", seeds)
    return folder


def test_a_screen_is_replayed_as_a_bank_would_have_it(tmp_path):
    runs, _ = read([home(tmp_path)])
    count = replay([rung_of("token 0.35 at 5000")], runs, hopeless=False)
    assert (count.seeds, count.winners, count.called, count.killed) == (5, 3, 4, 2)
    assert (count.left, count.left_unspared) == (2, 1)
    assert count.steps == 3 * STEPS + 2 * 5_000 and count.steps_unspared == STEPS + 4 * 5_000
    assert (count.cost, count.cost_unspared) == (35_000, 40_000)
    nothing = replay([], runs, hopeless=False)
    assert (nothing.called, nothing.left, nothing.cost) == (0, 3, 5 * STEPS / 3)


def test_a_rung_looks_at_the_next_evaluation_and_at_nobody_who_has_grokked(tmp_path):
    record(tmp_path, "a", {OTHERS[0]: plateau(), OTHERS[1]: bloomer(1, 4)})
    loser, winner = sorted(read([tmp_path])[0], key=lambda run: run.grokked)
    high = Rung(4_500, (("token", 2.0, inf),))
    assert screened_at(high, loser) == 5_000 and screened_at(high, winner) is None
    assert screened_at(Rung(3_500, high.keep), winner) is None, "it is decided at 4,000"
    assert screened_at(Rung(2_500, high.keep), winner) == 3_000
    assert screened_at(Rung(STEPS, high.keep), loser) is None, "its budget is spent"


def test_tuning_finds_the_cheapest_for_each_recall(tmp_path):
    runs, _ = read([home(tmp_path)])
    found = {count.winners - count.killed: (rung, count) for rung, count in tuned(runs)}
    assert sorted(found) == [0, 1, 2, 3]
    assert [found[kept][0].at for kept in (1, 2)] == [3_000, 8_000], "the first steps at which they show"
    assert found[1][1].killed == 2 and found[1][1].steps_unspared < found[2][1].steps_unspared


def test_exact_intervals_are_clopper_and_pearsons():
    stats = pytest.importorskip("scipy.stats")
    for k, n in ((0, 5), (4, 5), (5, 5), (30, 64)):
        ends = stats.binomtest(k, n).proportion_ci(method="exact")
        assert exact_interval(k, n) == pytest.approx((ends.low, ends.high), abs=1e-9)


def test_the_command_says_what_screens_cost(tmp_path, capsys):
    screening.main([str(home(tmp_path)), "--screen", "token 0.35 at 5000", "--tune"])
    said = capsys.readouterr().out
    assert "token 0.35 at 5000" in said and "1 of 3 (1% to 91%)" in said and "Tuned on these runs" in said


@pytest.mark.parametrize(
    ("text", "error"), [("token at 5", "a screen is written as"), ("basin 1 at 5000", "no probe 'basin'")]
)
def test_a_bad_screen_is_one_clear_line(tmp_path, capsys, text, error):
    with pytest.raises(SystemExit) as exit:
        screening.main([str(home(tmp_path)), "--screen", text])
    assert exit.value.code == 2
    said = capsys.readouterr().err
    assert error in said and said.count("\n") == 1
