"""`python -m benchmarks.stopping` on curves whose answer is known."""

import json
import random

import numpy as np
import pandas as pd
import pytest

from benchmarks import stopping
from benchmarks.recorded import WHO, read
from benchmarks.stopping import Count, called_at, leave_one_out, margin, replay, study_groups
from benchmarks.tuning import PROGRESS, at, tune
from trainer import MEASURES, FutilityRule, Recipe, Seed
from trainer.bank.futility import is_control, upper

STEPS, EVERY = 20_000, 1_000
RULE = FutilityRule(((0.3, 0.01, 0.25), (0.7, 0.2, 0.9)))
KEPT = [n for n in range(200) if is_control(Seed.of(n))]
OTHERS = [n for n in range(200) if not is_control(Seed.of(n))]


def plateau(token=0.2, exact=0.0, steps=STEPS):
    """A loser: the same measures to the end."""
    return {"outcome": "failed", "curve": [(exact, token)] * (steps // EVERY)}


def bloomer(rise, grok, steps=STEPS):
    """A winner: at evaluation `rise` (the first is 1) it gets halfway, at `grok` it is perfect."""
    curve = [
        (0.0, 0.2) if e < rise else (0.5, 0.95) if e < grok else (1.0, 1.0)
        for e in range(1, steps // EVERY + 1)
    ]
    return {"outcome": "grokked", "grok_step": grok * EVERY, "curve": curve}


def record(home, study, seeds, old=False, curriculum=()):
    """A trial's folder as run/worker.py leaves it; `old`: as its first version did. `seeds`: by number."""
    folder = home / study / str(len(list(home.rglob("trial.json"))))
    folder.mkdir(parents=True)
    recipe = Recipe(steps=STEPS, eval_every=EVERY, curriculum=curriculum).as_dict()
    who = {"recipe": recipe, "seeds": [[n, n] for n in seeds]}
    if not old:
        who = {"recipes": {"abc": recipe}, "pairs": [["abc", n, n] for n in seeds], "unknown": 1}
    (folder / "trial.json").write_text(json.dumps({"study": study, "spec": {"family": "x"}, **who}))
    about, rows = [], []
    for n, seed in seeds.items():
        about.append({"grok_step": None, **seed, "steps": len(seed["curve"]) * EVERY})
        for e, (exact, token) in enumerate(seed["curve"], 1):
            rows.append(("abc", n, n, e * EVERY, exact, token, 1.0, 1.0))
    columns = [*WHO, "step", *MEASURES]
    pd.DataFrame(rows, columns=columns).astype({"exact": "float32", "token": "float32"}).to_parquet(
        folder / "curves.parquet"
    )
    (folder / "results.json").write_text(json.dumps({"environment": {}, "seeds": about}))
    return folder


def runs_of(home):
    return read([home])[0]


# Replay


@pytest.mark.parametrize("old", [False, True])
def test_kills_and_savings_are_the_known_ones(tmp_path, old):
    lost, kept, late, early = OTHERS[0], KEPT[0], OTHERS[1], OTHERS[2]
    seeds = {lost: plateau(), kept: plateau(), late: bloomer(8, 12), early: bloomer(3, 5)}
    record(tmp_path, "a", seeds, old)
    # the plateau and the late one are called at step 6,000; the spared one runs on, nothing is saved
    expected = Count(4, 2, 1, 3, 1, steps=4 * STEPS, steps_saved=2 * (STEPS - 6_000))
    assert replay(RULE, runs_of(tmp_path)) == expected
    assert expected.saved == 0.35


def test_progress_counts_from_the_end_of_the_curriculum(tmp_path):
    record(tmp_path, "a", {OTHERS[0]: plateau()}, curriculum=((3, 4_000), (6, 6_000)))
    assert called_at(RULE, runs_of(tmp_path)[0]) == 13_000


def test_a_checkpoint_between_evaluations_counts_at_the_next(tmp_path):
    record(tmp_path, "a", {OTHERS[0]: plateau()})
    (run,) = runs_of(tmp_path)
    assert called_at(FutilityRule(((0.31, 0.1, 0.3),)), run) == 7_000
    assert called_at(FutilityRule(((0.3, 0.1, 0.3),)), run) == 6_000


def test_what_was_good_once_counts(tmp_path):
    curve = plateau()
    curve["curve"][1] = (0.3, 0.95)
    record(tmp_path, "a", {OTHERS[0]: curve})
    assert called_at(RULE, runs_of(tmp_path)[0]) is None


def test_a_decided_seed_is_not_given_up(tmp_path):
    at_the_end = FutilityRule(((1.0, 0.5, 1.0),))
    after_grokking = FutilityRule(((0.0, 1.1, 1.1),))
    record(tmp_path, "a", {OTHERS[0]: plateau(), OTHERS[1]: bloomer(1, 1)})
    lost, won = sorted(runs_of(tmp_path), key=lambda run: run.grokked)
    assert called_at(at_the_end, lost) is None
    assert called_at(after_grokking, won) is None


def test_a_diverged_seed_is_a_loser_that_ran_until_then(tmp_path):
    diverged = {"outcome": "diverged", "curve": [(0.0, 0.2)] * 9 + [(float("nan"), float("nan"))]}
    record(tmp_path, "a", {OTHERS[0]: diverged})
    assert replay(RULE, runs_of(tmp_path)) == Count(1, 0, 0, 1, 0, steps=10_000, steps_saved=4_000)


def test_the_margin_is_how_much_later_a_winner_may_come(tmp_path):
    record(tmp_path, "a", {OTHERS[0]: bloomer(4, 8), OTHERS[1]: plateau()})
    runs = runs_of(tmp_path)
    assert margin(RULE, runs) == 0.1, "at 0.3 it must have what it had at 0.2"
    assert margin(RULE, runs[1:] if runs[0].grokked else runs[:1]) is None
    assert margin(FutilityRule(((0.1, 0.1, 0.3),)), runs) == -1


# What is read


def test_only_seeds_that_ended_by_themselves_count_and_each_once(tmp_path):
    cut = plateau() | {"outcome": "censored"}
    stopped = plateau() | {"outcome": "given_up"}
    record(tmp_path, "a", {1: plateau(), 2: cut, 3: stopped})
    record(tmp_path, "a", {1: plateau(), 4: plateau()})
    runs, left_out = read([tmp_path, tmp_path / "a"])
    assert sorted(run.seed.init_seed for run in runs) == [1, 4]
    assert left_out == {"censored": 1, "given_up": 1}


def test_a_seed_that_was_taken_up_again_is_complete(tmp_path):
    record(tmp_path, "a", {1: plateau() | {"outcome": "censored"}})
    record(tmp_path, "a", {1: plateau()})
    runs, left_out = read([tmp_path])
    assert (len(runs), left_out) == (1, {})


def test_trials_that_have_not_ended_are_passed_over(tmp_path):
    record(tmp_path, "a", {1: plateau()})
    (record(tmp_path, "a", {2: plateau()}) / "results.json").unlink()
    assert len(runs_of(tmp_path)) == 1


# Bounds


def test_upper_bounds_are_clopper_and_pearsons():
    assert upper(0, 20) == pytest.approx(1 - 0.05 ** (1 / 20), abs=1e-12)
    assert upper(0, 300) == pytest.approx(3 / 300, rel=0.01), "the rule of three"
    assert upper(1, 20) == pytest.approx(0.2161, abs=1e-4)
    assert (upper(0, 0), upper(5, 5)) == (1.0, 1.0)


def test_upper_bounds_agree_with_scipy():
    stats = pytest.importorskip("scipy.stats")
    for k, n in ((0, 1), (0, 60), (1, 400), (3, 9), (7, 1_000)):
        assert upper(k, n) == pytest.approx(stats.beta.ppf(0.95, k + 1, n - k), abs=1e-9)


# Tuning


def three_studies(home):
    """Losers that stay at 0.2; winners that rise early in a and b, and in c only after half of the budget."""
    for study, rise in (("a", 2), ("b", 3), ("c", 14)):
        losers = {n: plateau() for n in OTHERS[:20]}
        record(home, study, losers | {OTHERS[20 + e]: bloomer(rise, rise + 4) for e in range(2)})
    return study_groups(runs_of(home))


def test_a_tuned_rule_spares_its_winners_with_a_margin(tmp_path):
    groups = three_studies(tmp_path)
    easy = groups["a"] + groups["b"]
    rule = tune(easy)
    count = replay(rule, easy)
    assert (count.killed, count.given_up) == (0, 40)
    assert count.saved > 0.5
    assert margin(rule, easy) >= 0.1
    everything = [run for runs in groups.values() for run in runs]
    rule = tune(everything)
    assert replay(rule, everything).killed == 0
    assert margin(rule, everything) >= 0.1
    assert rule.checkpoints[0][0] >= 0.8


def test_tuning_sees_what_the_rule_sees(tmp_path):
    """At a checkpoint, the same evaluation and measures, with or without a curriculum."""
    gen = random.Random(5)
    for stages in ((), ((3, 1_300), (6, 5_000))):
        seeds = {n: {"outcome": "failed", "curve": [(gen.random(), gen.random())] * 20} for n in range(50)}
        record(tmp_path, f"{stages}", seeds, curriculum=stages)
    runs = runs_of(tmp_path)
    for progress in PROGRESS:
        exact_R, token_R, rest_R = at(runs, progress)
        rest_R = np.where((exact_R < 0.5) & (token_R < 0.6), rest_R, 0)
        steps = [called_at(FutilityRule(((progress, 0.5, 0.6),)), run) for run in runs]
        assert rest_R.tolist() == [0 if s is None else (STEPS - s) / STEPS for s in steps]
        assert 10 < sum(s is not None for s in steps) < 60


def test_a_study_left_out_is_judged_by_the_others(tmp_path):
    rows = leave_one_out(three_studies(tmp_path))
    assert [rows[name]["killed"] for name in "abc"] == [0, 0, 2]
    assert [len(rows[name]["killed_seeds"]) for name in "abc"] == [0, 0, 2]
    assert rows["c"]["saved"] > rows["a"]["saved"] > 0
    assert rows["c"]["margin"] == -1


def test_tuning_does_not_depend_on_the_order_of_runs(tmp_path):
    runs = [run for g in three_studies(tmp_path).values() for run in g]
    assert tune(runs) == tune(runs[::-1])


def test_without_winners_nothing_is_given_up(tmp_path):
    record(tmp_path, "a", {n: plateau() for n in range(5)})
    assert tune(runs_of(tmp_path)) == FutilityRule(())
    assert leave_one_out(study_groups(runs_of(tmp_path)))["a"]["given_up"] == 0


def test_losers_like_the_winners_cannot_be_told_apart(tmp_path):
    record(tmp_path, "a", {1: bloomer(19, 20), 2: plateau(), 3: plateau()})
    assert tune(runs_of(tmp_path)) == FutilityRule(())


# The command


def test_the_command_prints_and_stores_and_its_proposal_is_python(tmp_path, capsys):
    three_studies(tmp_path)
    out = tmp_path / "stopping.json"
    stopping.main([str(tmp_path), "--json", str(out), "--propose"])
    printed = capsys.readouterr().out
    stored = json.loads(out.read_text())
    assert stored["rule"]["all"]["seeds"] == 66
    assert stored["left_out"]["all"]["killed"] == 2
    assert set(stored["tuned"]["studies"]) == set(stored["left_out"]["studies"]) == set("abc")
    proposal = printed[printed.index("RULE = ") :]
    names = {"Rule": FutilityRule}
    exec(proposal, names)
    assert names["RULE"] == tune(runs_of(tmp_path))
    assert 0 < names["FALSE_KILLS_UPPER"] - stored["false_kills_upper"] < 1e-4


def test_the_command_says_what_it_left_out(tmp_path, capsys):
    record(tmp_path, "a", {1: plateau(), 2: plateau() | {"outcome": "censored"}})
    stopping.main([str(tmp_path)])
    assert capsys.readouterr().out.startswith("left out, not complete: 1 censored\n")


def no_folder(home):
    return home / "nowhere"


def empty(home):
    return home


def none_complete(home):
    record(home, "a", {1: plateau() | {"outcome": "given_up"}})
    return home


def torn(home):
    (record(home, "a", {1: plateau()}) / "results.json").write_text('{"seeds": [')
    return home


def no_recipe(home):
    (record(home, "a", {1: plateau()}) / "trial.json").write_text('{"study": "a", "seeds": [[1, 1]]}')
    return home


@pytest.mark.parametrize("make", [no_folder, empty, none_complete, torn, no_recipe])
def test_bad_folders_are_one_line_and_exit_code_2(tmp_path, capsys, make):
    folder = make(tmp_path)
    with pytest.raises(SystemExit) as exit:
        stopping.main([str(folder)])
    printed = capsys.readouterr()
    assert (exit.value.code, printed.out) == (2, "")
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert str(folder) in printed.err


def test_a_file_that_cannot_be_written_is_said_before_the_work(tmp_path, capsys):
    with pytest.raises(SystemExit) as exit:
        stopping.main([str(tmp_path), "--json", str(tmp_path / "no" / "x.json")])
    assert exit.value.code == 2
    assert capsys.readouterr().err == f"error: {tmp_path / 'no' / 'x.json'}: no such folder\n"
