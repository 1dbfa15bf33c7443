"""The load of benchmarks.load and benchmarks.cluster; in `make test-faults` 200 trials by Ray, 10,000 seeds."""

import json

import pytest
import sqlalchemy as sa

from benchmarks import cluster, load
from search.run import worker
from search.store.home import Home
from tests import homes
from tests.commands import python
from tracking import mirror, projection


@pytest.mark.faults
def test_200_seeds_with_ray_and_10_000_without(tmp_path):
    out = tmp_path / "load.json"
    # Five seeds a second: those that take no time end faster than MLflow writes them.
    words = ["-m", "benchmarks.load", "--trials", "200", "--seeds", "10000", "--busy", "0.4", "--json"]
    python(*words, out)
    found = json.loads(out.read_text())
    trials, seeds = found["trials"], found["seeds"]
    assert trials["trials"] >= 190 and seeds["seeds"] == 10_000
    assert trials["jobs_at_the_end"] < 100, "the outbox keeps up"
    assert trials["memory_slope_KiB"] < 512, "of the driver, a seed"
    assert seeds["ledger_bytes"] + seeds["mlflow_bytes"] < 40 << 20


def test_what_a_seed_costs_does_not_grow_with_what_is_there(tmp_path, monkeypatch):
    """All of a configuration are counted again when an eighth is new, and a report looks at no row but its own."""
    counted, whole = [], projection.write_counts
    monkeypatch.setattr(projection, "write_counts", lambda *given: counted.append(len(given[2])) or whole(*given))
    load.record_seeds(Home(tmp_path), 60, bank=1, count=1)
    assert 10 < len(counted) < 30 and sum(counted) < 10 * 60 and counted[-1] > 50
    records = homes.records_of(tmp_path, "many")
    said, study = [], load.Study.model_validate({"name": "many", "model": "57p", "seeds": [1]})
    sa.event.listen(records.database.engine, "before_cursor_execute", lambda *given: said.append(given[2:4]))
    records.claim(homes.work_of(study, 777))
    (statement, values), *_ = [(text, v) for text, v in said if "FROM ledger" in text and "SELECT" in text]
    with records.database.begin() as db:
        plan = " ".join(row[3] for row in db.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values))
    assert "study=? AND configuration=? AND init_seed=?" in plan, plan


@pytest.mark.usefixtures("quick")
def test_a_simulated_cluster_records_all(monkeypatch):
    """Driver, plan, ledger and workers are real: what is simulated is time."""
    for module, name in ((worker, "Bank"), (worker, "time"), (mirror, "Outbox"), (cluster.FakeBank, "spend")):
        monkeypatch.setattr(module, name, getattr(module, name))  # and as it was, afterwards
    few = cluster.measure(2, 4, 4, 100_000, 0.01)
    many = cluster.measure(10, 4, 4, 100_000, 0.01)
    assert (few["seeds"], many["seeds"]) == (8, 40)
    assert few["reports"] / few["seeds"] > many["reports"] / many["seeds"], "of many each reports seldom"
    assert all(0 < found[name] < 1 for found in (few, many) for name in ("workers_busy", "driver_busy"))
