"""Which sets descents accept, and the local executor, with banks that train nothing; rounds: test_golden.py."""

import json
from dataclasses import replace
from math import exp, log
from types import SimpleNamespace

import pytest
import torch

from adders import acceptance
from adders.acceptance import AcceptanceSet, base_theta
from adders.proof.rounding import ANY
from compress import descent as descents
from compress import local
from compress.candidates import TieCandidate, digest
from compress.descent import Descent, Training
from compress.finishing import finish_candidate
from compress.journal import Journal
from compress.local import LocalDescent, Settings, to_checkpoint
from compress.proposers import Rules
from compress.study import StudyDescent
from model import preset
from model.tied import constrained, project, ties_of
from tests import CERTIFICATES, needs_compiler
from tests.compress.golden import UntrainedBank
from trainer import Recipe
from trainer.checkpoints.checkpoint import Checkpoint

BASE = preset("46p")
ONES, TWOS = torch.ones(46), torch.full((46,), 2.0)


def neighbours(rules, parent, count, batch_size, tried, draw):
    """Zero one entry more of a parent, in order."""
    sets = (constrained(parent.base, [f"{name} = 0"], parent.ties) for name in BASE.layout.entries()[10:30])
    return [t for t in dict.fromkeys(sets) if digest(t) not in tried and t != parent.ties][:count]


@pytest.fixture
def cheap(monkeypatch):
    """θ is right if its last entry is positive, as are 46 minus that many problems of 59,400; no curvature."""
    monkeypatch.setattr(descents, "propose", neighbours)
    monkeypatch.setattr(AcceptanceSet, "errors", lambda self, theta_P: 0 if theta_P[-1] > 0 else 9_999)
    monkeypatch.setattr(AcceptanceSet, "loss", lambda self, theta_P: 0.5)
    monkeypatch.setattr(AcceptanceSet, "size", 59_400)


def test_what_decodes_all_10_010_and_is_refuted_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(AcceptanceSet, "errors", lambda self, theta_P: 0)
    monkeypatch.setattr(AcceptanceSet, "loss", lambda self, theta_P: 0.0)
    monkeypatch.setattr(AcceptanceSet, "size", 59_400)
    its = Checkpoint.load(CERTIFICATES / "77p-456p")
    assert json.loads((CERTIFICATES / "77p-456p/verification.json").read_text())["verified"]
    base, origin = ties_of(its.spec)[0], [(its.spec, [its.theta_P], ())]
    Descent(Journal(tmp_path, base, "", {}), Rules()).begin(origin)
    with pytest.raises(ValueError, match="tied to 77 is not proved right on all pairs"):
        Descent(Journal(tmp_path, base, "", {}), Rules(proved="here")).begin(origin)


@pytest.mark.usefixtures("cheap")
def test_sets_that_must_be_proved_go_by_their_smallest_margin(tmp_path, monkeypatch):
    margins = {"proved": 0.5, "closer": 0.1, "refuted": None, "widest": 800.0}  # whose loss is 0
    thetas = {name: ONES * n for n, name in enumerate(margins, 2)}
    verdicts = {float(thetas[name][-1]): margin for name, margin in margins.items()} | {1.0: 3.0}

    def prove(spec, theta_P, machine, limit_s):
        margin = verdicts[float(theta_P[-1])]
        assert machine == ANY and len(theta_P) == spec.params
        return SimpleNamespace(margin=margin, verdict="COUNTEREXAMPLE" if margin is None else "PROVED")

    monkeypatch.setattr(acceptance, "prove", prove)
    descent = Descent(Journal(tmp_path, BASE, "origin", {}), Rules(proposals=4, proved="any"))
    descent.begin([(BASE, [ONES], ())])
    sets = descent.add(descent.propose(4))
    judged = [
        descent.judge(s, 1.0, [Training((theta_P,), 1.0, 0.0)])
        for s, theta_P in zip(sets, thetas.values(), strict=True)
    ]
    assert [bool(s.start) for s in judged] == [True, True, False, True]
    assert judged[3].loss == 0.0
    assert judged[0].loss < judged[1].loss == pytest.approx(log(1 + exp(-0.1)))
    assert descent.smallest.number == judged[3].number


