"""A home is gone on with by a version with one more column of a seed's record, for tests/unit/test_columns.py.

Nothing of the project is imported before its modules are edited.
"""

import json
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

DECLARED = '    luck: float = column("how lucky it was", 0.5, unit="fraction", measured=True, summary=MEDIAN)\n'
MEASURED = "    luck: float = 0.25\n"
EDITS = {
    "search.stats.record": ("    best_token: float | None = column(", DECLARED),
    "trainer.bank.tracker": ("    screen: str | None = None\n", MEASURED),
}
"""A line that is put before another one of a module: the declaration, and what measures it."""


def edit_modules():
    """Import modules as if they had the lines of EDITS."""
    get_code = SourceFileLoader.get_code

    def edited(self, name):
        if name not in EDITS:
            return get_code(self, name)
        place, line = EDITS[name]
        before, after = Path(self.path).read_text().split(place)  # it is there once
        return compile(before + line + place + after, self.path, "exec")

    SourceFileLoader.get_code = edited


def use_column(home):
    """Go on with a home as a driver does, and print what shows the column."""
    edit_modules()
    import pandas as pd
    import torch

    from benchmarks import rows
    from search.analysis.frames import configurations_frame
    from search.stats.metrics import final_metrics
    from search.store.ended_seed import EndedSeed, TrainedBy
    from search.store.home import Home
    from search.store.study_records import open_records
    from tests.commands import done
    from trainer import Outcome, Result, Seed

    records = open_records(Home(home), rows.NAME)
    (configuration,) = records.list_configurations().values()
    before = [seed.luck for seed in records.list_seeds()]
    pair = configuration.pair(Seed.of(100))
    curve_EM = torch.zeros(len(range(0, rows.STEPS, configuration.recipe.eval_every)), 4)
    result = Result(
        pair=pair, outcome=Outcome.FAILED, steps=rows.STEPS, grok_step=None, held=False, hopeless_step=None,
        best_step=rows.STEPS, best_exact=0.0, best_token=0.0, theta_P=torch.zeros(configuration.spec.params),
        curve_EM=curve_EM, luck=0.125,
    )  # fmt: skip
    with records.lease:
        records.claim([(configuration, pair.seed, False)])
        ended = EndedSeed.of(result)  # by a message
        records.record({(configuration.key, 100, 100): ended}, TrainedBy(1.0, {"code": "0"}))
    for suffix in ("parquet", "json"):
        done("records", rows.NAME, "--of", "seeds", "-o", f"{home}/x.{suffix}", "--home", home)
    seeds = records.list_seeds()
    found = {
        "before": before,
        "parquet": pd.read_parquet(f"{home}/x.parquet")["luck"].tolist(),
        "json": [row["luck"] for row in json.loads(Path(home, "x.json").read_text())],
        "status": [row["luck"] for row in json.loads(done("status", rows.NAME, "--json", "--home", home))["seeds"]],
        "result": records.seed(seeds[-1]).result.luck,
        "metric": final_metrics(records.list_seeds(configuration.key))["median_luck"],
        "configurations": configurations_frame(records)["median_luck"].tolist(),
        "help": "luck" in done("records", "--help"),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    use_column(sys.argv[1])
