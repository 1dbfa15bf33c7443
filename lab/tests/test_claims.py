"""Claims: the data, the rules by which records decide them, the command and its page."""

import json
import re

import pandas as pd
import pytest
from click.testing import CliRunner

from lab.claims.claim import TABLE, Claim, arm, claims, of_cell, read
from lab.claims.judge import Verdict, arms, judge, judge_all
from lab.claims.text import WIDTH
from lab.commands import LAB
from lab.commands import claims as command
from lab.plans import load_plan
from reports.ratios import discoveries
from reports.records import shipped_records
from reports.table_text import table_of
from reports.verdicts import Answer, Effect
from search.analysis.frames import RecordSet
from search.errors import UserError
from search.study.trial import Configuration

HOLDS, FAILS, OPEN = Verdict.HOLDS, Verdict.FAILS, Verdict.OPEN
ONE, OTHER = arm("57p-paired", "robust").key, arm("57p-paired", "published").key


def claim_of(kind, **more):
    about = {"id": "c", "paper": "57p paper", "section": "1", "says": "it does", "kind": kind}
    arms_ = {"study": "57p-paired", "with": "robust"} | ({} if kind == "rate" else {"without": "published"})
    return Claim.model_validate(about | arms_ | more)


def seeds(configuration, outcomes, study="57p-paired", first=310_001, **facts):
    """Rows of seeds `first`, ...: g grokked, f failed, u given up, c censored."""
    names = {"g": "grokked", "f": "failed", "u": "given_up", "c": "censored"}
    return [
        {"study": study, "configuration": configuration, "init_seed": n, "data_seed": n,
         "outcome": names[letter],
         "steps": 60_000, "budget": 60_000, "grok_step": 40_000.0 if letter == "g" else float("nan"),
         "held": letter == "g", "best_token": 1.0 if letter == "g" else 0.5,
         "hopeless_step": 20_000.0 if letter == "u" else None, **facts}
        for n, letter in enumerate(outcomes, first)
    ]  # fmt: skip


def verdict(claim, one, other=""):
    return judge(claim, arms(seeds(ONE, one) + seeds(OTHER, other))).verdict


@pytest.mark.parametrize("claim", [c for c in claims() if c.study], ids=lambda c: c.id)
def test_a_claims_study_trains_its_arms(claim):
    for name in filter(None, (claim.with_, claim.without)):
        study = name.partition(" of ")[2] or claim.study
        assert arm(claim.study, name).key in {Configuration(*c).key for c in load_plan(study).listed}
    assert claim.without is None or arm(claim.study, claim.with_) != arm(claim.study, claim.without)


RULES = """
possible    g1f2    -        holds
possible    f20     g6f14    fails
possible    f20     g5f15    open     5 seeds one way: p = 0.06
impossible  f20     g6f14    holds
impossible  g1f2    -        fails
impossible  f128    f128     open     nothing groks there: no wonder
better      g7f14   f21      holds
better      f21     g7f14    fails
better      g7f14   f7g7f7   open
better      f128    f128     fails    a gain of 5 points is excluded
no-better   g7f14   f21      fails
no-better   f21     g7f14    holds
harmless    g40f20  g40f20   holds
harmless    f60     g40f20   fails
harmless    f60     f60      open
harmless    g1f1    g1f1     open
unrelated   g8f24   g8f24    fails
unrelated   g8f24   f24g8    open
impossible  u20     g8f12    open     half of the 20 may have been about to grok
no-better   u20     g8f12    open
impossible  f20     g8f12    holds
"""
"""Kind of a claim, outcomes of its arms and the verdict."""


def spelt(outcomes):
    """`g7f14` as seven g and fourteen f."""
    return "".join(letter * int(count) for letter, count in re.findall(r"([a-z])(\d+)", outcomes))


@pytest.mark.parametrize("rule", RULES.strip().splitlines())
def test_every_kind_has_its_rule(rule):
    kind, one, other, expected, *_ = rule.split()
    assert verdict(claim_of(kind), spelt(one), spelt(other)) == Verdict[expected.upper()]


@pytest.mark.parametrize(("kind", "alone"), [("no-better", FAILS), ("harmless", FAILS), ("impossible", HOLDS)])
def test_a_test_that_a_false_discovery_rate_does_not_leave_decides_nothing(kind, alone, monkeypatch):
    """p = 0.03 by itself, and among 20 others of p = 1."""
    few, many = "f" * 20, "g" * 6 + "f" * 14
    rows = seeds(ONE, many, best_token=1.0) + seeds(OTHER, few, best_token=1.0)
    first = {"no-better": ONE}.get(kind, OTHER)
    names = {ONE: "robust", OTHER: "published"}
    claim = claim_of(kind, **{"with": names[first], "without": names[OTHER if first == ONE else ONE]})
    for others, expected in ([], alone), ([claim_of("better", reaches=0.4)] * 20, OPEN):
        monkeypatch.setattr("lab.claims.judge.claims", lambda these=(claim, *others): these)
        judged = judge_all(rows)[0]
        assert (judged.verdict, judged.believed) == (expected, expected == alone)


