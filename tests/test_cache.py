"""What one process has compiled, another takes from the cache."""

import threading

import pytest
import yaml

from search.store.part import Part
from tests.commands import adder_search
from trainer.installed import missing_for_compilation
from trainer.programs import _share

STUDY = {
    "name": "shared",
    "model": "262p",  # compiled in two thirds of the time of 57p
    "recipe": {"steps": 20, "batch": 16, "eval_every": 20},
    "seeds": {"first": 1, "count": 3},
    "resources": {"cpu": 1, "gpu": 0, "slots": 1, "seeds_per_trial": 1},
}
GRAPHS = 4  # of a bank: operands, tokens, train step, evaluation


@pytest.mark.full
@pytest.mark.compiled
@pytest.mark.end_to_end
@pytest.mark.skipif(bool(missing_for_compilation()), reason=f"needs {missing_for_compilation()}")
def test_three_trials_of_one_spec_compile_it_once(tmp_path):
    """Two of them at the same time, where there are two cores: each graph is missing from the cache once."""
    file, home = tmp_path / "study.yaml", tmp_path / "home"
    file.write_text(yaml.safe_dump(STUDY))
    said = adder_search("run", str(file), "--home", str(home), cwd=tmp_path)
    assert said.code == 0, said
    parts = [Part.read(f) for f in sorted((home / "artifacts" / "shared").glob("*/artifacts/trials/*"))]
    misses = [part.about["cache_misses"] for part in parts]
    assert len(misses) == 3 and sum(misses) == GRAPHS


def test_a_program_that_another_is_building_comes_last_and_is_waited_for(tmp_path, monkeypatch):
    """Two builders at once: the second leaves out what the first is at, builds the rest, and then waits."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    building, go_on, order = threading.Event(), threading.Event(), []

    def first_builds():
        building.set()
        assert go_on.wait(60)
        order.append("first: train")

    def second_builds(name):
        order.append(f"second: {name}")
        if name == "evaluate":
            go_on.set()

    jobs = {name: lambda name=name: second_builds(name) for name in ("train", "problems", "evaluate")}
    first = threading.Thread(target=_share, args=({"train": first_builds}, "a program"))
    first.start()
    assert building.wait(60)
    _share({"train": lambda: order.append("another program's")}, "another")
    _share(jobs, "a program")
    first.join()
    seconds = ["second: problems", "second: evaluate", "first: train", "second: train"]
    assert order == ["another program's", *seconds]
