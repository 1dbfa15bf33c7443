"""`compress` in a study: rounds of sets out of the ledger, judged once, whatever ends the driver.

Whole runs by the command with a bank that is made up: what a set reaches is a function of the set.
"""

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from model import preset
from model.tied import canonical, constrained, free
from search.compress import beam
from search.compress.proposers import Parent, joined, propose
from search.compress.published import TREE, log_descents
from search.run import driver, worker
from search.store.candidates import CandidateStore, front, lineage_of, smallest
from search.store.home import Home
from search.store.ledger import Ledger, is_final
from search.study.compress import Compress
from search.study.file import parse_study
from search.tracking.artifacts import ArtifactCache
from search.tracking.outbox import Outbox
from search.tracking.tracker import Tracker
from search.tracking.tracking import connect, tracking_uri
from tests.commands import call
from tests.commands import says as alike
from tests.homes import quick  # noqa: F401
from tests.reference import QUICK, recorded, rows_of, write_study
from trainer import Outcome
from trainer.checkpoints.checkpoint import Checkpoint

pytestmark = pytest.mark.usefixtures("few_selection_problems", "no_ray", "quick", "here")

CERTIFICATES = Path(__file__).parents[1] / "lab" / "certificates"
RECIPE = {"steps": 6, "ramp": 3, "batch": 2, "eval_every": 3}
STUDY = {
    "name": "small",
    "start": {"checkpoint": str(CERTIFICATES / "46p")},
    "compress": {"proposals": 4, "beam": 2, "rounds": 3, "reach": "values"},
    "recipe": RECIPE,
    "seeds": {"count": 2},
    "resources": QUICK["resources"] | {"slots": 3, "seeds_per_trial": 6},
}
NEEDED = 40
"""Numbers without which nothing is right, of the made-up bank."""


class Made:
    """A bank that trains nothing: a set with NEEDED numbers or more is right, unless it ties arc[0]; of two
    seeds the first.
    """

    def __init__(self, spec, pairs, **how):
        self.real = REAL(spec, pairs, **how)

    def __getattr__(self, name):
        return getattr(self.real, name)

    def result(self, n):
        found, pair = self.real.result(n), self.real.pairs[n]
        numbers = max(map(abs, pair.ties))
        right = numbers >= NEEDED and pair.ties.count(1) == 1 and pair.seed.data_seed == 1
        if not right:
            return replace(found, best_exact=numbers / 100, outcome=Outcome.FAILED, grok_step=None)
        return replace(found, best_exact=1.0, outcome=Outcome.GROKKED, grok_step=6)


REAL = worker.Bank


@pytest.fixture(autouse=True)
def made_up(monkeypatch):
    monkeypatch.setattr(worker, "Bank", Made)
    monkeypatch.setattr(beam.AcceptanceSet, "wrong", lambda self, theta_P: (0, 59_400))
    monkeypatch.setattr(beam, "propose", quickly)
    monkeypatch.setattr(driver, "log_descents", lambda *given: None)  # its pictures take seconds


def quickly(asked, parent, count, several, known, draw):
    """Neighbours tied, two or three of them at once: what no curvature is needed for."""
    found = {}
    for p in range(len(parent.ties) - 1):
        for more in (1, 2, 3):
            ties = parent.ties
            for q in range(p, min(p + more, len(parent.ties) - 1)):
                ties = joined(ties, constrained_pair(parent.base, q))
            if ties not in known and ties != parent.ties and len(found) < count:
                found[ties] = None
    return list(found)


def constrained_pair(base, q):
    every = list(free(base.params))
    every[q + 1] = every[q]
    return canonical(every)


def run(here, **changes):
    return call("run", write_study(here, STUDY | changes), "--home", "home")


def sets_of(name="small"):
    return CandidateStore(Ledger(Home("home")), name).read()


def said(sets):
    return [(t.number, t.round, t.configuration, t.parent, t.ties, t.reached, bool(t.start)) for t in sets]


