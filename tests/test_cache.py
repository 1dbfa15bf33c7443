"""A study's trials share what one of them has compiled."""

import pytest
import yaml

from search.store.part import Part
from tests.commands import adder_search
from trainer.programs import missing_for_compilation

STUDY = {
    "name": "shared",
    "model": "262p",  # compiled in two thirds of the time of 57p
    "recipe": {"steps": 20, "batch": 16, "eval_every": 20},
    "seeds": {"first": 1, "count": 3},
    "resources": {"cpu": 1, "gpu": 0, "slots": 1, "seeds_per_trial": 1},
}
GRAPHS = 4  # of a bank: operands, tokens, train step, evaluation


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
