"""lab/scripts/ship.py: what is shipped makes the same table as the study."""

import json

import pandas as pd

from lab.scripts.ship import SEEDS, ship
from tests.commands import call
from tests.homes import Recorder, empty_home, quickly, study_of


def test_a_shipped_study_makes_the_same_table(tmp_path):
    home = empty_home(tmp_path / "runs")
    with quickly():
        study = Recorder(home, study_of(toggle=["tie_vo"], recipe={"steps": 3000, "finish_above": 0.5}))
        study.seeds((1, 2, 3, 4), grokked=(2,))
        study.seeds((1, 2), study.configurations[1], grokked=(1, 2))
        study.done()
    paths = ship("sweep", [], str(home.path), tmp_path)
    assert [path.name for path in paths] == ["sweep-configurations.parquet", "sweep-seeds.parquet"]
    assert list(pd.read_parquet(paths[1])) == list(SEEDS)
    shipped, recorded = (
        json.loads(call("table", *words, "--format", "json").stdout)
        for words in (paths, ("sweep", "--home", home.path))
    )
    assert shipped == recorded and shipped[0]["verified_with"] == 1 and shipped[0]["pairs"] == 2
