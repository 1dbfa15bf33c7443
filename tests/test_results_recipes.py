"""What docs/results.md says of recipes for 57 parameters and fewer: pairs, costs, parts left out."""

from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location

import pytest

from search.stats.intervals import discoveries, mcnemar, paired_interval
from search.study.file import load_study
from search.study.trial import Configuration
from tests.test_results_page import DOCS, MEASUREMENTS, RESULTS, table
from trainer.checkpoints.checkpoint import Checkpoint


def test_the_seeds_of_the_first_rate_are_the_ones_that_it_names():
    rows = table("57p-paired-published.csv")
    assert sorted(int(row["init_seed"]) for row in rows) == list(range(310_001, 310_129))
    assert all(row["init_seed"] == row["data_seed"] for row in rows)
    for row in rows:
        if row["outcome"] == "grokked":
            assert row["init_seed"] in RESULTS and f"{float(row['grok_step']):,.0f}" in RESULTS


def test_the_recipe_beside_the_published_one_on_the_same_seeds():
    mine, its = won_of("seeds/robust-128.csv"), won_of("57p-paired-published.csv")
    assert mine.keys() == its.keys() and len(mine) == 128
    alone = [sum(a[s] and not b[s] for s in mine) for a, b in ((mine, its), (its, mine))]
    both = sum(mine[s] and its[s] for s in mine)
    assert f"{alone[0]} with the first alone, {alone[1]} with\nthe second alone, {both} with both" in RESULTS
    assert f"{mcnemar(*alone):.0e}" == "8e-13" and "p = 8 × 10⁻¹³" in RESULTS
    low, high = (100 * end for end in paired_interval(*alone, 128))
    points = 100 * (sum(mine.values()) - sum(its.values())) / 128
    assert f"a difference of {points:.0f} points ({low:.0f} to {high:.0f})" in RESULTS
    rows = table("seeds/robust-128.csv")
    cost = sum(int(row["steps"]) for row in rows) / sum(mine.values())
    assert f"costs {1_000 * round(cost / 1_000):,} seed-steps" in RESULTS
    assert f"costs {1_000 * round(cost / 1_000):,} seed-steps" in (DOCS.parent / "README.md").read_text()
    halves = [sum(mine[s] for s in mine if (int(s) <= 310_064) is first) for first in (True, False)]
    assert f"(the first 64 gave {halves[0]}, the others {halves[1]})" in RESULTS
    late = [r for r in rows if r["outcome"] == "failed" and float(r["best_token"]) >= 0.5]
    assert f"in {sum(float(r['equals_best']) >= 8 for r in late)} of these EQUALS" in RESULTS
    assert max(float(r["equals_best"]) for r in rows if r["outcome"] == "grokked") < 3.85


def test_every_second_seed():
    """What the page says of 57p-anchored beside its rates."""
    rows = table("seeds/half-2-128.csv")
    won = [r for r in rows if r["outcome"] == "grokked"]
    assert sorted(int(r["init_seed"]) for r in rows) == list(range(710_001, 710_129))
    steps = sorted(int(r["grok_step"]) for r in won)
    said = f"at steps {steps[0]:,} to {steps[-1]:,}, half of them by {steps[(len(won) - 1) // 2]:,}"
    assert said in RESULTS
    cost = f"costs {round(sum(int(r['steps']) for r in rows) / len(won), -3):,.0f} seed-steps"
    assert cost in RESULTS and cost in (DOCS.parent / "README.md").read_text()
    ended = sum(r["outcome"] == "screened" for r in rows)
    spared = [r for r in rows if r["screen"] and r["outcome"] != "screened"]
    assert f"not grokked: {ended}; of {len(spared)} more that were spared none" in RESULTS
    assert not any(r["grok_step"] for r in spared)
    near = sum(float(r["best_exact"]) >= 0.8 for r in rows if r not in won)
    assert f"the other losers, {near} got to an exact match of 80 % or better" in RESULTS
    far = [sum(float(r["equals_best"]) >= 8 for r in some) for some in (rows, table("seeds/robust-128.csv"))]
    assert far == [1, 22]
    planned = str(MEASUREMENTS / "studies" / "half-2-128.yaml")
    assert load_study("57p-anchored").listed()[0][1] == load_study(planned).listed()[0][1]


def won_of(*names, **where):
    """Whether a seed grokked, by its number."""
    rows = [row for name in names for row in table(name)]
    found = {row["init_seed"]: row for row in rows if all(row.get(k) == v for k, v in where.items())}
    return {seed: row["outcome"] == "grokked" for seed, row in found.items()}


