"""Homes are joined: each pair once, the same or refused, and whatever dies is completed."""

from __future__ import annotations

import shutil

import pytest
import sqlalchemy as sa
import torch

from search import merge
from search.errors import Failure
from search.home import Home
from search.ledger import ROWS, Ledger
from search.plan import Configuration
from search.proposals import Proposals
from search.records import study_of as recorded_study
from search.tracking import Tracker, connect
from tests.commands import call
from tests.homes import (
    STUDY,
    Recorder,
    assert_same,
    empty_home,
    frames,
    quick,
    recorded,
    snapshot,
    study_of,
    thetas,
)
from trainer import Outcome

__all__ = ["quick"]
pytestmark = pytest.mark.usefixtures("here", "quick")
SEARCH = STUDY.replace("sweep", "search") + (
    "space: {recipe.hold: {choice: [1000, 2000, 3000, 4000]}}\n"
    "sampler: {name: grid}\n"
)  # fmt: skip


def merged(*homes, into="joined"):
    """What the command says; it must succeed."""
    said = call("merge", *homes, "--home", into)
    assert said.exit_code == 0, said.stderr
    return said.stdout


def refused(*homes, into="joined", code=2):
    """The error of a merge that must not have written anything."""
    before = {home: snapshot(home) for home in (*homes, into)}
    said = call("merge", *homes, "--home", into)
    assert (said.exit_code, said.stdout) == (code, ""), said.output
    after = {home: snapshot(home) for home in (*homes, into)}
    for home in before:
        changed = {
            p for p in before[home].keys() | after[home].keys() if before[home].get(p) != after[home].get(p)
        }
        assert {p.name for p in changed} <= {"optuna.db"}, "at most a lease came and went"
    return said.stderr


def rows_of(folder, study="sweep"):
    return Ledger(Home(folder)).rows(study)


def numbers(folder, study="sweep"):
    return [r["init_seed"] for r in rows_of(folder, study)]


def change(folder, table, **values):
    """Change a home's database behind the ledger's back."""
    with Ledger(Home(folder)).database.engine.begin() as db:
        db.execute(sa.update(table).values(**values))


def runs(folder):
    """How often MLflow has each name of a run."""
    client = connect(Home(folder), f"sqlite:///{Home(folder).mlflow_db}")
    experiments = [e.experiment_id for e in client.search_experiments()]
    return sorted(r.info.run_name for r in client.search_runs(experiments))


# ---- what is joined


def test_disjoint_homes_are_as_one_that_trained_all():
    recorded("a", (1, 2), grokked=(2,))
    recorded("b", (3,), (4,), grokked=(3,))
    recorded("whole", (1, 2), (3,), (4,), grokked=(2, 3))
    said = merged("a", "b")
    assert said.startswith("sweep: 4 seeds taken, 0 were there already, 0 that never ended left out\n")
    assert "  now 2 of 4 grokked: 50.0%" in said and "adder-search status --home joined" in said
    assert_same(frames("joined"), frames("whole"))
    assert thetas("joined") == thetas("whole") and runs("joined") == runs("whole")
    kept = ("outcome", "steps", "grok_step", "best_exact", "trial", "published", "environment")
    assert [[r[k] for k in kept] for r in rows_of("joined")] == [
        [r[k] for k in kept] for r in rows_of("whole")
    ]
    assert recorded_study("sweep", home="joined") == study_of()
    assert Ledger(Home("joined")).study("sweep")["owner"] is None


def test_the_same_again_changes_nothing():
    for folder, seeds in (("a", (1, 2)), ("b", (3, 4))):
        recorded(folder, seeds, grokked=(1,))
    merged("a", "b")
    before, held = snapshot("joined"), rows_of("joined")
    assert merged("a", "b", "a").startswith("sweep: 0 seeds taken, 4 were there already")
    after = snapshot("joined")
    assert {p for p in before if before[p] != after[p]} <= {p for p in before if p.name == "optuna.db"}
    assert before.keys() == after.keys() and rows_of("joined") == held


