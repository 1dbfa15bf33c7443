"""Reading what was recorded: `records` gives all of it as data frames, functions of MLflow alone."""

from __future__ import annotations

import ast
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from mlflow import MlflowClient
from mlflow.entities import Run

from model.fields import nearest
from search.run import worker
from search.errors import UserError
from search.store.home import Home
from search.store.ledger import Ledger, Row
from search.study.trial import Trial
from search.store.stats import GrokRate, Stopping
from search.study.schema import Study, is_name
from search.study.file import recorded_study
from search.store.tracking import BEST_TAG, CENSORED_JSON, KEY_TAG, STUDY_JSON, STUDY_TAG, answered, artifact, connect, is_local, tracking_uri, trial_folders
from trainer import Outcome

PAGE = 1_000  # runs in one answer
COUNTS = (
    "grokked", "failed", "diverged", "given_up", "censored", "held", "verified", "verify_tried",
    "confirmation_grokked", "confirmation_seeds", "confirmation_given_up",
)  # fmt: skip
FACTS = ("steps", "grok_step", "held", "hopeless_step", "best_step", "best_exact", "best_token")


def records(
    study: str | Sequence[str],
    of: Literal["seeds", "configurations", "curves"] = "seeds",
    *,
    home: str | Path | None = None,
) -> pd.DataFrame:
    """What is recorded of one study or several: a row a seed, a configuration, or a point of a curve.

    seeds: study, configuration (its key), title, rung, params, init_seed, data_seed, confirmation, outcome,
    steps, budget, grok_step, held, hopeless_step, best_step, best_exact, best_token, trial, environment.
    configurations: the same names, MLflow's ids, counts by outcome, `seeds` (n of the rate), grok_rate with
    its 95 % interval, median_grok_step, best_seed, the confirmation's share of the counts, and a column for
    every field of spec and recipe (`model.tie_vo`, `recipe.lr`). curves: configuration, init_seed, data_seed,
    step, and the measures at that step (docs/architecture.md, "Records").

    Raises UserError for an unknown study, ValueError for another `of`.
    """
    names = [study] if isinstance(study, str) else list(study)
    found = [read(reach(Home(home), name), name, of) for name in names]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame()


def read(client: MlflowClient, study: str, of: str) -> pd.DataFrame:
    """`records` of one study from a store that has been reached."""
    readers = {"seeds": _seeds, "configurations": _configurations, "curves": _curves}
    if of not in readers:
        raise ValueError(f"of must be one of {', '.join(readers)}, got {of!r}")
    with answered(study):
        return readers[of](client, study)


def studies(home: str | Path | None = None) -> list[str]:
    """The names of the studies that have records."""
    return _known(reach(Home(home)))


def study_of(study: str, *, home: str | Path | None = None) -> Study | None:
    """A study as its file was when it last ran; None for one that ran before studies were recorded."""
    client = reach(Home(home), study)
    with answered(study), tempfile.TemporaryDirectory() as folder:
        own = [r for r in _all_runs(client, study) if STUDY_TAG in r.data.tags]
        if not own:
            return None
        path = client.download_artifacts(own[0].info.run_id, STUDY_JSON, folder)
        return recorded_study(Path(path).read_text(), f"study {study} as it was recorded")


def reach(home: Home, study: str | None = None) -> MlflowClient:
    """The store that has a study's records. Raises UserError where nothing has run."""
    kept = (Ledger(home).study(study) if study and home.exists() else None) or {}
    uri = tracking_uri(home, kept.get("tracking_uri"))
    if is_local(uri) and not home.exists():
        raise UserError(f"nothing has run yet in {home.path}")
    return connect(home, uri)


def runs_of(client: MlflowClient, study: str) -> list[Run]:
    """The runs of a study's configurations, oldest first. Raises UserError for an unknown study."""
    runs = [r for r in _all_runs(client, study) if KEY_TAG in r.data.tags]
    return sorted(runs, key=lambda r: (r.info.start_time, r.info.run_id))


def _all_runs(client: MlflowClient, study: str) -> list[Run]:
    experiment = client.get_experiment_by_name(study) if is_name(study) else None
    if experiment is None:
        raise UserError(
            f"study {study!r} has no records here; {nearest(study, _known(client) or ['none yet'])}"
        )
    found, token = [], None
    while True:
        page = client.search_runs([experiment.experiment_id], max_results=PAGE, page_token=token)
        found += page
        token = page.token
        if not token:
            return found


def _known(client: MlflowClient) -> list[str]:
    return sorted(e.name for e in client.search_experiments() if is_name(e.name))


def _configurations(client: MlflowClient, study: str) -> pd.DataFrame:
    return pd.DataFrame([_configuration(study, run) for run in runs_of(client, study)])


