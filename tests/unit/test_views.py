"""The views of a study's experiment: what is in them, and that MLflow keeps them as it keeps its own."""

import base64
import json
import zlib
from types import SimpleNamespace

from search.study.file import load_study
from search.tracking import views


def state_of(view):
    """What the UI reads out of a tag."""
    envelope = json.loads(view.encoded(7))
    prefix, _, packed = envelope["state"].partition(";")
    assert prefix == "deflate" and (envelope["createdAt"], envelope["updatedAt"]) == (7, 7)
    return json.loads(zlib.decompress(base64.b64decode(packed)))


class Client:
    """An MLflow client with one experiment, which counts what is written."""

    def __init__(self):
        self.tags, self.written = {}, 0

    def get_experiment(self, experiment_id):
        return SimpleNamespace(creation_time=1_700_000_000_000, tags=dict(self.tags))

    def set_experiment_tag(self, experiment_id, key, value):
        self.tags[key], self.written = value, self.written + 1


def test_a_study_of_constraints_has_a_table_by_constraint_and_a_chart_of_with_against_without():
    client = Client()
    views.write_views(client, load_study("constraints"), "1")
    assert len(client.tags) == 4
    table, charts = state_of(views.constraints_view()), state_of(views.ratios_view())
    assert table["groupBy"]["groupByKeys"] == [{"mode": "param", "groupByData": "constraint"}]
    assert table["selectedColumns"][:4] == [
        "params.`scale`", "params.`constraint`", "params.`toggled`", "metrics.`table.ratio`",
    ]  # fmt: skip
    scatter, *bars = charts["compareRunCharts"]
    assert (scatter["type"], scatter["xaxis"]["key"], scatter["yaxis"]["key"]) == (
        "SCATTER", "table.rate_without", "table.rate_with",
    )  # fmt: skip
    assert [bar["metricKey"] for bar in bars] == ["table.ratio", "table.ratio_low", "table.ratio_high"]