def test_sources_are_only_read_and_may_have_been_moved():
    recorded("a", (1, 2), grokked=(1,))
    expected = thetas("a")
    shutil.move("a", "elsewhere")
    before = snapshot("elsewhere")
    merged("elsewhere")
    assert snapshot("elsewhere") == before and thetas("joined") == expected


def test_what_both_have_is_compared_and_kept_once():
    recorded("joined", (1, 2))
    recorded("a", (1, 2), (3,))
    recorded("b", (3,), (1,))  # in other trials
    assert merged("a", "b").startswith("sweep: 1 seeds taken, 3 were there already")
    assert len(thetas("joined")) == 3


def test_of_a_trial_only_the_new_seeds_are_written():
    recorded("joined", (1, 3))
    recorded("a", (1, 2, 3, 4))
    assert merged("a").startswith("sweep: 2 seeds taken, 2 were there")
    recorded("whole", (1, 3), (2, 4))
    assert thetas("joined") == thetas("whole")
    assert frames("joined")["configurations"]["seeds"].tolist() == [4]
    assert len(frames("joined")["curves"]) == 4 * 3


def test_other_seeds_of_a_trial_that_is_there_do_not_replace_it():
    study = study_of()
    first, second = Recorder(empty_home("joined"), study), Recorder(empty_home("a"), study)
    key = first.trial((1, 2)).key
    for recorder in (first, second):
        recorder.done()
    second.trial((3, 4))
    change("a", ROWS, trial=key)
    merged("a")
    assert len(thetas("joined")) == 4 and len({r["trial"] for r in rows_of("joined")}) == 2


def test_trials_of_several_configurations():
    text = STUDY + "configurations: [{recipe: {lr: 0.01}}, {recipe: {lr: 0.02}}]\n"
    study = study_of(text)
    one, two = (Configuration(*c) for c in study.listed())
    for folder, seeds in (("a", (1, 2)), ("b", (2, 3)), ("whole", (1, 2, 3))):
        recorder = Recorder(empty_home(folder), study)
        recorder.trial(work=[(c, n) for n in seeds for c in (one, two)])
        recorder.done()
    assert merged("a", "b").startswith("sweep: 6 seeds taken, 2 were there")
    assert thetas("joined") == thetas("whole")
    assert "over 2 configurations" in merged("a")


def test_only_the_studies_that_are_named():
    recorder = Recorder(empty_home("a"), study_of())
    recorder.trial((1,))
    recorder.done()
    other = Recorder(Home("a"), study_of(name="other"))
    other.trial((1,))
    other.done()
    said = call("merge", "a", "--study", "other", "--home", "joined").stdout
    assert said.startswith("other: 1 seeds") and "sweep" not in said and rows_of("joined") == []
    error = call("merge", "a", "--study", "third", "--home", "joined").stderr
    assert "study 'third' has no records in " in error


def test_what_never_ended_is_left_and_what_was_open_here_is_settled():
    one = Recorder(empty_home("a"), study_of())
    one.trial((1, 2))
    one.censored((3, 4))
    one.done()
    here = Recorder(empty_home("joined"), study_of())
    here.censored((1, 2))
    here.done()
    assert "2 seeds taken, 0 were there already, 2 that never ended" in merged("a")
    assert [r["outcome"] for r in rows_of("joined")] == ["failed", "failed"]
    assert len(thetas("joined")) == 2


def test_results_that_mlflow_has_not_got_yet_are_taken_from_the_trials_folder():
    recorded("a", (1, 2), publish=False)
    recorded("whole", (1, 2))
    merged("a")
    assert thetas("joined") == thetas("whole") and all(r["published"] for r in rows_of("joined"))
    recorded("here", (1, 2), publish=False)  # the target's own next run publishes it
    assert "0 seeds taken, 2 were there already" in merged("whole", into="here")
    assert not any(r["published"] for r in rows_of("here"))


