"""`adder-search compress` and `diagnose`: what curvature proposes, what a ramp enters, what is kept."""

import json
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from model import preset
from model.adderboard import carry_pairs
from model.tied import Tied, constrained, describe_new, free, ties_of
from search.compress import descend
from search.compress.descend import Descent, Settings
from search.compress.journal import Journal, digest
from search.compress.proposals import KINDS, Proposer
from tests.commands import call, fails_with_one
from trainer import Outcome, Pair, Result, Seed
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.curvature.hessian import (
    LossExpansion,
    cheapest_together,
    constraints,
    expand_loss,
    measured_loss,
)
from trainer.files.installed import missing_for_compilation

CERTIFICATES = Path(__file__).parents[1] / "lab" / "certificates"
START = CERTIFICATES / "46p"
SHORT = ("--proposals", 3, "--screen", 2, "--steps", 60, "--ramp", 30, "--cores", 1, "--patience", 1)
engine = pytest.mark.skipif(bool(missing_for_compilation()), reason="needs a compiler")


def made_up(spec=None):
    """The surroundings of a θ whose Hessian is any positive one."""
    spec, draw = spec or preset("46p"), torch.Generator().manual_seed(0)
    root = torch.randn(spec.params, spec.params, generator=draw, dtype=torch.float64)
    values, vectors = torch.linalg.eigh(root @ root.T / spec.params + torch.eye(spec.params))
    x = torch.randn(spec.params, generator=draw, dtype=torch.float64)
    return LossExpansion(spec, ties_of(spec)[1], x, 0.5, torch.zeros_like(x), values, vectors)


def least_rise(at, a_CR):
    """The least ½ dᵀHd with A (x + d) = 0, by Lagrange's equations."""
    hessian, count = at.vectors_RR * at.values_R @ at.vectors_RR.T, len(a_CR)
    system = torch.cat(
        [
            torch.cat([hessian, a_CR.T], dim=1),
            torch.cat([a_CR, torch.zeros(count, count, dtype=torch.float64)], dim=1),
        ]
    )
    d = torch.linalg.solve(system, torch.cat([torch.zeros_like(at.x_R), -a_CR @ at.x_R]))[: len(at.x_R)]
    return float(d @ hessian @ d) / 2


def test_saliency_is_the_least_rise_of_the_quadratic_model():
    base = preset("46p")
    for spec in (
        base,
        Tied(base=base, ties=constrained(base, ["form[0,0] = -form[1,1]", "arc[0] = arc[2]"])),
    ):
        at = made_up(spec)
        every = constraints(at, descend.KINDS, "values", limit=5_000)
        assert len(every) == spec.params + spec.params * (spec.params - 1)
        assert [c.cost for c in every] == sorted(c.cost for c in every)
        for constraint in every[::400]:
            assert constraint.cost == pytest.approx(least_rise(at, constraint.a_R[None]), rel=1e-5)


def test_several_are_chosen_by_what_they_cost_together():
    """One after another, against the cost of each whole set by its definition."""
    at = made_up()
    pool, chosen = constraints(at, descend.KINDS, "values")[:40], []
    for _ in range(6):
        cost = {}
        for n, c in enumerate(pool):
            a_CR = torch.stack([k.a_R for k in (*chosen, c)])
            if torch.linalg.matrix_rank(a_CR) == len(a_CR):
                cost[n] = least_rise(at, a_CR)
        chosen.append(pool[min(cost, key=cost.get)])
    assert cheapest_together(at, pool, 6) == chosen
    assert cheapest_together(at, pool[:1] * 3, 2) is None and cheapest_together(at, pool[:3], 4) is None


