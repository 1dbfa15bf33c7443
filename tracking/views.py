"""Views of a study's experiment that open MLflow's UI on the answer: a table by grok rate, and charts.

How MLflow 3.17 keeps a view, read in its scripts (savedViewEnvelope, ExperimentPageUIState, runs-charts):

- It is a tag of the experiment, `mlflow.sharedViewState.ID`, of at most 20,000 characters (5,000 in older
  stores). The address `#/experiments/N/runs?viewStateShareKey=ID` opens it, as a table or, with
  `compareRunsMode=CHART`, as charts. An address with an order or a filter of its own opens no view.
- The tag is JSON: name, createdAt, updatedAt (ms) and state; state is `deflate;` and the base64 of JSON that
  zlib compressed. The menu "Views" lists it by its name.
- The state has which runs (searchFilter, orderByKey, orderByAsc) and what of them (selectedColumns,
  columnOrder, columnWidths, compareRunCharts, compareRunSections, runsHiddenMode, groupBy, ...). What it leaves
  out is as without a view.
- A column is metrics.`NAME`, params.`NAME` or attributes.`LABEL`. Name, date and duration are always there.
  What columnOrder leaves out comes last.
- A chart names its section by uuid. The UI adds a chart for each metric that has none, to the section "Model
  metrics". Parallel coordinates leave out a run that lacks a value, or has a word where most have a number.
"""

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mlflow import MlflowClient

from search.study.schema import Study
from search.study.trial import Configuration
from tracking.shown import (
    CHARTS,
    FINAL,
    PAGE_TAG,
    RATIO,
    ROLE_PARAMS,
    ROLE_TAGS,
    TABLE,
    in_view,
)
from tracking.store import KEY_TAG, SEED_TAG
from trainer import MEASURES

TAG = "mlflow.sharedViewState."
VIEWS = {
    "table": ("adder-search-table", "TABLE"),
    "charts": ("adder-search-charts", "CHART"),
    "seeds": ("adder-search-seeds", "CHART"),
    "constraints": ("adder-search-constraints", "TABLE"),
    "with-against-without": ("adder-search-with-against-without", "CHART"),
}
"""Key and mode of the views, the first to be opened first."""
CONFIGURATIONS = f"tags.`{KEY_TAG}` LIKE '%'"  # neither their seeds' runs nor the study's own
SEEDS = f"tags.`{SEED_TAG}` LIKE '%'"
RATE, RANKED = f"{FINAL}grok_rate", f"{FINAL}ranked_by"
SIDES = {"xaxis": "without", "yaxis": "with"}
MOST_AXES = 10
"""Parallel coordinates beside the rate: more cannot be told apart."""
NAME, STARTED = "attributes.`Run Name`", "runDateAndNestInfo"
"""The columns that come first whether one asks for them or not."""


@dataclass(frozen=True)
class View:
    """A view of an experiment, as MLflow's UI stores it."""

    tag: str
    title: str
    state: dict[str, Any]

    def encoded(self, time_ms: int) -> str:
        """The tag's value; `time_ms`: when it was made, as the UI says."""
        packed = zlib.compress(json.dumps(self.state, separators=(",", ":")).encode(), 9)
        state = "deflate;" + base64.b64encode(packed).decode()
        return json.dumps({"name": self.title, "createdAt": time_ms, "updatedAt": time_ms, "state": state})


def table_view(study: Study) -> View:
    """Return a table: one row per configuration in the order of `best`, with its rates and parameters.

    A search that confirms has two rates, of its own seeds and of the fresh ones, which are not pooled.
    """
    columns = [f"metrics.`{name}`" for name in (in_view("confirmed") if study.confirm else []) + in_view("answer")]
    columns += [f"params.`{name}`" for name in study.kind.varied]
    columns += [f"metrics.`{name}`" for name in in_view("more")]
    columns.append("params.`params`")
    longest = max((len(study.kind.name_of(Configuration(*c))) for c in study.listed), default=40)
    state = _sorted_by() | _columns(columns, min(60 + 6 * longest, 320))
    return View(TAG + VIEWS["table"][0], "Grok rates", state)


def charts_view(study: Study) -> View:
    """Return charts: what was searched against the grok rate, then rates and curves of the twenty highest.

    The rate is that of the search's seeds, which all configurations have.
    """
    fields = study.kind.varied[:MOST_AXES]
    axes = {"selectedParams": fields, "selectedMetrics": [RATE], "showAllRuns": True}
    charts = [_chart("searched", "searched", "PARALLEL", **axes)] if fields else []
    charts.append(_chart("rate", "curves", "BAR", metricKey=RATE))
    charts += _lines(CHARTS)
    sections = [
        _section("searched", "What was searched, and the grok rate", columns=1, cardHeight=320),
        _section("curves", "Grok rates, and the first seeds over steps", columns=3, cardHeight=300),
        _section("rest", "Model metrics", display=False),
    ]
    state = _sorted_by() | _charts(charts, sections if fields else sections[1:], "FIRST_20_RUNS")
    return View(TAG + VIEWS["charts"][0], "Charts of grok rates", state)