@pytest.mark.usefixtures("cheap")
def test_a_candidate_is_accepted_with_its_best_training(tmp_path):
    def judged(rules, *trainings):
        descent = Descent(Journal(tmp_path, BASE, "origin", {}), rules)
        descent.begin([(BASE, [ONES], ())])
        (candidate,) = descent.add(descent.propose(1))
        return descent.judge(candidate, max(t.exact for t in trainings), trainings)

    wrong = Training((-ONES,), 1.0, 0.1)
    result = judged(Rules(), Training((TWOS,), 0.99, 0.0), wrong)
    assert (result.start, result.wrong, result.reached) == (None, 9_999, 1.0)
    result = judged(Rules(), wrong, Training((ONES,), 1.0, 0.3, 7), Training((TWOS,), 1.0, 0.2, 8))
    assert result.thetas == (tuple(TWOS.tolist()),) and (result.wrong, result.data_seed) == (0, 8)
    assert judged(Rules(), Training((ONES, -ONES), 1.0, 0.1)).start is None, "every start must bear it"
    few = Training((ONES,), 0.996, 0.1, errors=500)
    assert judged(Rules(accept=0.99), few).start and not judged(Rules(accept=0.995), few).start
    for accept, exact, errors in ((0.95, torch.tensor(0.95).item(), 0), (0.9, 0.9, 5_940), (0.99, 0.99, 594)):
        just = Training((ONES,), exact, 0.1, errors=errors)
        assert judged(Rules(accept=accept), just).start, "it has what is asked for"
    assert judged(Rules(accept=0.9), Training((ONES,), 1.0, 0.1, errors=5_941)).start is None


@pytest.mark.parametrize(("wrong", "is_judged"), [(250, True), (251, False)])
def test_a_studys_seed_that_has_just_what_is_asked_for_is_judged(wrong, is_judged):
    """Shares of the selection problems are float32, in which 0.95 is a little less."""
    row = SimpleNamespace(is_final=True, best_exact=(torch.tensor(5_000 - wrong) / 5_000).item())
    given = list[SimpleNamespace]()
    descent = SimpleNamespace(
        candidates=[TieCandidate(0, 1, (), configuration="key")], rules=Rules(accept=0.95), is_open=True,
        judge=lambda candidate, exact, trainings: given.extend(trainings),
    )  # fmt: skip
    records = SimpleNamespace(list_seeds=lambda key: [row], seeds=list)
    study = SimpleNamespace(descent=descent, records=records, waiting=[0], _training=lambda seed: seed)
    StudyDescent.tell(study, SimpleNamespace(key="key"), [row])
    assert given == [row] * is_judged and not study.waiting
    half = torch.tensor(0.45).item()
    assert not LocalDescent._is_far(SimpleNamespace(settings=Settings(accept=0.9)), half)


# ---- in this process


def loss_of(ties):
    return float(sum(p * abs(k) for p, k in enumerate(ties)) % 97)


@pytest.fixture
def untrained(monkeypatch, cheap):
    """The pairs of every bank of a local descent, none of which is trained."""
    banks = []

    def bank(base, pairs, **_):
        banks.append(pairs)
        return UntrainedBank(pairs, lambda pair: (0.25, loss_of(pair.ties), torch.tensor(pair.start)))

    monkeypatch.setattr(local, "Bank", bank)
    return banks


def test_sets_are_trained_from_every_start_side_by_side(untrained, tmp_path):
    """In a preview and after it."""
    settings = Settings(proposals=4, preview=5, steps=200, ramp=100, finish=0)
    next(LocalDescent(BASE, [ONES, TWOS], settings, tmp_path).rounds())
    assert [len(pairs) for pairs in untrained] == [40, 8]
    for pairs in untrained:
        assert all(a.ties == b.ties for a, b in zip(pairs[::2], pairs[1::2], strict=True))
        assert {p.start[0] for p in pairs[::2]} == {1.0} and {p.start[0] for p in pairs[1::2]} == {2.0}
    about = json.loads((tmp_path / "descent.json").read_text())
    assert about["origin"].startswith("ffb63461"), "a descent outlasts new fields of a spec"


def test_a_loss_that_is_no_number_comes_last(untrained, tmp_path, monkeypatch):
    """In a preview, and among those that curvature may finish."""
    nan_first = lambda pair: float("nan") if pair.ties[10] == 0 else loss_of(pair.ties)  # noqa: E731
    monkeypatch.setattr(
        local, "Bank",
        lambda _, pairs, **__: untrained.append(pairs) or UntrainedBank(pairs, lambda p: (0.6, nan_first(p), ONES)),
    )  # fmt: skip
    descent = LocalDescent(BASE, [ONES], Settings(proposals=2, preview=2, steps=200, ramp=100, finish=0), tmp_path)
    candidates = next(descent.rounds())
    assert all(pair.ties[10] for pair in untrained[1]) and len(candidates) == 2
    trained = {c.number: Training((ONES,), 0.6, loss) for c, loss in zip(candidates, (float("nan"), 1.0), strict=True)}
    assert [c.number for c in descent._to_finish(trained)] == [candidates[1].number, candidates[0].number]


