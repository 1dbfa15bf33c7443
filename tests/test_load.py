"""The load of benchmarks.load: a few trials without Ray; in `make test-faults` 200 with it, 10,000 seeds."""

import json
import subprocess
import sys

import pytest

from benchmarks import load
from search.store.home import Home
from search.store.ledger import Ledger
from tests.reference import environment


@pytest.mark.faults
def test_200_trials_and_10_000_seeds(tmp_path):
    out = tmp_path / "load.json"
    command = [
        sys.executable,
        "-m",
        "benchmarks.load",
        "--trials",
        "200",
        "--seeds",
        "10000",
        "--json",
        str(out),
    ]
    subprocess.run(command, check=True, timeout=1_700)
    found = json.loads(out.read_text())
    trials, seeds = found["trials"], found["seeds"]
    assert trials["trials"] == 200 and seeds["seeds"] == 10_000
    assert trials["jobs_at_the_end"] < 100, "the outbox keeps up"
    assert trials["memory_slope_KiB"] < 512, "of the driver, a trial"
    assert seeds["ledger_bytes"] + seeds["mlflow_bytes"] < 20 << 20


def test_a_few_trials_and_seeds(tmp_path):
    with environment({}):
        found = load.run_trials(Home(tmp_path / "trials"), 8, workers=0, busy_s=0)
    assert found["trials"] == 8 and found["jobs_at_the_end"] < 100
    recorded = load.record_seeds(Home(tmp_path / "seeds"), 40)
    rows = Ledger(Home(tmp_path / "seeds")).rows("many")
    assert recorded["seeds"] == len(rows) == 40 and all(r["published"] for r in rows)
