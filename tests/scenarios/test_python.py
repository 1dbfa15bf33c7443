"""A study that is run from Python: `search.run`, in this process, as the command runs it by Ray."""

import asyncio
import json
import os
import re
import signal
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

import search
from model import preset
from search.run import worker
from search.run.source import changes_of, given_study
from search.store.home import Home
from search.study.file import parse_study
from search.study.written import UNCHANGED
from tests import ROOT, by_tier
from tests.commands import python, refusal
from tests.homes import records_of
from tests.reference import QUICK, check_whole, expected, write_study
from trainer import Recipe
from trainer.checkpoints.checkpoint import Checkpoint

pytestmark = pytest.mark.usefixtures("few_selection_problems", "quick", "here")
LIGHT = """
import json, sys
import search, trainer, model
shown = {m.__name__: [sorted(set(m.__all__) - set(dir(m))), m.__all__] for m in (search, trainer, model)}
search.run
heavy = {"torch", "ray", "mlflow", "pandas", "pydantic", "optuna"} & set(sys.modules)
from search import *
print(json.dumps([shown, sorted(heavy), callable(run), records.__module__]))
"""


def test_names_are_shown_without_being_imported():
    shown, heavy, is_callable, place = json.loads(python("-c", LIGHT))
    assert heavy == [] and is_callable and place == "search.analysis.frames"
    assert not any(hidden for hidden, _ in shown.values())
    assert set(shown["search"][1]) == {"Failure", "Study", "UserError", "records", "run"}
    assert set(shown["trainer"][1]) >= {"Bank", "Pair", "Recipe", "Seed"} and "preset" in shown["model"][1]


def test_the_package_of_that_name_is_no_other_than_what_is_called():
    """`search.run` is the package that holds the driver, too: both uses must work, in any order."""
    import search.run.driver as driver

    assert search.run is sys.modules["search.run"] and search.run.driver is driver and callable(search.run)
    with pytest.raises(AttributeError, match="module 'search' has no attribute 'runn'"):
        search.runn  # noqa: B018


# ---- what is trained


@pytest.mark.full
def test_it_trains_in_the_thread_that_calls_to_the_bits_that_the_command_records(monkeypatch):
    """So a debugger follows it. What a worker sets is as it was afterwards."""
    threads, train = set(), worker.Worker.train
    monkeypatch.setattr(worker.Worker, "train", lambda *a: threads.add(threading.current_thread()) or train(*a))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    whole = search.run(QUICK, "home")
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)
    assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] != "0", "the caller's own MLflow tries again"
    assert threads == {threading.current_thread()}
    check_whole(Path("home").absolute(), QUICK, expected(QUICK))
    assert list(whole.curves["step"]) == [20, 40, 60] * 4


def test_records_come_as_data_frames_and_progress_as_it_goes(trained):
    seen = []
    whole = search.run(QUICK, "home", progress=seen.append)
    assert whole.is_done and str(whole) == "quick: 4 of 4 seeds ended, 0 grokked"
    assert list(whole.seeds["init_seed"]) == [5, 6, 7, 8] and set(whole.seeds["outcome"]) == {"failed"}
    assert len(whole.configurations) == 1 and whole.configurations["seeds"][0] == 4
    assert list(whole.curves["step"]) == [20, 40, 60] * 4
    assert whole.best.seed["init_seed"] in (5, 6, 7, 8) and whole.best.theta_P.shape == (57,)
    assert re.fullmatch(r"Checkpoint\(57p, seed [5-8], step [\d,]+\)", repr(whole.best)), "what a notebook prints"
    assert whole.seeds.equals(search.records("quick", "seeds", home="home"))
    assert seen[0].seeds == (0, 4) and seen[-1].seeds == (4, 4) and "seeds 4 of 4" in str(seen[-1])


def test_a_study_is_a_dict_a_file_a_name_or_a_study(trained):
    """Each names the same: there is nothing left to train."""
    file = str(write_study(Path("studies"), QUICK))
    began = search.run(parse_study(json.dumps(QUICK), "test"), "home").study
    for same, source in ((file, file), (Path(file), file), ("quick", "quick"), (QUICK, "quick")):
        assert given_study(same, Home("home"), pytest.fail, UNCHANGED) == (began, source)
    again = search.run(QUICK, Path("home"), fresh=True)
    assert again.study.name == "quick-2" and trained.ended == dict.fromkeys([5, 6, 7, 8], 2)


def test_values_may_be_those_of_python():
    """As a loop over numpy's numbers has them, tuples, specs and recipes: nothing is left to train of the same."""
    recipe = Recipe(**(QUICK["recipe"] | {"curriculum": ((3, 30),)}))
    changes = {"model": preset("57p"), "recipe": recipe, "seeds": {"first": np.int64(5), "count": 4}}
    plain, given = (given_study(s, Home("x"), pytest.fail, UNCHANGED)[0] for s in (QUICK, QUICK | changes))
    assert given.listed == plain.listed and given.first_seeds == plain.first_seeds


