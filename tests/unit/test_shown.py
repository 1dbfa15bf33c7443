"""What MLflow shows is declared once, and written by difference: what it has is not written again."""

from collections import Counter
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from mlflow.entities import RunInfo

from search.analysis import frames
from search.stats.metrics import MAY_BE_ZERO, METRICS, count_checks, final_metrics
from search.stats.record import SeedRecord
from search.study.trial import Configuration
from tests.homes import study_of
from tests.unit.test_counting import FAILED, GIVEN_UP, GROKKED, rows
from tracking import projection, views
from tracking.shown import FINAL
from tracking.store import FINISHED, KEY_TAG, PARENT_TAG, RUNNING, SEED_TAG
from tracking.tracker import ShownRun, Tracker

PLACE = "mlflow-artifacts:/0"


def info(number: int) -> RunInfo:
    about = {"user_id": "me", "status": "RUNNING", "lifecycle_stage": "active", "artifact_uri": PLACE}
    return RunInfo(f"{number:04x}", "0", start_time=5, end_time=None, run_name=f"run {number}", **about)


def run_of(**more) -> ShownRun:
    return ShownRun(info(0), "run 0", RUNNING, **{"params": {}, "tags": {}, "metrics": {}} | more)


class Server:
    """A store in memory: `calls` are the names of its methods that change something, in order."""

    tracking_uri = "http://mlflow"

    def __init__(self):
        self.runs, self.calls, self.batches, self.fails = [], [], [], False

    def search_experiments(self, *args, **options):
        return [
            SimpleNamespace(name="sweep", experiment_id="1", lifecycle_stage="active", tags={"adder.study": "sweep"})
        ]

    def search_runs(self, *args, **options):
        return list(self.runs)

    def create_run(self, experiment, tags, run_name):
        self.calls.append("create_run")
        data = SimpleNamespace(params={}, tags=tags, metrics={})
        self.runs.append(SimpleNamespace(info=info(len(self.runs)), data=data))
        if self.fails:
            raise ConnectionError("the answer is lost")
        return self.runs[-1]

    def log_batch(self, run, metrics=(), params=(), tags=()):
        self.calls.append("log_batch")
        self.batches.append({e.key: e.value for e in (*metrics, *params, *tags)})

    def __getattr__(self, name):
        return lambda *args, **options: self.calls.append(name)


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def tracker(server, home):
    return Tracker(server, home, study_of())


# ---- one table


def test_each_metric_is_declared_once_and_a_view_or_a_frame_has_what_is_declared():
    seeds = rows(GROKKED, FAILED, GIVEN_UP)
    recorded = [*seeds, *rows(GROKKED, first=9, confirmation=True)]
    assert final_metrics(recorded).keys() | count_checks(recorded, 10_010).keys() == METRICS.keys() > MAY_BE_ZERO
    spared = {"spared", "spared_grokked", "screen_spared", "screen_spared_grokked"}
    assert {*frames.BEFORE_BEST, *frames.AFTER_BEST} == METRICS.keys() - spared - {"ranked_by"}


def test_a_metric_that_is_declared_with_a_place_is_a_column_of_the_view():
    columns = views.table_view(study_of()).state["selectedColumns"]
    rate = [f"metrics.`final.{name}`" for name in ("grok_rate", "grok_rate_low", "grok_rate_high", "seeds")]
    assert columns[:4] == rate and "metrics.`final.diverged`" not in columns


# ---- by difference


def test_what_a_run_has_is_not_written_again(server, tracker):
    run = run_of(metrics={"a": 1.0}, tags={"t": "old"}, params={"p": "first"})
    for _ in range(2):
        tracker.write(run, {"a": 1.0, "b": 2.0}, {"t": "new"}, {"p": "second", "q": "third"})
        tracker.set_status(run, FINISHED)
    assert server.batches == [{"b": 2.0, "t": "new", "q": "third"}], "a parameter stays as it was"
    assert server.calls == ["log_batch", "set_terminated"]


def test_a_count_of_nothing_is_left_out_unless_it_was_something_else(server, tracker):
    run = run_of(metrics={f"{FINAL}censored": 3.0})
    for _ in range(2):
        projection.write_counts(tracker, run, rows(FAILED))
    (batch,) = server.batches
    assert batch[f"{FINAL}censored"] == 0 and batch[f"{FINAL}grokked"] == 0 and batch[f"{FINAL}failed"] == 1
    assert f"{FINAL}given_up" not in batch


def test_a_run_whose_creation_was_not_answered_is_not_created_again(server, tracker):
    server.fails = True
    with pytest.raises(ConnectionError):
        tracker.open_run("study sweep", "adder.study", "yes")
    server.fails = False
    for _ in range(2):
        assert tracker.open_run("study sweep", "adder.study", "yes").id == "0000"
    assert server.calls == ["create_run"]


def test_a_seeds_run_is_that_of_its_configuration(server, tracker):
    first, second = (tracker.open_run(key, KEY_TAG, key) for key in ("a", "b"))
    runs = [tracker.open_run("seed 1", SEED_TAG, "1", parent) for parent in (first, second, first)]
    assert [run.id for run in runs] == ["0002", "0003", "0002"]
    assert runs[0].tags == {SEED_TAG: "1", PARENT_TAG: first.id}
    del tracker.runs[KEY_TAG, "b", None]
    tracker.delete_orphans()
    assert server.calls[-1] == "delete_run" and tracker.find(SEED_TAG, "1", second) is None


def test_runs_get_the_name_and_parameters_of_an_extended_search_unless_a_user_named_them(server, tracker):
    configuration = Configuration(*study_of().listed[0])
    run, known = tracker.run_of(configuration), {configuration.key: configuration}

    def extend(name):
        server.calls.clear()
        tracker.study = Mock(kind=Mock(varied=["recipe.clip"], name_of=lambda configuration: name))
        tracker.study.name = "sweep"
        projection.describe_again(tracker, known)

    assert (run.name, run.tags["mlflow.note.content"][:7]) == ("57p", "**57p**") and "recipe.clip" not in run.params
    extend("57p, clip 1")
    assert run.name == "57p, clip 1" and run.tags["mlflow.note.content"].startswith("**57p, clip 1**")
    assert run.params["recipe.clip"] == "1.0" and "update_run" in server.calls
    extend("57p, clip 1")
    assert server.calls == []
    run.name = "the good one"
    for name in ("57p, clip 1", "again"):
        extend(name)
        assert run.name == "the good one" and server.calls == []


def test_seeds_through_stages_are_counted_after_each():
    stages = ('[["wide", 1, 0, 8]]', '[["wide", 1, 1, 8], ["a/b c", 2, 1, 16]]')
    rows = [
        SeedRecord(init_seed=n, outcome=outcome, stages=text, steps=8)
        for n, (outcome, text) in enumerate(zip(("failed", "grokked"), stages, strict=True))
    ]
    metrics = final_metrics(rows)
    assert (metrics["left.wide"], metrics["left.a_b c"]) == (1, 1)


@pytest.mark.parametrize(("won", "lost", "drawn"), [(200, 800, (128, 128)), (300, 10, (246, 10)), (9, 800, (9, 247))])
def test_of_many_seeds_winners_and_losers_are_drawn_as_far_as_there_is_room(won, lost, drawn):
    outcomes = [GROKKED] * won + [FAILED] * lost
    chosen = projection.select_drawn([SeedRecord(init_seed=n, outcome=o) for n, o in enumerate(outcomes)])
    assert tuple(Counter(row.outcome for row in chosen).values()) == drawn