def test_rounds_go_on_from_what_was_kept_and_nothing_is_tried_twice(here):
    done = run(here)
    assert done.exit_code == 0, done.output
    sets, rows = sets_of(), rows_of(here / "home", "small")
    assert [sum(t.round == n for t in sets) for n in range(4)] == [1, 4, 4, 4]
    assert len({t.ties for t in sets}) == len(sets), "one subspace, one set"
    assert len(rows) == 2 * 12 and all(is_final(r) and r["published"] for r in rows)
    for t in sets[1:]:
        right = t.numbers >= NEEDED and t.ties.count(1) == 1
        assert bool(t.start) == right and t.reached == (1.0 if right else pytest.approx(t.numbers / 100))
        assert sets[t.parent].start and sets[t.parent].numbers > t.numbers
    kept = [t for t in sets if t.start]
    assert {t.parent for t in sets if t.round == 2} <= {t.number for t in kept}
    assert len({t.parent for t in sets if t.round == 3}) == 2, "a beam of two"
    assert max(lineage_of(sets, t.number)[0].number for t in kept) == 0
    assert [t.numbers for t in front(sets)] == sorted({t.numbers for t in front(sets)})
    found = recorded(here / "home", "small", here)
    assert len(found) == len(rows)


def test_a_set_begins_at_the_theta_of_the_one_it_came_from(here):
    run(here)
    sets, known = sets_of(), Ledger(Home("home")).list_configurations("small")
    child = next(t for t in sets if t.round == 2)
    parent, configuration = sets[child.parent], known[child.configuration]
    assert configuration.start.digest == parent.start.digest
    assert configuration.spec.ties == child.ties and configuration.spec.base == preset("46p")
    *_, last = configuration.start.lineage
    assert (last["configuration"], last["params"]) == (parent.configuration, parent.numbers)
    assert last["tied"] and configuration.start.lineage[0]["model"] == "54p"
    best = min((t for t in sets if t.start), key=lambda t: (t.numbers, t.loss))
    assert call("pull", "small", "--best", "-o", "best", "--home", "home").exit_code == 0
    made = Checkpoint.load(Path("best"))
    assert made.spec.params == best.numbers and made.spec.ties == best.ties
    assert torch.equal(made.spec.untie(made.theta_P[None])[0], torch.tensor(best.start.thetas[""]))
    assert call("rerun", "best").exit_code == 0


def test_what_is_shown_of_a_descent(here):
    run(here, compress=STUDY["compress"] | {"rounds": 2})
    home, study = Home("home"), parse_study(json.dumps(STUDY), "")
    client = connect(home, tracking_uri(home))
    tracker, ledger, sets = Tracker(client, home, study), Ledger(home), sets_of()
    with ArtifactCache(client, ledger, "small") as shelf:
        log_descents(ledger, tracker, shelf)
    kept = {i.path for i in client.list_artifacts(tracker.own_run(), "pictures")}
    assert kept == {"pictures/sets-tried.png", "pictures/descent.png"}
    least = smallest(sets)
    (row,) = (r for r in rows_of(here / "home", "small") if r["verified"] is not None)
    assert row["configuration"] == least.configuration and row["verify_calls"] == 1, "the smallest alone"
    shown = call("best", "small", "--lineage", "--home", "home").stdout
    assert shown.splitlines()[0] == "54p [study 54p-rate, seed 800]" or shown.startswith("54p")
    assert f"{least.numbers} numbers [study small" in shown and "sets tried from here" in shown
    assert TREE in {i.path for i in client.list_artifacts(tracker.own_run())}
    found = json.loads(call("best", "small", "--lineage", "--json", "--home", "home").stdout)["lineages"]
    assert found[-1][-1]["params"] == least.numbers and found[-1][-1]["tied"]
    assert call("report", "small", "-o", "page.html", "--home", "home").exit_code == 0
    page = Path("page.html").read_text()
    assert "Every set of ties that was tried" in page and "The descent to the smallest kept set" in page
    assert call("table", "small", "--home", "home").exit_code in (0, 2)
    assert call("status", "small", "--home", "home").exit_code == 0


CUTS = {
    "between proposing and training": (CandidateStore, "propose", "after"),
    "before a round is written": (CandidateStore, "propose", "before"),
    "between recording and judging": (CandidateStore, "judge", "before"),
    "between judging and the next": (CandidateStore, "judge", "after"),
    "in mid-round": (driver.Driver, "reported", "after"),
}


