"""docs/results.md and docs/claims.md hold what the commands and the tables beside them say."""

import csv
import re
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import yaml

from search.claims.claim import claims
from search.claims.judge import judge
from search.claims.trained import read as read_checkpoints
from search.stats.intervals import Paired, wilson
from search.study.file import load_study, shipped_studies
from search.study.seeds import seed_list
from search.study.trial import Configuration
from tests.commands import call

DOCS = Path(__file__).parents[1] / "docs"
MEASUREMENTS = DOCS / "measurements"
RESULTS = (DOCS / "results.md").read_text()
LAST = "## Measured before, and not to be counted again"
COUNTED = {"grokked", "failed", "diverged", "given_up", "screened"}
RATE = re.compile(r"\*{0,2}(?<![\d,.])(\d+(?:,\d{3})*) of (?:the )?(\d+(?:,\d{3})*)(?!\d|,\d|p)\*{0,2}")
PROBLEMS = {"5,000", "10,010", "50,000", "54,400", "100,000", "111,000", "1,000,000"}
"""Denominators that count additions, and no seeds."""
RATES = yaml.safe_load((MEASUREMENTS / "rates.yaml").read_text())


def rates_of(text):
    """What a text says of seeds: `k of n`, with its stars."""
    return [found.group() for found in RATE.finditer(text) if found.group(2) not in PROBLEMS]


@cache
def table(name):
    with (MEASUREMENTS / name).open() as file:
        return [row for row in csv.DictReader(file) if row["outcome"] in COUNTED]


def rows_of(rate):
    """The rows of seeds that a rate is of."""
    wanted = {name: set(map(str, values)) for name, values in rate.get("where", {}).items()}
    rows = [row for row in table(rate["table"]) if all(row[name] in of for name, of in wanted.items())]
    rows += rows_of(rate["and"]) if "and" in rate else []
    if rate.get("also") == "other data":
        return [row for row in rows if row["init_seed"] != row["data_seed"]]
    return rows


def succeeds(rate, row):
    if rate.get("also") == "wide":
        return row["grok_step"] == "wide"
    if str(rate.get("also", "")).startswith("token "):
        return float(row["best_token"]) >= float(rate["also"].split()[1])
    if str(rate.get("also", "")).startswith("rise "):
        return float(row["rise"]) <= float(rate["also"].split()[1])
    if str(rate.get("also", "")).startswith("tries "):
        return row["tries"] == rate["also"].split()[1]
    return row["outcome"] == "grokked"


def test_a_rate_is_found_however_it_is_written():
    text = "grokked for **5 of 128** seeds, 2 of the 64; 10,010 of 10,010 right, seed 43 of 456p, 1 of 8 |"
    assert rates_of(text) == ["**5 of 128**", "2 of the 64", "1 of 8"]


def test_every_rate_of_the_page_has_its_table():
    """In the page's order, but for the last section, which says of itself that its rows are gone."""
    page, last = RESULTS.split(LAST)
    assert rates_of(page) == [rate["says"] for rate in RATES]
    assert "cannot be counted again" in last and rates_of(last)


@pytest.mark.parametrize("rate", RATES, ids=lambda r: f"{r['says']} {r['table']}")
def test_a_rate_is_what_its_rows_say(rate):
    rows = rows_of(rate)
    seeds = [(row["configuration"], row["init_seed"], row["data_seed"]) for row in rows]
    assert rows and len(set(seeds)) == len(rows)
    k, n = sum(succeeds(rate, row) for row in rows), len(rows)
    said = rate["says"].strip("*").replace(",", "").replace("the ", "").split(" of ")
    assert [k, n] == [int(number) for number in said]
    if rate.get("interval"):
        low, high = wilson(k, n)
        around = f"({100 * k / n:.1f} %, {100 * low:.1f}–{100 * high:.1f} %"
        assert around in RESULTS[RESULTS.index(rate["says"]) :][:200]


def test_the_old_constraint_table_is_what_the_command_prints_of_its_records():
    said = call("table", MEASUREMENTS / "constraints.parquet", "--paper", "--ui", "")
    assert said.exit_code == 0 and len(said.stdout) > 2_000
    assert said.stdout.strip() in RESULTS