def test_three_recipes_on_the_same_seeds():
    """57p-anchored beside 57p-robust, and that beside the published recipe on 256, each by pairs."""
    robust, published = (won_of("seeds/three-128.csv", study=f"three-128{arm}") for arm in ("", "-published"))
    anchored = won_of("seeds/half-2-128.csv")
    robust_256 = robust | won_of("seeds/robust-128.csv")
    published_256 = published | won_of("57p-paired-published.csv")
    for one, other, n, p, p_said in (
        (anchored, robust, 128, 0.18, "0.18"),
        (anchored, published, 128, 4e-19, "4 × 10⁻¹⁹"),
        (robust_256, published_256, 256, 2e-26, "2 × 10⁻²⁶"),
    ):  # fmt: skip
        assert one.keys() == other.keys() and len(one) == n
        alone = [sum(a[s] and not b[s] for s in one) for a, b in ((one, other), (other, one))]
        both = sum(one[s] and other[s] for s in one)
        said = f"{alone[0]} with the first alone, {alone[1]} with the second alone, {both} with"
        assert said in RESULTS and p_said in RESULTS[RESULTS.index(said) :][:200]
        assert mcnemar(*alone) == pytest.approx(p, rel=0.2)
        low, high = (round(100 * end) for end in paired_interval(*alone, n))
        points = f"{100 * (alone[0] - alone[1]) / n:.0f} points ({low} to {high})".replace("-", "−")
        assert points in RESULTS[RESULTS.index(said) :][:200]
    plan = load_study(str(MEASUREMENTS / "studies" / "three-128.yaml"))
    assert plan.listed() == load_study("57p-robust-128").listed()


def beside():
    """docs/measurements/beside.py, which compares arms with a whole recipe."""
    spec = spec_from_file_location("beside", MEASUREMENTS / "beside.py")
    found = module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_more_steps_and_earlier_drops_on_the_same_seeds():
    """The table of long-57p is its rows', and the recipe that is shipped is the arm's."""
    rows = table("seeds/long-57p.csv")
    assert sorted({int(r["init_seed"]) for r in rows}) == list(range(720_001, 720_129))
    base, *others = (
        won_of("seeds/long-57p.csv", arm=arm) for arm in ("anchored", "longer", "both", "earlier")
    )
    arms = dict(zip(("longer", "both", "earlier"), others, strict=True))
    for said in beside().table(arms, base, 3):
        assert said.removesuffix("|") in RESULTS
    for arm in ("anchored", *arms):
        its = [r for r in rows if r["arm"] == arm]
        cost = sum(int(r["steps"]) for r in its) / sum(r["outcome"] == "grokked" for r in its)
        line = next(x for x in RESULTS.splitlines() if x.startswith(f"| {arm} | "))
        assert line.endswith(f"| {round(cost, -3):,.0f} |")
    planned = load_study(str(MEASUREMENTS / "studies" / "long-57p.yaml")).listed()
    assert load_study("57p-longer").listed()[0][1] == planned[2][1]
    assert load_study("57p-anchored").listed()[0][1] == planned[1][1]


def test_fewer_numbers_from_scratch_have_the_recipe_that_the_page_names():
    """Same recipe, early end and number of seeds; the certificates are of the lowest verified seeds."""
    anchored, robust = (load_study(name) for name in ("57p-anchored", "57p-robust"))
    for name, like in (
        ("below-46", robust), ("below-46-anchored", anchored), ("below-38", anchored), ("below-36", anchored),
    ):  # fmt: skip
        study = load_study(str(MEASUREMENTS / "studies" / f"{name}.yaml"))
        assert len(study.first_seeds()) == 64 and study.stop.rungs == like.stop.rungs
        for _, recipe in study.listed():
            assert replace(recipe, init=()) == replace(like.listed()[0][1], init=())
    long = load_study(str(MEASUREMENTS / "studies" / "below-36-long.yaml"))
    sooner = {"steps": 100_000, "wd_drop_exact": 0.002, "wd_drop_exact_final": 0.01, "init": ()}
    assert all(replace(r, init=()) == replace(anchored.listed()[0][1], **sooner) for _, r in long.listed())
    longer = load_study(str(MEASUREMENTS / "studies" / "below-34-long.yaml"))
    assert all(replace(r, init=()) == replace(long.listed()[0][1], init=()) for _, r in longer.listed())
    assert [sum(won_of("seeds/below-34-long.csv", arm=arm).values()) for arm in ("32", "28", "22")] == [0] * 3
    assert all(len(won_of("seeds/below-34-long.csv", arm=arm)) == 64 for arm in ("32", "28", "22"))
    for certificate, table_, arm in (
        ("35p-from-scratch", "below-36", "out_B"),
        ("34p-from-scratch", "below-36-long", "34"),
        ("38p-from-scratch", "below-46-anchored", "38"), ("36p-from-scratch", "below-38", "36"),
    ):  # fmt: skip
        seed = Checkpoint.load(DOCS / "certificates" / certificate).seed["init_seed"]
        assert won_of(f"seeds/{table_}.csv", arm=arm)[str(seed)] and f"({seed})" in RESULTS