class Died(BaseException):
    """Instead of a SIGKILL: nothing of the driver's goes on."""


@pytest.mark.parametrize("where", CUTS)
def test_whatever_ends_the_driver_the_same_sets_are_accepted(where, here, monkeypatch, uninterrupted):
    cls, name, when = CUTS[where]
    whole, calls, outboxes, start = getattr(cls, name), [], [], Outbox.__post_init__

    def die():
        for outbox in outboxes:  # its thread is of the driver that dies
            outbox.close()
        raise Died

    def cut(self, *given):
        calls.append(given)
        dies = len(calls) in (2, 6)
        if dies and when == "before":
            die()
        result = whole(self, *given)
        if dies:
            die()
        return result

    monkeypatch.setattr(Outbox, "__post_init__", lambda self: (outboxes.append(self), start(self)))
    monkeypatch.setattr(cls, name, cut)
    for _ in range(2):
        with suppress(Died):  # the second time, if it comes so far
            run(here)
    assert len(calls) >= 2
    monkeypatch.setattr(cls, name, whole)
    done = run(here)
    assert done.exit_code == 0, done.output
    assert said(sets_of()) == uninterrupted["sets"]
    rows = rows_of(here / "home", "small")
    keys = [(r["configuration"], r["init_seed"], r["data_seed"]) for r in rows]
    assert len(keys) == len(set(keys)) == 24 and all(is_final(r) and r["published"] for r in rows)
    assert recorded(here / "home", "small", here) == uninterrupted["seeds"]
    again = run(here)
    assert "nothing left to train" in again.stdout and said(sets_of()) == uninterrupted["sets"]


@pytest.fixture
def uninterrupted(tmp_path_factory, monkeypatch):
    """What a run comes to that nothing ends."""
    if not WHOLE:
        folder = tmp_path_factory.mktemp("whole")
        with monkeypatch.context() as patch:
            patch.chdir(folder)
            assert run(folder).exit_code == 0
            WHOLE.update(sets=said(sets_of()), seeds=recorded(folder / "home", "small", folder))
    return WHOLE


WHOLE = {}


def test_more_rounds_are_an_edited_file(here):
    run(here, compress=STUDY["compress"] | {"rounds": 2})
    before = said(sets_of())
    assert run(here).exit_code == 0
    assert said(sets_of())[: len(before)] == before and max(t.round for t in sets_of()) == 3
    run(here, compress=STUDY["compress"] | {"rounds": 9, "patience": 1})
    found = sets_of()
    shrunk = [min(t.numbers for t in found if t.start and t.round <= n) for n in range(found[-1].round + 1)]
    assert shrunk[-1] == shrunk[-2], "it ended for want of a smaller set"


# ---- who proposes


@pytest.mark.parametrize("proposer", ["saliency", "nsga2", "random"])
def test_every_proposer_gives_new_sets_of_the_reach_that_was_asked_for(proposer):
    loaded = Checkpoint.load(CERTIFICATES / "46p")
    asked = Compress(proposer=proposer, reach="tensor")
    children = [(constrained_pair(loaded.spec, n), 1, 0.9 + n / 100) for n in range(6)]
    parent = Parent(loaded.spec, free(46), tuple(loaded.theta_P.tolist()), children)
    known = {t for t, _, _ in children}
    found = propose(asked, parent, 5, 3, known, draw=7)
    assert len(found) == len(set(found)) == 5 and not known & set(found)
    assert found == propose(asked, parent, 5, 3, known, draw=7), "the same when it is asked again"
    if proposer != "saliency":
        assert found != propose(asked, parent, 5, 3, known, draw=8)
    sizes = list(loaded.spec.layout.budget().values())
    owner = [n for n, size in enumerate(sizes) for _ in range(size)]
    for ties in found:
        homes = {}
        for p, k in enumerate(ties):
            homes.setdefault(abs(k), set()).add(owner[p])
        assert max(map(abs, ties)) < 46 and all(len(h) == 1 for k, h in homes.items() if k)