def _configuration(study: str, run: Run) -> Row:
    """A row of the configurations' frame."""
    final = {k.removeprefix("final."): v for k, v in run.data.metrics.items() if k.startswith("final.")}
    params = {name: _typed(text) for name, text in run.data.params.items()}
    n = {name: int(final.get(name, 0)) for name in COUNTS}
    seeds = int(final.get("seeds", 0))
    rate = GrokRate(n["grokked"], seeds, n["given_up"])
    low, high = rate.interval
    return {
        "study": study,
        "configuration": run.data.tags[KEY_TAG],
        "title": run.info.run_name,
        "experiment_id": run.info.experiment_id,
        "run_id": run.info.run_id,
        "rung": params.pop("rung"),
        "params": params.pop("params"),
        "seeds": seeds,
        **{name: n[name] for name in COUNTS[:5]},
        "grok_rate": rate.rate,
        "grok_rate_low": low,
        "grok_rate_high": high,
        "best_exact": final.get("best_exact", 0.0),
        "median_grok_step": final.get("median_grok_step", float("nan")) if n["grokked"] else float("nan"),
        **{name: n[name] for name in COUNTS[5:8]},
        "best_seed": run.data.tags.get(BEST_TAG, ""),
        **{name: n[name] for name in COUNTS[8:]},
        **params,
    }


def _typed(text: str) -> Any:
    """A parameter as it was before MLflow made a string of it; lists, such as a curriculum, become tuples."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return tuple(map(tuple, value)) if isinstance(value, list) else value


def _seeds(client: MlflowClient, study: str) -> pd.DataFrame:
    rows = [row for run, folder in _trials(client, study) for row in _seed_rows(study, run, folder)]
    ended = {(r["configuration"], r["init_seed"], r["data_seed"]) for r in rows}
    censored = _censored(client, study)
    rows += [r for r in censored if (r["configuration"], r["init_seed"], r["data_seed"]) not in ended]
    return pd.DataFrame(rows)


def _censored(client: MlflowClient, study: str) -> list[Row]:
    """Rows of the seeds that were ended from outside, as their configurations were last concluded."""
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for run in runs_of(client, study):
            if (path := artifact(client, run, CENSORED_JSON, Path(scratch))) is None:
                continue
            about = {
                "study": study, "configuration": run.data.tags[KEY_TAG], "title": run.info.run_name,
                "rung": run.data.params["rung"], "params": int(run.data.params["params"]),
                "outcome": Outcome.CENSORED.value, "budget": int(run.data.params["recipe.steps"]),
                "grok_step": float("nan"), "hopeless_step": float("nan"), "held": False, "best_step": 0,
                "trial": "", "environment": {},
            }  # fmt: skip
            rows += [about | seed for seed in json.loads(path.read_text())["seeds"]]
    return [r | {"best_exact": r["best_exact"] or 0.0, "best_token": r["best_token"] or 0.0} for r in rows]


def _seed_rows(study: str, run: Run, folder: Path) -> Iterator[Row]:
    """The rows of one trial's seeds of one configuration."""
    trial, about = Trial.read(folder), json.loads((folder / worker.RESULTS).read_text())
    (configuration,) = trial.configurations
    for seed in about["seeds"]:
        facts = {name: seed.get(name) for name in FACTS}
        steps = {name: float("nan") for name in ("grok_step", "hopeless_step") if facts[name] is None}
        yield {
            "study": study,
            "configuration": configuration.key,
            "title": configuration.title,
            "rung": run.data.params["rung"],
            "params": configuration.spec.params,
            "init_seed": seed["init_seed"],
            "data_seed": seed["data_seed"],
            "confirmation": trial.confirmation,
            "outcome": seed["outcome"],
            "budget": configuration.recipe.steps,
            **(facts | steps),
            "trial": folder.name,
            "environment": about["environment"],
        }


def _curves(client: MlflowClient, study: str) -> pd.DataFrame:
    tables = [pd.read_parquet(folder / worker.CURVES) for _, folder in _trials(client, study)]
    if not tables:
        return pd.DataFrame()
    curves = pd.concat(tables, ignore_index=True)
    curves.insert(0, "study", study)
    return curves


def _trials(client: MlflowClient, study: str) -> Iterator[tuple[Run, Path]]:
    """Every finished trial's folder, with the run of the configuration whose seeds it has."""
    with tempfile.TemporaryDirectory() as scratch:
        for run in runs_of(client, study):
            for folder in trial_folders(client, run, Path(scratch)):
                yield run, folder


def overview(rows: list[Row]) -> list[dict[str, Any]]:
    """One dictionary a study: trials, seeds, counts by outcome, grok rate with its interval."""
    studies: dict[str, list[Row]] = {}
    for row in rows:
        studies.setdefault(row["study"], []).append(row)
    return [{"study": name, **summarise(mine)} for name, mine in studies.items()]


def summarise(rows: list[Row]) -> dict[str, Any]:
    """Counts of some ledger rows, and the grok rate where they are one configuration's: to pool the rates of
    several, chosen by what came before, means nothing."""
    rate, stopping = GrokRate.of(r["outcome"] for r in rows), Stopping.of(rows)
    counts = Counter(r["outcome"] for r in rows)
    configurations = len({r["configuration"] for r in rows})
    return {
        "configurations": configurations,
        "trials": len({r["trial"] for r in rows}),
        "seeds": len(rows),
        "states": {o.value: counts[o] for o in Outcome if counts[o]},
        "grokked": rate.grokked,
        "counted": rate.n,
        "grok_rate": rate.rate if configurations == 1 else None,
        "interval": list(rate.interval) if configurations == 1 else None,
        "held": sum(bool(r["held"]) for r in rows),
        "given_up": stopping.given_up,
        "spared": stopping.spared,
        "spared_grokked": stopping.spared_grokked,
        "best_exact": max((r["best_exact"] or 0.0 for r in rows), default=0.0),
        "verify_calls": sum(r["verify_calls"] for r in rows),
    }