def test_what_is_proposed_is_of_the_kind_and_reach_that_was_asked_for():
    at = made_up()
    assert {c.kind for c in constraints(at, ("zero",), "values")} == {"zero"}
    assert len(constraints(at, ("zero",), "values")) == 46
    inside = [describe_new(at.spec, at.ties, c.ties)[0] for c in constraints(at, ("equal",), "tensor", 5_000)]
    assert all(t.split("[")[0] == t.split("= ")[1].split("[")[0] for t in inside)
    budget = at.spec.layout.budget().values()
    assert len(inside) == sum(n * (n - 1) // 2 for n in budget)


def test_curvature_is_that_of_the_loss():
    loaded = Checkpoint.load(START)
    at = expand_loss(loaded.spec, loaded.theta_P, 64)
    v = at.vectors_RR[:, -1]
    up, down = (_loss(loaded, at.x_R + s * 1e-5 * v) for s in (1, -1))
    assert (up + down - 2 * at.loss) / 1e-10 == pytest.approx(float(at.values_R[-1]), rel=1e-3)
    assert at.loss == pytest.approx(measured_loss(loaded.spec, loaded.theta_P, free(46), 64), rel=1e-9)


def _loss(loaded, x):
    from trainer.curvature.hessian import sample_of
    from trainer.step import step

    return float(step.loss(loaded.spec, x[None], sample_of(loaded.spec, 64))[0])


def test_our_strata_are_not_those_of_verify():
    assert carry_pairs(3, 50) != carry_pairs(3, 50, "of descents")
    assert carry_pairs(3, 50) == carry_pairs(3, 50)


@engine
def test_a_descent_is_kept_gone_on_with_and_read_by_every_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Descent, "rounds", only(Descent.rounds, 1))
    first = call("compress", START, "-o", "small", *SHORT)
    assert first.exit_code == 0, first.output
    made, journal = Checkpoint.load(Path("small")), Journal.read(Path("small"))
    assert isinstance(made.spec, Tied) and made.spec.params < 46 and journal.rounds == 1
    assert made.provenance["compressed_from"]["params"] == 46
    assert made.provenance["descent"][-1]["numbers"] == made.spec.params
    ties = free(46)
    for stage in made.provenance["descent"]:
        before = Tied(base=made.spec.base, ties=ties).spelt()
        still = [text for text in before if text not in stage.get("loosened", ())]
        ties = constrained(made.spec.base, [*still, *stage["tied"]])
    assert ties == made.spec.ties
    written = json.loads(Path("small/verification.json").read_text())
    assert written["correct"] == json.loads(call("verify", "small", "--json").stdout)["correct"]
    assert "46p tied to" in call("models", "small").stdout
    assert call("export", "small", "-o", "submission.py").exit_code == 0
    assert "provenance does not say" in fails_with_one(2, "rerun", "small")
    again = json.loads(call("compress", START, "-o", "small", *SHORT, "--json").stdout)
    assert again["rounds"] == 2 and again["params"] <= made.spec.params and again["core_seconds"] > 0
    assert again["sets_tried"] > len(journal.tried) and again["verification"]["total"] == 10_010
    assert len(again["ties"]) == 46 - again["params"]


def only(rounds, count):
    def some(self):
        for n, done in enumerate(rounds(self), start=1):
            yield done
            if n == count:
                return

    return some


@engine
def test_sets_that_failed_are_not_tried_again(tmp_path):
    loaded = Checkpoint.load(START)
    descent = Descent(loaded.spec, loaded.theta_P, Settings(proposals=4, problems=64), tmp_path)
    kept = descent.journal.kept[0]
    first = descent.propose(kept, 4)
    assert len(set(first)) == 4 and max(max(t) for t in first) < 46
    descent.journal.tried = {descend.digest(t): 0.5 for t in first}
    assert not set(descent.propose(kept, 4)) & set(first)


class Pretended:
    """A bank whose pairs end at once, with a loss that is made up of their ties."""

    made: ClassVar[list] = []

    def __init__(self, base, pairs, **_):
        self.pairs, self.seed_steps, self.left = pairs, 0, True
        self.made.append(pairs)

    def advance(self):
        self.left, was = False, self.left
        self.seed_steps = sum(p.recipe.steps for p in self.pairs)
        return was

    def result(self, n):
        pair = self.pairs[n]
        found = result_of(pair.ties, 0.25, torch.tensor(pair.start), pair.recipe.steps)
        return replace(found, pair=pair, curve_EM=torch.full((1, 7), self.loss(pair.ties)))

    def loss(self, ties):
        return float(sum(p * abs(k) for p, k in enumerate(ties)) % 97)

    def newest(self):
        return [{"step": 0, "best_exact": 0.0} for _ in self.pairs]

    def end(self, numbers):
        pass