def test_a_call_may_set_values_and_say_what_names_stand_for(trained):
    """In whatever form the study is given."""
    search.run(QUICK, "home")
    file = str(write_study(Path("studies"), QUICK | {"name": "lower", "recipe": {**QUICK["recipe"], "lr": "${RATE}"}}))
    changes = changes_of({"recipe.lr": np.float64(0.004), "seeds.count": 2}, {"RATE": "0.5"})
    for given in (file, QUICK, parse_study(json.dumps(QUICK), "test"), "quick"):
        study, _ = given_study(given, Home("home"), pytest.fail, changes)
        assert study.base_recipe.lr == 0.004 and len(study.first_seeds) == 2
    assert search.run(file, "home", env={"RATE": 0.5}, set={"recipe.steps": 20}).study.base_recipe.lr == 0.5
    for call, said in {
        lambda: search.run(QUICK, "home", set={"recipe.lrr": 1}): "recipe.lrr: unknown key; did you mean lr",
        lambda: search.run(QUICK, "home", set={"recipe.lr": object()}): "set: <object object",
        lambda: search.run(QUICK, "home", set="recipe.lr=1"): "set: must be a dict",
        lambda: search.run(file, "home", set={"recipe.steps": 20}): "stands for nothing here",
    }.items():
        assert said in refusal(search.UserError, call)


@pytest.mark.full
def test_the_page_does_what_it_says(monkeypatch, capsys):
    monkeypatch.setenv("MPLBACKEND", "agg")
    names = {}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text("utf-8"), re.DOTALL):
        exec(block, names)
    said = capsys.readouterr().out
    assert "seeds 4 of 4" in said and "of 10,010 right" in said and Path("curves.png").stat().st_size > 5_000
    assert len(names["seeds"]) == 4 and list(names["curves"].index) == list(range(500, 3_001, 500))
    assert Checkpoint.load("rate-best").theta_P.equal(names["best"].theta_P)


# ---- what is refused


@pytest.mark.parametrize(
    ("study", "options", "said"),
    [
        (QUICK | {"seds": 4}, {}, "quick: seds: unknown key; did you mean seeds?"),
        ({"model": "57p"}, {}, "the study: name: missing\nthe study: seeds: missing"),
        (QUICK | {"seeds": object()}, {}, "quick: <object object at *"),
        ("57q", {}, "unknown study '57q'; did you mean 57p?"),
        ("gone.yaml", {}, "gone.yaml: no such study file"),
        (42, {}, "a study is a dict, a Study, or the name or path of a study file, got int"),
        (QUICK, {"executor": "rai"}, "executor: unknown 'rai'; did you mean ray?"),
        (QUICK, {"max_hours": 0}, "max_hours: must be above 0, got 0"),
        (QUICK, {"max_hours": float("nan")}, "max_hours: must be above 0, got nan"),
        (QUICK, {"home": "/dev/null/x"}, "/dev/null/x: cannot write there (Not a directory)*"),
        (QUICK | {"resources": {"cpu": 1024}}, {}, "quick: resources.cpu: a bank asks for 1024, there are *"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(study, options, said):
    with pytest.raises(search.UserError) as refused:
        search.run(study, **options)
    head, mark, _ = said.partition("*")
    assert str(refused.value).startswith(head) and (mark or str(refused.value) == said)
    assert not any(Path().iterdir()), "nothing is left behind"


def test_a_study_that_another_driver_has_is_left_alone():
    home = Home("home")
    home.create()
    with records_of(home, "quick").lease, pytest.raises(search.UserError, match="already being run by"):
        search.run(QUICK, home.path)


def test_what_fails_for_good_is_a_failure(monkeypatch):
    monkeypatch.setattr(worker.Worker, "train", lambda *given: 1 / 0)
    with pytest.raises(search.Failure, match=r"quick: worker-\d \(seed \d\) failed: ZeroDivisionError: .* and 3 more"):
        search.run(QUICK, "home")
    assert set(search.records("quick", home="home")["outcome"]) == {"censored"}


# ---- how it ends before its end


@pytest.fixture
def often(monkeypatch, trained):
    """Progress is shown at each look."""
    monkeypatch.setattr("search.run.progress.PLAIN_EVERY_S", (0.0, 0.0))


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("number", by_tier([signal.SIGINT, signal.SIGTERM], [signal.SIGINT]))
def test_an_interrupt_ends_it_and_the_same_call_goes_on(number, trained):
    before, seen = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)], []

    def look(snapshot):
        seen.append(snapshot)
        if len(seen) == 3:
            os.kill(os.getpid(), number)

    with pytest.raises(KeyboardInterrupt, match="quick: stopped; the same call goes on"):
        search.run(QUICK, "home", progress=look)
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before
    states = [row["outcome"] for row in records_of(Home("home"), "quick").list_seeds()]
    assert "censored" in states and len(seen) < 6
    assert search.run(QUICK, "home").is_done
    assert trained.ended == dict.fromkeys([5, 6, 7, 8], 1)
    assert max(map(max, trained.begun.values())) > 0, "one went on from where it was saved"


@pytest.mark.usefixtures("often")
def test_a_time_limit_returns_what_there_is_and_an_error_of_the_callers_own_leaves_the_study_free():
    with pytest.raises(ZeroDivisionError):
        search.run(QUICK, "home", progress=lambda snapshot: 1 / 0)
    part = search.run(QUICK, "home", max_hours=1e-9)
    assert (part.is_done, part.why) == (False, "time limit") and "stopped (time limit)" in str(part)
    assert search.run(QUICK, "home").is_done


# ---- where it is called


@pytest.mark.usefixtures("trained")
def test_in_a_thread_that_an_event_loop_waits_for():
    """As a window or a server does its work: only the main thread of a process can handle signals."""
    whole = asyncio.run(asyncio.to_thread(search.run, QUICK, "home"))
    assert whole.is_done and len(whole.seeds) == 4
