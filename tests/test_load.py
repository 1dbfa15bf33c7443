"""The small load: 200 trials and 10,000 recorded seeds, by benchmarks.load. Part of `make test-faults`."""

import json
import subprocess
import sys

import pytest


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