@engine
def test_of_many_sets_the_best_after_a_brief_look_are_trained(tmp_path, monkeypatch):
    loaded = Checkpoint.load(START)
    asked = Settings(problems=64, proposals=4, screen=5, steps=200, ramp=100)
    descent = Descent(loaded.spec, loaded.theta_P, asked, tmp_path)
    monkeypatch.setattr(descend, "Bank", Pretended)
    monkeypatch.setattr(Pretended, "made", [])
    descent._round(0)
    brief, full = Pretended.made
    assert len(brief) == len({p.ties for p in brief}) == 20 and {p.recipe.steps for p in brief} == {20}
    assert {p.recipe.ramp for p in brief} == {10} and {p.recipe.eval_every for p in brief} == {20}
    assert len(full) == 4 and {p.recipe.steps for p in full} == {200}
    sizes = {max(p.ties) for p in brief}
    assert len({max(p.ties) for p in full}) == min(4, len(sizes)) > 1  # sizes take turns
    for pair in full:  # the first of its size
        loss = Pretended.loss(None, pair.ties)
        assert loss == min(Pretended.loss(None, p.ties) for p in brief if max(p.ties) == max(pair.ties))
    assert len(descent.journal.tried) == 20 and descent.journal.seed_steps == 20 * 20 + 4 * 200