def test_given_up_seeds_keep_a_claim_open_where_the_rule_was_not_measured():
    """None of 60 grokked: of the published recipe that is below 20 %, of another one nobody knows."""
    better = claim_of("better", **{"with": "published", "without": "robust"})
    assert judge(better, arms(seeds(ONE, 20 * "u") + seeds(OTHER, 8 * "g" + 12 * "f"))).verdict == OPEN
    rows = seeds(ONE, 60 * "u") + seeds(OTHER, 60 * "u")
    known = {**claim_of("rate", at_least=0.2).model_dump(by_alias=True)}
    published = Claim.model_validate(known | {"with": "published"})
    assert judge(published, arms(rows)).verdict == FAILS
    assert judge(claim_of("rate", at_least=0.2), arms(rows)).verdict == OPEN


def test_only_the_seeds_of_the_studys_file_count():
    """Others may have been chosen for what they did."""
    found = judge(claim_of("better"), arms(seeds(ONE, "gg", first=777) + seeds(ONE, "fg")))
    assert str(found.with_it) == "1 of 2"


@pytest.mark.parametrize(("one", "expected"), [("g" * 60, HOLDS), ("f" * 20, FAILS), ("gf", OPEN), ("", OPEN)])
def test_a_rate_is_held_against_its_bounds(one, expected):
    assert verdict(claim_of("rate", at_least=0.5), one) == expected


def test_only_seeds_of_both_arms_are_compared_and_none_twice():
    rows = seeds(ONE, "gfgg") + seeds(ONE, "gfgg", study="again") + seeds(OTHER, "ffcff", first=310_002)
    found = judge(claim_of("better"), arms(rows))
    assert (str(found.with_it), str(found.without)) == ("3 of 4", "0 of 4")
    assert (found.paired.n, found.paired.first, found.paired.second) == (2, 1, 0)  # 2 and 4; 3 was censored


def test_another_measure_than_grokking_can_count():
    assert judge(claim_of("rate", at_least=0.5, reaches=0.4), arms(seeds(ONE, "ff"))).with_it.k == 2
    late = seeds(ONE, "g", grok_step=55_000.0, held=False)
    lost = seeds(ONE, "g", first=310_002, held=False)
    found = judge(claim_of("rate", at_least=0.5, held=True), arms(late + lost + seeds(ONE, "gf", first=310_003)))
    assert str(found.with_it) == "1 of 2", "who grokked in the last 10,000 steps could not show that it holds"


def test_what_nothing_could_decide_two_of_one_name_and_unknown_arms_are_errors():
    with pytest.raises(ValueError, match="needs without"):
        claim_of("better", without=None)
    one = "- {id: a, paper: Reflection, section: '1', says: b, open: c}\n"
    assert len(read(one)) == 1
    with pytest.raises(UserError, match="claim a: there are two"):
        read(one + one)
    with pytest.raises(UserError, match="no configuration 'robuts'"):
        arm("57p-paired", "robuts")


def test_how_sudden_it_is_counts_the_seeds_that_grokked_and_whose_curve_is_known():
    claim = claim_of("rate", at_least=0.5, within=5_000)
    steep, slow = seeds(ONE, "ggf", rise=3_000.0), seeds(ONE, "g", first=310_010, rise=6_000.0)
    found = judge(claim, arms(steep + slow + seeds(ONE, "g", first=310_020))).with_it
    assert (str(found), found.wrongly) == ("2 of 3", 0.0)
    again = seeds(ONE, "ggf", study="57p")  # a table of the same runs that does not have it
    assert str(judge(claim, arms(again + steep)).with_it) == "2 of 2"
    with pytest.raises(ValueError, match="one of reaches, held and within"):
        claim_of("rate", at_least=0.5, within=5_000, held=True)


@pytest.mark.parametrize("claim", [c for c in claims() if c.kind == "rate"], ids=lambda c: c.id)
def test_no_rate_is_asked_of_a_study_that_stops_at_a_success(claim):
    assert load_plan(claim.study).until.grokked is None
    assert claim.study not in {"claims-chosen", "claims-chosen-74p", "claims-170p"}, "seeds that were chosen"