def seeds_view() -> View:
    """Return charts of the twenty best seeds over steps, which grow while seeds train.

    By order of creation they would be hidden below their configurations' runs.
    """
    sections = [
        _section("curves", "Seeds over steps", columns=3, cardHeight=360),
        _section("rest", "More", display=False),
    ]
    state = _sorted_by(MEASURES[0]) | {"searchFilter": SEEDS}
    return View(
        TAG + VIEWS["seeds"][0], "Curves of seeds", state | _charts(_lines(MEASURES[:3]), sections, "FIRST_20_RUNS")
    )


def constraints_view() -> View:
    """Return a table of a study of constraints: grouped by constraint, its scales with the ratio of grok rates."""
    columns = [f"params.`{name}`" for name in ROLE_PARAMS]
    columns += [f"metrics.`{TABLE}{name}`" for name in RATIO]
    columns += [f"tags.`{TABLE}{name}`" for name in ROLE_TAGS]
    columns += [f"metrics.`{name}`" for name in in_view("answer")]
    groups = {"aggregateFunction": "average", "groupByKeys": [{"mode": "param", "groupByData": "constraint"}]}
    state = _sorted_by("table.ratio") | _columns(columns, 240) | {"groupBy": groups}
    return View(TAG + VIEWS["constraints"][0], "Constraints", state)


def ratios_view() -> View:
    """Return charts of a study of constraints: grok rates with against without, and the ratio of each arm."""
    rates = {axis: {"key": f"table.rate_{side}", "type": "METRIC"} for axis, side in SIDES.items()}
    charts = [
        _chart("rates", "ratios", "SCATTER", **rates),
        _chart("ratio", "ratios", "BAR", metricKey="table.ratio"),
        _chart("low", "ratios", "BAR", metricKey="table.ratio_low"),
        _chart("high", "ratios", "BAR", metricKey="table.ratio_high"),
    ]
    sections = [
        _section("ratios", "Grok rates with the constraint against without it", columns=2, cardHeight=420),
        _section("rest", "Model metrics", display=False),
    ]
    state = _sorted_by("table.ratio") | _charts(charts, sections, "SHOW_ALL")
    return View(TAG + VIEWS["with-against-without"][0], "With against without", state)


def _sorted_by(metric: str = RANKED) -> dict[str, Any]:
    return {"searchFilter": CONFIGURATIONS, "orderByKey": f"metrics.`{metric}`", "orderByAsc": False}


def _columns(names: list[str], width: int) -> dict[str, Any]:
    """Return the state of a table. width: of the run's name, in pixels; a column is as wide as its own."""
    widths = {name: 20 + 6 * len(name.split("`")[1]) for name in names} | {NAME: width, STARTED: 56}
    return {"selectedColumns": names, "columnOrder": [NAME, STARTED, *names], "columnWidths": widths}


def _charts(charts: list[Any], sections: list[Any], shown: str) -> dict[str, Any]:
    state = {"compareRunCharts": charts, "compareRunSections": sections, "runsHiddenMode": shown}
    return state | {"isAccordionReordered": True}


def _chart(uuid: str, section: str, kind: str, **more: Any) -> dict[str, Any]:
    known = {"uuid": uuid, "type": kind, "metricSectionId": section, "isGenerated": False, "deleted": False}
    return {**known, "runsCountToCompare": 20, **more}


def _lines(metrics: Iterable[str]) -> list[dict[str, Any]]:
    """Return a chart over steps for each metric."""
    plain = {"lineSmoothness": 0, "useGlobalLineSmoothing": False}
    return [_chart(m, "curves", "LINE", metricKey=m, selectedMetricKeys=[m], **plain) for m in metrics]


def _section(uuid: str, name: str, **more: Any) -> dict[str, Any]:
    return {"uuid": uuid, "name": name, "display": True, "isReordered": True, "deleted": False, **more}


def write_views(client: MlflowClient, study: Study, experiment_id: str) -> None:
    """Give a study's experiment its views. Writes what is not there yet, so a second time writes nothing."""
    experiment = client.get_experiment(experiment_id)
    views = [table_view(study), charts_view(study), seeds_view()]
    if study.kind.toggled:
        views += [constraints_view(), ratios_view()]
    for view in views:
        value = view.encoded(experiment.creation_time)
        if experiment.tags.get(view.tag) != value:
            client.set_experiment_tag(experiment_id, view.tag, value)


def addresses(start: str, experiment_id: str, tags: Mapping[str, str]) -> dict[str, str]:
    """Where MLflow's UI shows an experiment, by what is seen there: its views, or all its runs.

    `start`: the UI's first page, by a path or a query. `tags`: the experiment's; one that was recorded without
    views has none. files: the study's own run, with its pictures.
    """
    page = f"{start}#/experiments/{experiment_id}/runs?workflowType=machine_learning"
    found = {name: f"{page}&viewStateShareKey={key}&compareRunsMode={mode}"
             for name, (key, mode) in VIEWS.items() if TAG + key in tags}  # fmt: skip
    found = found or {"runs": page}  # without the workflow it would be an empty page about traces
    if run := tags.get(PAGE_TAG):
        found["files"] = f"{start}#/experiments/{experiment_id}/runs/{run}"
    return found
