"""What Prometheus is shown of a running study, and the Grafana dashboard that draws it."""

import json
import re
import urllib.request
from collections import Counter

import pytest

from search.run.prometheus import COUNTER, MEASURES, PREFIX, STUDY
from tests import ROOT
from tests.commands import running
from tests.homes import drive, records_of, study_of
from tests.processes import wait_until
from tests.reference import QUICK, write_study
from tests.services import need_services, ray_cluster

EXPORTED = {f"ray_{PREFIX}{name}{'_total' if its.kind == COUNTER else ''}": its for name, its in MEASURES.items()}
"""By their names in Prometheus, with Ray's prefix and a counter's suffix."""
SELECTED = re.compile(r"(ray_[a-z_]+)\{([^}]*)\}")
LABEL = re.compile(r'(\w+)=~?"')


# ---- values


@pytest.mark.usefixtures("quick")
def test_what_a_driver_says_is_what_its_ledger_has(home):
    """By exactly the names that are documented, at every moment of a study."""
    study, said = study_of(resources={"seeds_per_trial": 2}), []

    def look(driver):
        values = driver.measures()
        ended = Counter(r["outcome"] for r in records_of(home, study.name).list_seeds() if r.is_final)
        assert values.keys() == MEASURES.keys() and values["seeds_ended"] == ended
        assert all(isinstance(values[name], dict) == bool(its.label) for name, its in MEASURES.items())
        said.append(sum(values["seeds_ended"].values()) + sum(values["seeds_open"].values()))

    drive(home, study, (2,), seen=look)
    assert said[1:] == [4] * (len(said) - 1) and len(said) == 4, "each seed is in one state"


# ---- the dashboard


def test_every_expression_names_a_metric_and_its_labels():
    panels = json.loads((ROOT / "deploy/grafana/adder-search.json").read_text())["panels"]
    drawn = set()
    for text in [target["expr"] for panel in panels for target in panel["targets"]]:
        used = SELECTED.findall(text)
        assert text.count("ray_") == len(used) > 0, text
        for name, selector in used:
            labels = {STUDY, EXPORTED[name].label}
            assert set(LABEL.findall(selector)) <= labels and STUDY in selector, name
            assert set(re.findall(r"by \((\w+)\)", text)) <= labels, text
            drawn.add(name)
        for name in re.findall(r"rate\((\w+)", text):
            assert EXPORTED[name].kind == COUNTER, text
    assert drawn == EXPORTED.keys(), "all is drawn, and nothing else"


# ---- by real Ray


STUDY_FILE = QUICK | {"name": "shown", "seeds": {"first": 5, "count": 16}}
ALWAYS = EXPORTED.keys() - {"ray_adder_search_workers_failed_total"}
"""Ray tells of no counter that was never raised."""


def scraped(port):
    """What a node's exporter says: values by name and labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = {}
    for name, labels, value in re.findall(r"^(ray_adder_search_\w+)\{(.*)\} (\S+)$", text, re.MULTILINE):
        tags = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        found[name, tags.get(STUDY), tags.get(EXPORTED[name].label, "")] = float(value)
    return found


@pytest.mark.full
@pytest.mark.end_to_end
def test_prometheus_is_shown_a_study_while_it_runs(tmp_path):
    """A study on a real cluster, scraped over loopback: all of the dashboard's metrics."""
    need_services()
    last = {}
    with ray_cluster(workers=1, cpus=2, settings={"RAY_metrics_report_interval_ms": "500"}) as cluster:
        ports = [node["metrics"] for node in cluster.known()]
        around = cluster.environment() | {"ADDER_SEARCH_HOME": str(tmp_path / "home")}
        with running("run", write_study(tmp_path, STUDY_FILE), cwd=tmp_path, environment=around) as command:

            def all_there():
                assert command.process.poll() is None, f"it ended, and this was seen: {last}"
                for port in ports:
                    last.update(scraped(port))
                return {name for name, *_ in last} >= ALWAYS

            wait_until(all_there, "not all is exported")
            said = command.wait()
    assert said.code == 0, said
    assert {study for _, study, _ in last} == {"shown"}
    ended = {of: n for (name, _, of), n in last.items() if name.endswith("seeds_ended_total")}
    open_ = {of: n for (name, _, of), n in last.items() if name.endswith("seeds_open")}
    assert ended.keys() == {"failed"} and 0 < ended["failed"] <= 16
    assert open_.keys() == {"running", "waiting", "planned"} and sum(open_.values()) <= 16