def test_a_genetic_search_learns_what_its_sets_reached():
    """Of sets that hold the first constraint of the pool all are right: its children hold it more often."""
    loaded = Checkpoint.load(CERTIFICATES / "46p")
    theta = tuple(loaded.theta_P.tolist())
    asked = Compress(proposer="nsga2", reach="values")
    drawn = propose(asked, Parent(loaded.spec, free(46), theta), 24, 8, (), draw=0)
    mark = max(range(45), key=lambda n: min(sum(t[n] == 0 for t in drawn), sum(t[n] != 0 for t in drawn)))
    children = [(t, 1, 1.0 if t[mark] == 0 else 0.1) for t in drawn]
    bred = propose(asked, Parent(loaded.spec, free(46), theta, children), 24, 8, set(drawn), draw=1)
    share = [sum(t[mark] == 0 for t in some) / len(some) for some in (drawn, bred)]
    assert share[1] > share[0] + 0.2, share


def test_joined_ties_are_those_of_both():
    base = preset("46p")
    one, other = (
        constrained(base, ["arc[0] = arc[1]"]),
        constrained(base, ["arc[1] = -arc[2]", "form[0,0] = 0"]),
    )
    both = constrained(base, ["arc[0] = arc[1]", "arc[1] = -arc[2]", "form[0,0] = 0"])
    assert joined(one, other) == joined(other, one) == both == joined(both, one)
    opposite = constrained(base, ["arc[0] = -arc[1]"])
    assert joined(one, opposite) == constrained(base, ["arc[0] = 0", "arc[1] = 0"])


# ---- files

BAD = {
    "compress.beem: unknown key; did you mean beam or seed?": {"compress": {"beem": 1}},
    "compress.accept.exakt: unknown key; did you mean exact?": {"compress": {"accept": {"exakt": 1}}},
    "compress.kinds: unknown 'eqal'; did you mean equal?": {"compress": {"kinds": ["eqal"]}},
    "compress.reach: must be 'tensor' or 'values', got 'all'": {"compress": {"reach": "all"}},
    "compress.proposer: must be *": {"compress": {"proposer": "magic"}},
    "start: compress needs it: *": {"start": None},
    "model: does not go with compress, which makes the models": {"model": "46p"},
    "recipe.ramp: compress needs one: at 1 or more": {"recipe": {"steps": 6, "ramp": 0}},
    "until: does not go with compress, *": {"until": {"grokked": 1, "max_seeds": 4}},
}


@pytest.mark.parametrize("says", BAD)
def test_a_bad_file_is_one_line(says):
    given = {k: v for k, v in (STUDY | BAD[says]).items() if v is not None}
    with pytest.raises(Exception) as error:
        parse_study(json.dumps(given), "x.yaml")
    assert alike(str(error.value), f"x.yaml: {says}"), error.value


def test_a_start_that_is_not_right_enough_is_one_line(here, monkeypatch):
    monkeypatch.setattr(beam.AcceptanceSet, "wrong", lambda self, theta_P: (12, 59_400))
    done = run(here)
    line = "start: 46p has not grokked: it adds 12 of 59,400 of our own problems wrongly"
    assert done.exit_code == 2 and done.stderr.splitlines() == [f"error: {here / 'small.yaml'}: {line}"]
    assert run(here, compress=STUDY["compress"] | {"accept": {"exact": 0.99}, "rounds": 1}).exit_code == 0


def test_what_a_run_would_do(here):
    done = call("run", write_study(here, STUDY), "--dry-run", "--home", "home")
    assert done.exit_code == 0 and "up to 3, of 4 sets each by saliency, beam 2" in done.stdout


def test_the_recipe_is_that_of_a_descent_unless_the_file_says_otherwise():
    study = parse_study(json.dumps({k: v for k, v in STUDY.items() if k != "recipe"}), "")
    recipe = study.base_recipe()
    assert (recipe.steps, recipe.ramp, recipe.lr, recipe.carry_mix) == (6000, 3000, 0.003, 0.3)
    assert recipe.curriculum == () and study.first_seeds()[0].data_seed == 1