def test_the_column_of_57p_is_what_the_command_prints_of_its_records():
    said = call("table", MEASUREMENTS / "claims-kinds.parquet", MEASUREMENTS / "claims-kinds.csv", "--ui", "")
    assert said.exit_code == 0, said.stderr
    grid = said.stdout.split("\n\n")[1]
    assert grid.count("\n") > 7 and grid in RESULTS


CHOSEN = {"claims-chosen"}
"""Studies that say of themselves that their seeds are chosen."""


def test_no_study_begins_with_seeds_that_confirmed_a_recipe():
    """Whoever runs a study that is shipped gets fresh evidence, not the seeds by which it was chosen."""
    shipped_ = {name: load_study(name) for name in shipped_studies().keys() - CHOSEN}
    used = {s for study in shipped_.values() if study.confirm for s in seed_list(study.confirm.seeds)}
    used |= {
        s
        for p in (DOCS / "measurements" / "studies").glob("confirm-*")
        for s in load_study(str(p)).first_seeds()
    }
    assert len(used) >= 64
    assert [name for name, study in shipped_.items() if used.intersection(study.first_seeds())] == []


def test_the_page_of_claims_is_what_the_command_prints():
    """Of every table of seeds and every certificate that is kept beside it."""
    page = (DOCS / "claims.md").read_text()
    (line,) = [line.split() for line in page.splitlines() if line.startswith("    adder-search claims ")]
    given = [sorted(DOCS.parent.glob(pattern)) for pattern in line[2:]]
    assert all(given)
    said = call("claims", *(path for paths in given for path in paths))
    assert said.exit_code == 0, said.stderr
    assert said.stdout.strip() in page
    count = re.search(r"(\d+) claims: (\d+) hold, (\d+) do not hold, (\d+) are open", page)
    total, holds, fails, still_open = map(int, count.groups())
    said = f"Of {total} claims of the three papers {holds} hold by our own runs, {fails} do not, and "
    assert f"{said}{still_open} are open" in RESULTS
    assert total >= 40 and holds + fails >= 20 and holds + fails + still_open == total


@pytest.mark.parametrize("study", ["57p-anchored", "57p-longer", "57p-robust", "fade", "luck", "constraints"])
def test_a_study_that_the_page_names_comes_with_the_package(study):
    assert f"`{study}`" in RESULTS
    assert study in call("studies").stdout.split()


def test_what_one_run_came_to_is_what_its_table_says():
    with (MEASUREMENTS / "sets" / "one-run.csv").open() as file:
        rows = list(csv.DictReader(file))
    part = RESULTS[RESULTS.index("## One run from random values") : RESULTS.index("## The ladder")]
    arms = {(row["arm"], row["numbers"]) for row in rows}
    by = {key: [r for r in rows if (r["arm"], r["numbers"]) == key] for key in arms}
    grokked = {key: [r for r in mine if r["outcome"] == "grokked"] for key, mine in by.items()}
    wide = {key: [r for r in mine if r["grok_step"] == "wide"] for key, mine in by.items()}
    for key in arms - {key for key in arms if key[0] == "without"}:
        assert (len(by[key]), len(wide[key])) == ((64, 12) if key[0] == "long" else (16, 4))
    for key, stars in ((("with", "28@17p"), "**"), (("long", "15p"), ""), (("long", "15p+7p"), "**")):
        k, n = len(grokked[key]), len(by[key])
        low, high = (f"{100 * end:.0f}" for end in wilson(k, n))
        assert part.count(f"| {stars}{k} of {n}{stars} ({low}–{high} %) |") == 1
    assert [r["correct"] for r in grokked["with", "28@17p"]] == ["10010"] * 4
    assert [r["correct"] for r in grokked["long", "15p+7p"]] == ["10010"] * 10
    assert sorted(r["correct"] for r in grokked["long", "15p"]) == ["10005", "10007", "10008", "10008"]
    assert "(10,005 to 10,008 of 10,010)" in part and "ten at 100 %, each 10,010 of 10,010" in part
    some = {key: len(found) for key, found in grokked.items() if found}
    assert some == {("with", "28@17p"): 4, ("long", "15p+7p"): 10, ("long", "15p"): 4}
    for numbers in ("22", "17"):
        count = len(by["without", numbers])
        assert f"0 of {count} (0–{100 * wilson(0, count)[1]:.0f} %)" in part
    for key in (("with", "18@17p"), ("with", "17"), ("staged", "17")):
        shares = ", ".join(f"{100 * float(r['best_exact']):.2f}" for r in wide[key])
        assert f"{shares} %" in part
    assert ", ".join(f"{100 * float(r['best_exact']):.0f}" for r in wide["with", "12"]) + " %" in part