def result_of(ties, exact, theta, steps=60, loss=0.1):
    """What a bank says of a set, with this exact match, θ and loss."""
    recipe = Settings(steps=steps, ramp=0).recipe()
    curve = torch.full((steps // recipe.eval_every, 7), loss)
    return Result(
        pair=Pair(recipe, Seed(0, 5), tuple(theta.tolist()), ties), outcome=Outcome.FAILED, steps=steps,
        grok_step=None, held=False, hopeless_step=None, best_step=steps, best_exact=exact, best_token=1.0,
        theta_P=theta, curve_EM=curve,
    )  # fmt: skip


@engine
def test_a_set_is_kept_only_if_every_start_bears_it(tmp_path, monkeypatch):
    monkeypatch.setattr(Descent, "wrong", lambda self, theta_P: (0 if theta_P[0] > 0 else 9_999, 59_400))
    loaded = Checkpoint.load(START)
    ones, others = torch.ones(46), torch.full((46,), 2.0)
    asked = Settings(problems=64, proposals=2, screen=3, steps=200, ramp=100)
    with pytest.raises(ValueError, match="has not grokked"):
        Descent(loaded.spec, ones, asked, tmp_path, [-others])
    descent = Descent(loaded.spec, ones, asked, tmp_path, [others])
    monkeypatch.setattr(descend, "Bank", Pretended)
    monkeypatch.setattr(Pretended, "made", [])
    descent._round(0)
    brief, full = Pretended.made
    assert (len(brief), len(full)) == (12, 4)
    for pairs in Pretended.made:  # each set from both, side by side
        assert all(a.ties == b.ties for a, b in zip(pairs[::2], pairs[1::2], strict=True))
        assert {p.start[0] for p in pairs[::2]} == {1.0} and {p.start[0] for p in pairs[1::2]} == {2.0}
    sets = [constrained(loaded.spec, [f"form[0,{n}] = 0"]) for n in range(3)]
    descent._judge(0, [result_of(sets[0], 1.0, ones), result_of(sets[0], 0.5, others)])
    descent._judge(0, [result_of(sets[1], 1.0, ones), result_of(sets[1], 1.0, -others)])
    assert len(descent.journal.kept) == 1
    descent._judge(0, [result_of(sets[2], 1.0, ones), result_of(sets[2], 1.0, others)])
    assert descent.journal.kept[1].starts == [ones.tolist(), others.tolist()]
    descent.journal.write(tmp_path)
    assert Journal.read(tmp_path).kept == descent.journal.kept
    with pytest.raises(ValueError, match="from another checkpoint"):
        Descent(loaded.spec, ones, asked, tmp_path)
    known = "ffb63461"  # a descent outlasts new fields of a spec: what it is of is θ and ties
    assert descent.journal.origin.startswith(known)


@engine
def test_a_share_is_enough_where_it_was_asked_for(tmp_path, monkeypatch):
    loaded = Checkpoint.load(START)
    smaller = constrained(loaded.spec, ["form[0,2] = 0"])
    for accept, kept in ((0.99, 1), (0.995, 0)):
        monkeypatch.setattr(Descent, "wrong", lambda self, theta_P: (0, 59_400))
        asked = Settings(accept=accept)
        descent = Descent(loaded.spec, loaded.theta_P, asked, tmp_path / str(accept))
        monkeypatch.setattr(Descent, "wrong", lambda self, theta_P: (500, 59_400))
        descent._judge(0, [result_of(smaller, 0.996, loaded.theta_P)])
        assert len(descent.journal.kept) == 1 + kept
        descent._judge(0, [result_of(constrained(loaded.spec, ["arc[1] = 0"]), 0.98, loaded.theta_P)])
        assert len(descent.journal.kept) == 1 + kept


def test_a_descent_that_is_stuck_trains_longer():
    asked = Settings()
    assert asked.recipe(3).steps == 3 * asked.steps and asked.recipe(3).ramp == 3 * asked.ramp
    assert asked.recipe(3).program() == asked.recipe().program()


def test_a_descent_with_nothing_left_to_propose_ends(tmp_path, monkeypatch):
    loaded = Checkpoint.load(START)
    descent = Descent(loaded.spec, loaded.theta_P, Settings(patience=99), tmp_path)
    first = descent.journal.kept[0]
    other = replace(first, ties=constrained(loaded.spec, ["arc[1] = 0"]), numbers=45, parent=0)
    descent.journal.kept.append(other)
    monkeypatch.setattr(Descent, "propose", lambda self, parent, count: [])
    assert [r.parent.numbers for r in descent.rounds()] == [45, 46]
    assert list(descent.rounds()) == [] and first.empty and other.empty


def test_every_way_to_loosen_a_tie_is_looked_at_before_a_set_counts_as_spent(tmp_path):
    loaded = Checkpoint.load(CERTIFICATES / "7p")
    descent = Descent(loaded.spec, loaded.theta_P, Settings(problems=64), tmp_path)
    kept = descent.journal.kept[0]
    usual = Proposer.around(descent.base, kept.ties, torch.tensor(kept.theta), KINDS, "values", 64)
    tried = {digest(t): 0.0 for t in usual.sets(10_000, 8, {})}
    assert 300 < len(tried) < 600
    descent.journal.tried = tried
    found = descent.propose(kept, 8)
    assert len(found) == 8 and not {digest(t) for t in found} & tried.keys()


def test_time_that_is_up_changes_nothing(tmp_path):
    loaded = Checkpoint.load(START)
    descent = Descent(loaded.spec, loaded.theta_P, Settings(), tmp_path)
    descent.deadline = 0
    assert list(descent.rounds()) == [] and len(descent.journal.kept) == 1


def test_bad_input_is_one_line_each(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = fails_with_one(2, "compress", START, "-o", "x", "--kinds", "zero,eqal")
    assert line == "--kinds: unknown 'eqal'; did you mean equal?"
    assert fails_with_one(2, "compress", "nowhere", "-o", "x") == "nowhere: no such checkpoint"
    assert "ramp must be at most steps" in fails_with_one(2, "compress", START, "-o", "x", "--ramp", 7_000)
    loaded = Checkpoint.load(START)
    replace(loaded, theta_P=loaded.spec.initial(1)).save(Path("raw"))
    assert "the start has not grokked" in fails_with_one(2, "compress", "raw", "-o", "x")
    line = fails_with_one(2, "compress", START, "-o", "x", "--beside", CERTIFICATES / "456p")
    assert "456p: another model, 456p with no_eos beside 46p; a set must be" in line
    Path("taken").mkdir()
    Path("taken/mine").touch()
    assert "holds no descent" in fails_with_one(2, "compress", START, "-o", "taken")
    Path("other").mkdir()
    Journal("of another", {}).write(Path("other"))
    assert fails_with_one(2, "compress", START, "-o", "other").endswith("a descent from another checkpoint")
    Path("other/descent.json").write_text("{}")
    assert "not the record of a descent" in fails_with_one(2, "compress", START, "-o", "other")


def test_a_diagnosis_names_what_is_free_and_what_is_cheap():
    found = json.loads(
        call("diagnose", CERTIFICATES / "57p", "--problems", 64, "--most", 3, "--try", "--json").stdout
    )
    assert found["params"] == 57 and found["live"] < 57 and len(found["freedoms"]) == 57 - found["live"]
    assert len(found["spectrum"]) == 57 and len(found["cheapest"]) == 3
    assert all(c["measured"] > 0 for c in found["cheapest"])
    shown = call("diagnose", START, "--problems", 64, "--most", 2).stdout
    assert shown.startswith("46p: 46 live directions of 46 numbers")