def test_a_set_that_time_left_unjudged_may_be_proposed_again(untrained, tmp_path, monkeypatch):
    """Though it was seen in a preview."""
    judge = Descent.judge

    def judge_the_first(self, candidate, *given):
        if candidate.number > 1:
            raise local.OutOfTime
        return judge(self, candidate, *given)

    monkeypatch.setattr(Descent, "judge", judge_the_first)
    settings = Settings(proposals=2, preview=2, steps=200, ramp=100, finish=0)
    judged, unjudged = next(LocalDescent(BASE, [ONES], settings, tmp_path).rounds())
    tried = LocalDescent(BASE, [ONES], settings, tmp_path).descent.progress.tried
    assert judged.digest in tried and unjudged.reached is None and unjudged.digest not in tried
    assert len(tried) == 3, "two that the preview left out count as tried"


def test_a_seed_that_was_finished_goes_by_the_loss_of_its_finished_theta(cheap):
    """The curve is that of its training."""
    descent = SimpleNamespace(acceptance_of=AcceptanceSet)
    for finish_above, loss in ((1.0, 0.125), (0.5, 0.5)):
        recipe = Recipe(steps=6, ramp=3, eval_every=3, finish_above=finish_above)
        result = SimpleNamespace(pair=SimpleNamespace(recipe=recipe), best_step=6, best_exact=1.0,
                                 theta_P=ONES, curve_EM=torch.full((2, 7), 0.125))  # fmt: skip
        seed = SimpleNamespace(result=result, configuration=SimpleNamespace(spec=BASE),
                               checkpoint=lambda: Checkpoint(BASE, ONES))  # fmt: skip
        assert StudyDescent._training(SimpleNamespace(descent=descent), seed).loss == loss


def test_a_checkpoint_records_how_it_was_trained_and_what_it_reached(untrained, tmp_path, monkeypatch):
    """After a round without a gain the next one is twice as long; a later command's options change nothing of it."""
    monkeypatch.setattr(local, "STUCK", 1)
    settings = Settings(proposals=1, preview=1, steps=200, ramp=100, finish=0, accept=0.9)
    descent = LocalDescent(BASE, [ONES], settings, tmp_path)
    rounds = descent.rounds()
    next(rounds)
    better = lambda _, pairs, **__: UntrainedBank(pairs, lambda pair: (0.95, 0.5, ONES))  # noqa: E731
    monkeypatch.setattr(local, "Bank", better)
    next(rounds)
    again = LocalDescent(BASE, [ONES], replace(settings, steps=600, accept=0.8), tmp_path)
    small = to_checkpoint(again, Checkpoint(BASE, ONES), [])
    assert (small.step, small.recipe["steps"], small.recipe["ramp"]) == (400, 400, 200)
    assert small.metrics["best_exact"] == 0.95
    next(again.rounds())
    about = json.loads((tmp_path / "descent.json").read_text())
    assert about["settings"]["steps"] == 600, "what was asked for last"
    for row in about["accepted"]:
        del row["recipe"]
    (tmp_path / "descent.json").write_text(json.dumps(about))
    older = LocalDescent(BASE, [ONES], replace(settings, steps=600, accept=0.8), tmp_path)
    assert to_checkpoint(older, Checkpoint(BASE, ONES), []).step == 600


@pytest.mark.full  # `make test` finishes sets in tests/compress/test_compress.py
@needs_compiler
def test_curvature_finishes_a_set_from_where_training_left_it():
    """15p's numbers, each off by about a hundredth: a tenth of the sums is wrong, and then none."""
    loaded = Checkpoint.load(CERTIFICATES / "15p")
    spec, acceptance = loaded.spec, AcceptanceSet(loaded.spec.base)
    noise = torch.randn(15, generator=torch.Generator().manual_seed(1))
    start_P = base_theta(spec, loaded.theta_P * (1 + 0.01 * noise))
    assert acceptance.errors(start_P) > 0.1 * acceptance.size
    finished = finish_candidate(acceptance, spec.ties, [start_P], 1, until=0.0)
    (theta_P,) = finished.thetas
    assert finished.errors == acceptance.errors(theta_P) == 0 and finished.loss < 0.001
    assert torch.equal(base_theta(spec, project(spec.ties, theta_P[None])[0]), theta_P)
    soon = finish_candidate(acceptance, spec.ties, [start_P], 1, until=0.02)  # before the numbers grow
    assert soon.loss > finished.loss and soon.thetas[0].norm() < theta_P.norm()