def test_calls_of_verify_are_kept():
    for folder, calls in (("a", 2), ("b", 7), ("joined", 3)):
        recorded(folder, (1,) if folder != "b" else (1, 2))
        change(folder, ROWS, verify_calls=calls)
    merged("a", "b")
    assert [r["verify_calls"] for r in rows_of("joined")] == [7, 7]


def test_a_summary_is_written_for_what_gained_seeds(monkeypatch):
    recorded("joined", (1,))
    recorded("a", (2, 3), grokked=(3,))
    drawn = []
    monkeypatch.setattr(merge, "log_evidence", lambda tracker, final: drawn.append(tracker.study.name))
    merged("a")
    merged("a")
    assert drawn == ["sweep"]
    found = frames("joined")["configurations"].iloc[0]
    assert (found["grokked"], found["seeds"], found["best_seed"]) == (1, 3, "3")
    assert found["verify_tried"] == 1 and "seed 3" in runs("joined")


# ---- what is refused


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        ({"theta_P": torch.zeros(57)}, "θ differs in 57 of 57 numbers"),
        ({"steps": 2_000}, "steps is 3000 in * and 2000 in "),
        ({"best_exact": 0.5}, "best_exact is 0.25 in "),
        ({"outcome": Outcome.DIVERGED}, "outcome is failed in "),
        ({"curve_EM": torch.zeros(3, 4)}, "the curves differ"),
    ],
)
def test_a_pair_with_two_results_is_refused(theirs, said):
    recorded("joined", (1, 2))
    recorded("a", (3, 4))
    recorded("b", (1, 2), changes={2: theirs})
    error = refused("a", "b")
    for part in (*said.split("*"), "seed 2: ", "nothing was written", "adder-search delete sweep --home"):
        assert part in error
    assert numbers("joined") == [1, 2]


def test_sources_are_compared_with_each_other_and_no_home_is_made():
    recorded("a", (1, 2))
    recorded("b", (2, 3), changes={2: {"theta_P": torch.ones(57)}})
    assert "seed 2: θ differs" in call("merge", "a", "b", "--home", "joined").stderr
    assert not Home("joined").path.exists()


def test_not_a_number_is_the_same_as_itself():
    odd = {"outcome": Outcome.DIVERGED, "theta_P": torch.full((57,), torch.nan), "best_exact": float("nan")}
    for folder in ("joined", "a"):
        recorded(folder, (1,), changes={1: odd})
    assert "1 were there already" in merged("a")


def test_a_study_that_runs_is_refused():
    recorded("a", (1,))
    recorded("joined", (2,))
    holder = Ledger(Home("a"))
    holder.hold("sweep", None, None)
    assert "is being run by" in refused("a")
    holder.release("sweep")
    other = Ledger(Home("joined"))
    other.hold("sweep", study_of().model_dump(mode="json", by_alias=True), None)
    assert "is already being run by" in refused("a")


def test_confirmations_are_not_joined_to_what_was_chosen_by():
    recorded("joined", (1, 2))
    recorded("a", (3,), confirmation=True)
    merged("a")
    recorded("b", (2,), confirmation=True)
    assert "seed 2 confirmed in one home and was chosen by in another" in refused("b")


def test_a_list_and_a_search_are_not_joined():
    recorded("joined", (1,))
    recorded("a", (2,), text=SEARCH.replace("search", "sweep"))
    assert "is a search in " in refused("a")


def test_rows_without_their_theta_are_refused():
    recorded("a", (1, 2))
    shutil.rmtree("a/artifacts")
    assert "copy the home whole" in refused("a", into="empty", code=1)
    recorded("b", (1,))
    Home("b").mlflow_db.unlink()
    assert "no mlflow.db" in refused("b", into="empty")


@pytest.mark.parametrize("given", ["missing", "empty", "joined", "file"])
def test_what_is_no_other_home_is_refused(given, here):
    (here / "empty").mkdir()
    (here / "file").write_text("no archive")
    recorded("joined", (1,))
    said = call("merge", given, "--home", "joined")
    assert said.exit_code == 2 and said.stderr.count("error: ") == 1
    assert snapshot("empty") == {}