def test_of_named_records_the_claims_that_they_touch_are_shown(tmp_path):
    pd.DataFrame(seeds(ONE, "ggff") + seeds(OTHER, "fffg")).to_csv(tmp_path / "a.csv")
    pd.DataFrame(seeds("other", "gf", study="x")).to_csv(tmp_path / "b.csv")

    def call(file, *words):
        given = [str(tmp_path / file), *words, "--home", str(tmp_path / "home")]
        return CliRunner().invoke(command, given)

    shown = json.loads(call("a.csv", "--json").output)
    assert 0 < len(shown) < len(claims()) and all(j["with"]["n"] or j["without"]["n"] for j in shown)
    assert len(json.loads(call("b.csv", "--json", "--all").output)) == len(claims())
    assert isinstance(call("b.csv").exception, UserError)
    lines = call("a.csv").output.splitlines()
    assert lines[0] == summary_of(shown) and max(map(len, lines)) <= WIDTH
    assert "  57p-robust-128: base against published of 57p-paired (unrelated), 1 of 4" in "\n".join(lines)
    assert call("a.csv", "--table").output.count("\n| ") == len(shown) + 2


def summary_of(shown):
    holds, fails, still_open = ([j["verdict"] for j in shown].count(str(v)) for v in (HOLDS, FAILS, OPEN))
    return f"{len(shown)} claims: {holds} hold, {fails} do not hold, {still_open} are open."


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """The claims as the notebook's own records decide them, without a home."""
    home = tmp_path_factory.mktemp("claims") / "none"
    return json.loads(CliRunner().invoke(command, ["--shipped", "--json", "--home", str(home)]).output)


def test_the_notebooks_own_records_decide_the_claims_of_the_page(shipped):
    page = (LAB / "claims" / "README.md").read_text(encoding="utf-8")
    said = summary_of(shipped)
    assert f"\n{said}\n" in page and " 0 do not hold" not in said
    heading = "## 8. Of {} claims of the papers {} hold, {} do not, {} are open"
    results = (LAB.parent / "docs" / "results.md").read_text(encoding="utf-8")
    assert heading.format(*re.findall(r"\d+", said)) in results


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """The cells of the table that the package ships, by `CONSTRAINT at SCALE`, and those whose cost is a discovery."""
    records = RecordSet(shipped_records(), tmp_path_factory.mktemp("table"))
    table = table_of(records.configurations(), True, records.seeds())
    found = {f"{cell.constraint} at {cell.scale}": cell for cell in table.cells.values() if cell and cell.paired}
    left = discoveries([cell.paired.p for cell in found.values()])
    return found, {name for name, keep in zip(found, left, strict=True) if keep}


def by_table(claim, cells):
    """The verdict that a cell of the table has on a claim of its constraint, by itself."""
    found, left = cells
    cell = found[claim.cell]
    if claim.kind in ("possible", "impossible") and cell.trains == Answer.YES:
        return HOLDS if claim.kind == "possible" else FAILS
    if claim.kind == "harmless":
        costs = claim.cell in left and cell.cost == Effect.COSTS
        return FAILS if costs else HOLDS if cell.keeps_half == Answer.YES else OPEN
    return OPEN


@pytest.mark.parametrize("claim", [c for c in claims() if c.cell], ids=lambda c: c.id)
def test_no_claim_is_open_or_decided_otherwise_where_the_table_decides(claim, shipped, cells):
    (verdict,) = (j["verdict"] for j in shipped if j["id"] == claim.id)
    assert by_table(claim, cells) in (OPEN, verdict)


def test_whose_arms_are_a_cells_reads_the_cell():
    """Of the same two models; and of the paper's section about the table, all."""
    design = load_plan(TABLE).kind.design
    specs = {frozenset((c.base[0], c.toggled[0])): f"{c.constraint} at {c.scale}" for c in design.cells}
    for claim in claims():
        own = claim.contrasts[:1]
        if own and own[0].without:
            pair = frozenset((own[0].with_it.spec, own[0].without.spec))
            assert claim.cell == specs.get(pair), claim.id
        assert claim.cell or claim.study != "claims-170p"


def test_the_pairs_of_a_claims_study_and_of_its_cell_are_added_up():
    claim = next(c for c in claims() if c.id == "shared-norm")
    own, cell = claim.contrasts
    rows = seeds(own.with_it.key, "gf", "claims-100p", 410_001) + seeds(own.without.key, "gg", "claims-100p", 410_001)
    rows += seeds(cell.with_it.key, "gff", TABLE, 830_001) + seeds(cell.without.key, "ggf", TABLE, 830_001)
    found = judge(claim, arms(rows))
    assert (str(found.with_it), str(found.without), found.paired.n, found.paired.second) == ("2 of 5", "4 of 5", 5, 2)
    at_end = [row | {"grok_step": float(cell.with_it.recipe.steps)} for row in rows]
    assert str(judge(claim, arms(at_end)).with_it) == "1 of 5", "curvature finished the table's, not the study's"
    assert str(judge(claim, arms(rows[:4])).with_it) == "1 of 2"


def test_a_cell_that_the_table_lacks_is_an_error():
    with pytest.raises(UserError, match="study constraints has no cell 'tie_vo at 7p'"):
        of_cell("tie_vo at 7p")