def test_a_part_left_out_beside_the_whole_recipe():
    """The table is what beside.py prints, and costs and codes are those of the rows."""
    its = beside()
    ablation = MEASUREMENTS / "seeds" / "ablation.csv"
    whole = its.read(MEASUREMENTS / "seeds" / "robust-128.csv")
    arms = {arm: its.read(ablation, arm) for arm in its.arms_of(ablation)}
    assert len(arms) > 0 and "\n".join(its.table(arms, whole, 5)) in RESULTS
    once = [r for r in table("seeds/ablation.csv") if r["arm"] == "without again"]
    twice = [r for r in table("seeds/robust-128.csv") if int(r["init_seed"]) <= 310_064]
    cost = [
        f"{round(sum(int(r['steps']) for r in rows) / sum(r['outcome'] == 'grokked' for r in rows), -3):,.0f}"
        for rows in (once, twice)
    ]
    assert f"costs {cost[0]} seed-steps, with it {cost[1]} (these 64)" in RESULTS
    odd = {at: [r for r in once if float(r[f"odd_{at}"]) > 0.9] for at in (4_000, 20_000)}
    assert f"{len(odd[4_000])} of the seeds are odd at step 4,000 and {len(odd[20_000])} at" in RESULTS
    assert all(r in odd[20_000] for r in once if r["outcome"] == "grokked")
    mixed = [r for r in table("seeds/ablation.csv") if r["arm"] == "without kinds"]
    assert sum(float(r["odd_4000"]) > 0.9 for r in mixed) == 12 and len(mixed) == 32
    first = [r for r in twice if int(r["init_seed"]) <= 310_032]
    assert all(float(r["odd_4000"]) > 0.9 for r in first)
    assert "twelve seeds of the 32 are odd at step 4,000" in RESULTS


def test_the_arms_on_top_of_the_recipe():
    """The table of claims-robust, in its study's order, and which of its arms hurt."""
    arms = {}
    for row in table("claims-robust.csv"):
        arms.setdefault(row["configuration"], {})[row["init_seed"]] = row
    planned = [Configuration(*its).key for its in load_study("claims-robust").listed()]
    assert sorted(arms) == sorted(planned) and all(len(arm) == 64 for arm in arms.values())
    base, known = arms[planned[0]], {r["init_seed"]: r for r in table("seeds/robust-128.csv")}
    for seed, row in base.items():
        same = ("outcome", "steps", "held", "grok_step")
        assert [row[name] for name in same] == [known[seed][name] for name in same]
        assert float(row["best_token"]) == pytest.approx(float(known[seed]["best_token"]), abs=1e-4)
    part = RESULTS[RESULTS.index("**Wrappers, optimisers and schedules") : RESULTS.index("## Finishing")]
    lines = [line for line in part.splitlines() if line.startswith("| ")][1:]
    found = []
    for key, line in zip(planned[1:], lines, strict=True):
        did = [
            (r["outcome"] == "grokked", base[seed]["outcome"] == "grokked") for seed, r in arms[key].items()
        ]
        alone = did.count((True, False)), did.count((False, True))
        found.append(mcnemar(*alone))
        low, high = (100 * end for end in paired_interval(*alone, 64))
        points = f"{100 * (alone[0] - alone[1]) / 64:+.0f} ({low:+.0f} to {high:+.0f})".replace("-", "−")
        grokked = sum(won for won, _ in did)
        assert line.endswith(f" | {grokked} of 64 | +{alone[0]} −{alone[1]} | {points} | {found[-1]:.2g} |")
    assert sum(discoveries(found)) == 8 and "Eight hurt at a false discovery rate of 5 %" in part
    ended = [sum(r["outcome"] == "screened" for r in arms[planned[n]].values()) for n in (0, 1, 2, 8)]
    assert ended == [17, 59, 59, 16] and "ends 59 seeds each of Grokfast and SAM, and 17 of" in part


def test_equals_held_back():
    rows = table("seeds/half.csv")
    late = [r for r in rows if r["outcome"] != "grokked" and float(r["best_token"]) >= 0.5]
    both = [r for r in late if float(r["odd_26000"]) > 0.9 and float(r["switches_26000"]) > 0.95]
    assert len(rows) == 32 and (len(late), len(both)) == (8, 5)
    assert max(float(r["equals_best"]) for r in rows) < 4.5


def test_what_curvature_does_for_the_small_sets():
    """The same seeds with finish_above and without: who grokked in one arm alone."""
    rows = table("sets/one-run-finished.csv")
    said = {
        "15p-777+14p": (21, 2, 19, 0), "15p-777+13p": (15, 0, 15, 0), "15p-777+6p": (8, 8, 2, 2),
        "15p+7p": (18, 19, 0, 1),
    }  # fmt: skip
    for name, counts in said.items():
        won = [
            {
                r["init_seed"]
                for r in rows
                if r["configuration"] == f"{arm}-long {name}" and r["outcome"] == "grokked"
            }
            for arm in ("finished", "plain")
        ]
        assert (*map(len, won), len(won[0] - won[1]), len(won[1] - won[0])) == counts
    assert f"{mcnemar(19, 0):.0e} {mcnemar(15, 0):.0e}" == "4e-06 6e-05"
    verified = [
        r["configuration"] for r in rows if r["configuration"].endswith("+6p") and r["correct"] == "10010"
    ]
    assert verified == ["finished-long 15p-777+6p"] * 2
    assert "(+19 −0, p = 4 × 10⁻⁶)" in RESULTS and "(+15 −0, p = 6 × 10⁻⁵)" in RESULTS