def test_what_one_run_with_the_better_wide_stage_came_to():
    with (MEASUREMENTS / "sets" / "one-run-robust.csv").open() as file:
        rows = list(csv.DictReader(file))
    part = RESULTS[RESULTS.index("## One run from random values") : RESULTS.index("## The ladder")]
    by = {n: [r for r in rows if (r["arm"], r["numbers"]) == ("robust-long", n)] for n in ("15p", "15p+7p")}
    right = {n: sorted(r["correct"] for r in mine if r["outcome"] == "grokked") for n, mine in by.items()}
    assert right["15p+7p"] == ["10010"] * 15
    assert right["15p"] == ["10005", "10008", *["10010"] * 4]
    for numbers, mine in by.items():
        assert [int(r["init_seed"]) for r in mine] == list(range(800_001, 800_065))
        low, high = (f"{100 * end:.0f}" for end in wilson(len(right[numbers]), 64))
        assert part.count(f"| **{len(right[numbers])} of 64** ({low}–{high} %) |") == 1
        assert sum(r["grok_step"] == "wide" and float(r["best_exact"]) == 0 for r in mine) == 10
    mirrored = [r for r in rows if (r["arm"], r["numbers"]) == ("mirrored-long", "15p+7p")]
    more = [r for r in mirrored if r["outcome"] == "grokked"]
    assert {r["correct"] for r in more} == {"10010"} and len(mirrored) == 64
    before = {r["init_seed"] for r in by["15p+7p"] if r["outcome"] == "grokked"}
    assert len({r["init_seed"] for r in more} - before) == 6 and before < {r["init_seed"] for r in more}
    assert "**21 of 64** ({:.0f}–{:.0f} %), post hoc".format(*(100 * end for end in wilson(21, 64))) in part


def test_what_luck_is_made_of_is_what_its_rows_say():
    """Counts and shares of both designs, at step 6,000; the intervals are luck_shares.py's to print."""
    part = RESULTS[RESULTS.index("**Vectors, data and rounding") : RESULTS.index("**Starts cannot be told")]
    spec = spec_from_file_location("luck_shares", MEASUREMENTS / "luck_shares.py")
    luck = module_from_spec(spec)
    spec.loader.exec_module(luck)
    rows = MEASUREMENTS / "luck-64-early.csv"
    for name, x_VDR in luck.read(rows, 6_000, ["as-built", "contracted"]).items():
        shares = {of: f"{100 * share:.0f}" for of, share in luck.shares(x_VDR).items()}
        counted, (vector, data, rounding) = rf"\| {int(x_VDR.sum())} / {x_VDR.size} \|", shares.values()
        said = f"{counted} {vector} % .*{data} % .*{rounding} % "
        assert re.search(said, part), (name, said)
    for name, x_VDR in luck.read(rows, 6_000, ["as-built"]).items():
        said = rf"{100 * luck.shares(x_VDR)['vector']:.0f} %[^%]*{int(x_VDR.sum())} / {x_VDR.size}"
        assert re.search(said, part), (name, said)
    whole = luck.read_whole(MEASUREMENTS / "luck-64.csv", ["as-built", "contracted"])
    for x_VDR in whole.values():
        shares = " ".join(rf"\| {100 * share:.0f} % \S+" for share in luck.shares(x_VDR).values())
        assert re.search(rf"\| {int(x_VDR.sum())} / {x_VDR.size} {shares}", part), shares
    won_VDR = whole["grokked"]
    by_rounding, of_vector = won_VDR.sum((0, 1)), won_VDR.sum((1, 2))
    assert f"As built {by_rounding[0]:.0f} of 256 grokked, in the other rounding {by_rounding[1]:.0f}" in part
    assert f"{won_VDR.prod(2).sum():.0f} of them are the same" in part
    assert [(of_vector == n).sum() for n in (8, 7, 6, 0)] == [2, 3, 2, 48] and "the other 48 never" in part


def test_what_a_grokked_seed_costs_is_what_the_rows_say():
    rows = table("kinds-57p.csv")
    for key, said in (("8bba8e0fa76e", "116,000 seed-steps"), ("02914ef60edd", "150,000")):
        mine = [row for row in rows if row["configuration"] == key]
        cost = sum(int(row["steps"]) for row in mine) / sum(row["outcome"] == "grokked" for row in mine)
        assert f"{round(cost, -3):,.0f}" in said and said in RESULTS.replace("\n", " ")


