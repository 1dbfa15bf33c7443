"""What a descent does by curvature with sets that training does not bring there."""

import pytest
import torch

from model.tied import constrained, free, project, tie
from search.compress import descend
from search.compress.acceptance import AcceptanceSet, of_base
from search.compress.descend import Descent, Settings
from search.compress.finishing import Finished, entered, finished
from search.compress.journal import Journal, digest
from tests.test_descent import CERTIFICATES, START, engine, result_of
from trainer.checkpoints.checkpoint import Checkpoint


@engine
def test_curvature_takes_a_set_on_from_where_training_left_it():
    """15p's numbers, each off by about a hundredth: a tenth of the sums is wrong, and then none."""
    loaded = Checkpoint.load(CERTIFICATES / "15p")
    exam, noise = AcceptanceSet(loaded.spec.base), torch.Generator().manual_seed(1)
    off_P = loaded.theta_P * (1 + 0.01 * torch.randn(15, generator=noise))
    start_P = of_base(loaded.spec, off_P)
    before, of = exam.wrong(start_P)
    assert before > 0.1 * of
    made = finished(exam, loaded.spec.ties, start_P, 1, until=0.0)
    assert made.wrong == exam.wrong(made.theta_P)[0] == 0 and made.loss < 0.001
    assert torch.equal(project(loaded.spec.ties, made.theta_P[None])[0], made.theta_P[firsts(loaded.spec)])
    soon = finished(exam, loaded.spec.ties, start_P, 1, until=0.02)  # a turn ends before the numbers grow
    assert soon.loss > made.loss and soon.theta_P.norm() < made.theta_P.norm()


def firsts(spec):
    """The entries of the base that are read first, of each number."""
    return [next(p for p, k in enumerate(spec.ties) if k == n + 1) for n in range(spec.params)]


@engine
def test_curvature_enters_a_set_that_breaks_the_sum():
    """A tie more on 15p, imposed at once, makes four sums in ten wrong; entered, not one in ten."""
    loaded = Checkpoint.load(CERTIFICATES / "15p")
    base, before = loaded.spec.base, loaded.spec.ties
    exam, theta_P = AcceptanceSet(base), of_base(loaded.spec, loaded.theta_P)
    ties = constrained(base, ["form[0,2] = 0"], before)
    at_once, of = exam.wrong(of_base(tie(base, ties), project(ties, theta_P[None])[0]))
    assert at_once > 0.4 * of
    found_P = entered(exam, before, ties, theta_P, 1)
    assert exam.wrong(found_P)[0] < 0.1 * of
    assert torch.equal(of_base(tie(base, ties), project(ties, found_P[None])[0]), found_P)


@engine
def test_the_best_of_what_did_not_hold_is_finished(tmp_path, monkeypatch):
    loaded = Checkpoint.load(START)
    descent = Descent(loaded.spec, loaded.theta_P, Settings(problems=64, finish=4), tmp_path)
    one, two, three = (constrained(loaded.spec, [f"form[0,{n}] = 0"]) for n in range(3))
    lost = constrained(loaded.spec, ["arc[0] = 0"])
    lower = constrained(loaded.spec, ["arc[0] = 0", "arc[1] = 0"])
    never = constrained(loaded.spec, ["arc[1] = 0", "arc[2] = 0"])
    asked = {never: (0.1, 0.0), lost: (0.4, 0.0), lower: (0.0, 0.0), one: (0.9, 0.3), two: (0.8, 0.2)}
    asked |= {three: (0.5, 0.1), free(46): (0.9, 0.0)}  # the last is not smaller than its parent
    results = [[result_of(t, exact, loaded.theta_P, loss=loss)] for t, (exact, loss) in asked.items()]
    wrong, taken = {three: 0, two: 594, one: 1, lost: 0}, []

    def pretended(exam, ties, theta_P, seed, until):
        taken.append((ties, float((theta_P - loaded.theta_P).mean()), seed, until))
        return Finished(theta_P + 1, wrong[ties], 0.01)

    monkeypatch.setattr(descend, "finished", pretended)
    monkeypatch.setattr(descend, "entered", lambda exam, before, ties, theta_P, seed: theta_P + 8)
    monkeypatch.setattr(Descent, "_screened", lambda self, parent, count: (["some"], 0))
    monkeypatch.setattr(Descent, "_train", lambda self, parent, proposed: results)
    done = descent._round(0)
    first, journal = descent.journal.kept[0], descent.journal
    order = [(three, 0), (two, 0), (one, 0), (lost, 8)]  # by loss; then what is entered anew
    assert [t[:2] for t in taken] == order and {t[2:] for t in taken} == {(0, first.loss)}
    new = [(k.ties, k.finished, k.parent, k.loss) for k in journal.kept[1:]]
    assert new == [(three, True, 0, 0.01), (lost, True, 0, 0.01)]
    assert journal.kept[2].theta == (loaded.theta_P + 8 + 1).tolist()
    assert [exact for _, exact in done.reached] == pytest.approx([0.1, 1, 0, 1 - 1 / 59_400, 0.99, 1, 0.9])
    assert journal.tried[digest(two)] == 0.99 and journal.tried[digest(lower)] == 0.0
    assert Journal.read(tmp_path).kept == journal.kept


@engine
def test_large_sets_are_not_finished(tmp_path, monkeypatch):
    loaded = Checkpoint.load(CERTIFICATES / "57p")
    descent = Descent(loaded.spec, loaded.theta_P, Settings(problems=64), tmp_path)
    one = constrained(loaded.spec, ["arc[1] = 0"])
    many = constrained(loaded.spec, [f"{name} = 0" for name in loaded.spec.layout.entries()[-20:-10]])
    results = [[result_of(ties, 0.9, loaded.theta_P)] for ties in (one, many)]
    assert [max(r[0].pair.ties) for r in results] == [56, 47]
    chosen = descent._to_finish(descent.journal.kept[0], results, [0.9, 0.9])
    assert chosen == [(1, False)]


@engine
def test_nothing_is_finished_where_training_alone_gains(tmp_path, monkeypatch):
    loaded = Checkpoint.load(START)
    descent = Descent(loaded.spec, loaded.theta_P, Settings(problems=64), tmp_path)
    sets = [constrained(loaded.spec, [f"form[0,{n}] = 0"]) for n in range(2)]
    both = zip(sets, (1.0, 0.9), strict=True)
    results = [[result_of(ties, exact, loaded.theta_P)] for ties, exact in both]
    monkeypatch.setattr(descend, "finished", None)
    monkeypatch.setattr(Descent, "_screened", lambda self, parent, count: (["some"], 0))
    monkeypatch.setattr(Descent, "_train", lambda self, parent, proposed: results)
    assert [exact for _, exact in descent._round(0).reached] == [1.0, 0.9]
    assert [(k.ties, k.finished) for k in descent.journal.kept[1:]] == [(sets[0], False)]