# ---- deaths


@pytest.mark.parametrize("step", ["counts", "trial", "summary", "end"])
def test_a_merge_that_died_is_completed_by_the_same(step, monkeypatch):
    recorded("joined", (1,))
    recorded("a", (1, 2, 3), grokked=(3,))
    recorded("b", (4,))
    recorded("whole", (1,), (2, 3), (4,), grokked=(3,))
    whole, calls = getattr(Tracker, step), []

    def dies(self, *given, **more):
        calls.append(given)
        if len(calls) == 1 + (step in ("trial", "counts")):
            raise Failure("MLflow is away")
        return whole(self, *given, **more)

    monkeypatch.setattr(Tracker, step, dies)
    assert call("merge", "a", "b", "--home", "joined").exit_code == 1
    assert Ledger(Home("joined")).study("sweep")["owner"] is None
    assert not all(r["published"] for r in rows_of("joined"))
    merged("a", "b")
    assert all(r["published"] for r in rows_of("joined")) and thetas("joined") == thetas("whole")
    assert runs("joined") == runs("whole")
    ours, theirs = frames("joined"), frames("whole")
    for frame in (ours, theirs):
        frame["seeds"] = frame["seeds"].drop(columns="trial")
    assert_same(ours, theirs)


def test_after_a_death_another_result_is_still_refused(monkeypatch):
    recorded("joined", (1,))
    recorded("a", (2,))
    recorded("b", (2,), changes={2: {"best_exact": 0.75}})
    with monkeypatch.context() as patch:
        patch.setattr(Tracker, "trial", lambda *given: (_ for _ in ()).throw(Failure("away")))
        assert call("merge", "a", "--home", "joined").exit_code == 1
    assert "best_exact is 0.25 in " in refused("b")
    merged("a")
    assert len(thetas("joined")) == 2


# ---- searches


def searched(folder, holds, text=SEARCH):
    """A home with a search that proposed these and was told of them."""
    study, home = study_of(text), empty_home(folder)
    recorder, proposals = Recorder(home, study), Proposals(study, home)
    for hold in holds:
        proposals.optuna.enqueue_trial({"recipe.hold": hold})
        configuration = proposals.ask()
        assert configuration.recipe.hold == hold
        trial = recorder.trial(work=[(configuration, n) for n in (1, 2, 3, 4)])
        proposals.tell(configuration, recorder.ledger.rows("search", trial=trial.key))
    recorder.done()


def told(folder, text=SEARCH):
    return sorted(c.recipe.hold for c in Proposals(study_of(text), Home(folder)).told())


def test_proposals_that_were_told_are_not_made_again():
    searched("a", [1_000, 2_000])
    searched("b", [2_000, 3_000])
    said = merged("a", "b")
    assert "12 seeds taken, 4 were there" in said and "3 proposals of its search carried over" in said
    assert told("joined") == [1_000, 2_000, 3_000]
    proposals = Proposals(study_of(SEARCH), Home("joined"))
    assert proposals.ask().recipe.hold == 4_000, "the only point that is left"
    assert proposals.ask() is None
    before = len(proposals.optuna.trials)
    assert "carried over" not in merged("a", "b")
    assert len(Proposals(study_of(SEARCH), Home("joined")).optuna.trials) == before


def test_a_search_is_joined_to_one_that_goes_on():
    searched("joined", [4_000])
    searched("a", [1_000, 4_000])
    assert "1 proposals" in merged("a") and told("joined") == [1_000, 4_000]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SEARCH.replace("4000]", "4000, 5000]"), "space: not the same search in "),
        (SEARCH.replace("fade_end: 200", "fade_end: 300"), "model and recipe: not the same search in "),
    ],
)
def test_another_search_is_refused(text, said):
    searched("joined", [1_000])
    searched("a", [2_000], text)
    assert said in refused("a") and told("joined") == [1_000]
    assert said in call("merge", "joined", "a", "--home", "third").stderr