def test_what_claims_kinds_shows_is_what_its_rows_say():
    """The p of each arm that the page names, and that the arms without a success have none."""
    study = load_study("claims-kinds")
    rows = {entry.name: {} for entry in study.configurations}
    names = {Configuration(*c).key: e.name for c, e in zip(study.listed(), study.configurations, strict=True)}
    for row in table("claims-kinds.csv"):
        rows[names[row["configuration"]]][row["init_seed"]] = row["outcome"] == "grokked"
    base = rows["kinds"]
    none = ("unturned", "qk-2", "rank-1-queries", "flat-spiral", "one-unit", "sam", "frozen-in-place")
    said = dict.fromkeys(none, 0.004) | {"no-carries": 0.02}
    for arm, p in said.items():
        assert rows[arm].keys() == base.keys() and sum(rows[arm].values()) == (arm == "no-carries")
        found = Paired.of([(rows[arm][seed], base[seed]) for seed in base]).p
        assert round(found, 3 if p < 0.01 else 2) == p, arm
    taught = Paired.of([(rows["distilled"][seed], base[seed]) for seed in base])
    assert taught.both == 3 and "three of them among the base's; p = 0.29" in RESULTS
    assert round(taught.p, 2) == 0.29


def test_every_seed_that_grokked_in_the_pilot_is_kept_and_no_other():
    rows = [r for r in table("seeds/columns-pilot.csv") if r["outcome"] == "grokked"]
    kept = {folder.name for folder in (MEASUREMENTS / "trained").iterdir()}
    assert kept == {f"{row['rung']}-{row['init_seed']}" for row in rows} and len(kept) == 12


MADE_OF_THETA = {
    "angle-needed": (20, 20, "in all twenty checkpoints"),
    "values-unlike-head": (11, 11, "where nothing ties them (in all eleven)"),
    "wants-a-circle": (11, 11, "become one to 5 % (in all eleven)"),
    "norms-alike": (0, 10, "do not become alike (in none of ten)"),
    "flat-positions": (2, 17, "does not end up flat (in two of seventeen)"),
    "output-unlike-head": (2, 19, "with a row of the head (in seventeen of nineteen)"),
    "one-dimension-written": (12, 19, "in more dimensions than one\n(seven)"),
    "last-weight": (8, 10, "(two exceptions of ten)"),
    "third-value": (10, 20, "the queries of 100p and 133p do not come near rank 2 (all ten)"),
    "short-arc": (14, 19, "(five of nineteen, all of 100p, below 50)"),
    "output-to-tokens": (18, 19, "there is one exception each"),
    "ffn-reads-tokens": (19, 20, "there is one exception each"),
}


def test_what_training_makes_of_theta_is_what_the_page_says():
    folders = [
        f for where in (DOCS / "certificates", MEASUREMENTS / "trained") for f in sorted(where.iterdir())
    ]
    trained = read_checkpoints(folders)
    found = {c.id: judge(c, {}, trained).with_it for c in claims() if c.kind == "always"}
    assert {name: (its.k, its.n) for name, its in found.items()} == {
        name: said[:2] for name, said in MADE_OF_THETA.items()
    }
    for name, (*_, words) in MADE_OF_THETA.items():
        assert words in RESULTS, name


def test_who_proposes_the_sets_of_a_descent():
    """docs/performance.md, from a row a set: the fewest numbers that hold, and how many sets do."""
    page, sets = (DOCS / "performance.md").read_text(), {}
    for row in table("sets/proposers.csv"):
        sets.setdefault(row["proposer"], []).append(row)
    named = {"saliency": "saliency", "nsga2": "NSGA-II over", "random": "random, of"}
    assert sets.keys() == named.keys()
    for proposer, rows in sets.items():
        held = [int(row["numbers"]) for row in rows if row["outcome"] == "grokked"]
        assert len(rows) == 128 and sum(int(row["steps"]) for row in rows) == 384_000
        line = next(x for x in page.splitlines() if x.startswith(f"| {named[proposer]}"))
        cells = line.split("|")
        assert int(cells[2]) == min(held) and int(cells[4]) == len(held)
