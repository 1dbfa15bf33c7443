"""Claims: the data, the rules by which records decide them, the command and its page."""

import json

import pandas as pd
import pytest
from click.testing import CliRunner

from lab.claims.claim import Claim, arm, claims, read
from lab.claims.judge import Verdict, arms, judge, judge_all
from lab.claims.text import WIDTH
from lab.commands import LAB
from lab.commands import claims as command
from lab.plans import load_plan
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
         "held": letter == "g", "best_token": 1.0 if letter == "g" else 0.5, **facts}
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


@pytest.mark.parametrize(
    ("kind", "one", "other", "expected"),
    [
        ("possible", "gff", "", HOLDS),
        ("possible", "f" * 20, "g" * 6 + "f" * 14, FAILS),
        ("possible", "f" * 20, "g" * 5 + "f" * 15, OPEN),  # 5 seeds one way: p = 0.06
        ("impossible", "f" * 20, "g" * 6 + "f" * 14, HOLDS),
        ("impossible", "gff", "", FAILS),
        ("impossible", "f" * 128, "f" * 128, OPEN),  # nothing groks there: no wonder
        ("better", "g" * 7 + "f" * 14, "f" * 21, HOLDS),
        ("better", "f" * 21, "g" * 7 + "f" * 14, FAILS),
        ("better", "g" * 7 + "f" * 14, "f" * 7 + "g" * 7 + "f" * 7, OPEN),
        ("better", "f" * 128, "f" * 128, FAILS),  # a gain of 5 points is excluded
        ("no-better", "g" * 7 + "f" * 14, "f" * 21, FAILS),
        ("no-better", "f" * 21, "g" * 7 + "f" * 14, HOLDS),
        ("harmless", "g" * 40 + "f" * 20, "g" * 40 + "f" * 20, HOLDS),
        ("harmless", "f" * 60, "g" * 40 + "f" * 20, FAILS),
        ("harmless", "f" * 60, "f" * 60, OPEN),
        ("harmless", "gf", "gf", OPEN),
        ("unrelated", "g" * 8 + "f" * 24, "g" * 8 + "f" * 24, FAILS),
        ("unrelated", "g" * 8 + "f" * 24, "f" * 24 + "g" * 8, OPEN),
    ],
)
def test_every_kind_has_its_rule(kind, one, other, expected):
    assert verdict(claim_of(kind), one, other) == expected


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


def test_given_up_seeds_keep_a_rate_open_where_the_rule_was_not_measured():
    """None of 60 grokked: of the published recipe that is below 20 %, of another one nobody knows."""
    rows = seeds(ONE, 60 * "u", hopeless_step=20_000.0) + seeds(OTHER, 60 * "u", hopeless_step=20_000.0)
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
    pd.DataFrame(seeds(ONE, "ggff") + seeds(OTHER, "fffg")).assign(hopeless_step=None).to_csv(tmp_path / "a.csv")
    pd.DataFrame(seeds("other", "gf", study="x")).assign(hopeless_step=None).to_csv(tmp_path / "b.csv")

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


def test_the_notebooks_own_records_decide_the_claims_without_a_home(tmp_path):
    """They are those of the page."""
    shown = CliRunner().invoke(command, ["--shipped", "--home", str(tmp_path / "none")]).output
    page = (LAB / "claims" / "README.md").read_text(encoding="utf-8")
    assert f"\n{shown.splitlines()[0]}\n" in page and " 0 do not hold" not in shown
