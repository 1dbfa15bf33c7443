"""Made-up results of configurations, recorded in MLflow under the names that Tracker uses, in little time."""

from __future__ import annotations

import math
from statistics import median

import torch
from mlflow.entities import Metric, Param

from search.stats.counting import final_metrics
from search.study.trial import Configuration
from search.tracking.tracker import Tracker
from search.tracking.tracking import KEY_TAG
from trainer import Outcome, Pair, Recipe, Result, Seed


def result_of(recipe: Recipe, number: int, grokked: bool, theta_P: torch.Tensor) -> Result:
    """A made-up seed: its accuracy rises to 1, or to less."""
    evaluations = recipe.steps // recipe.eval_every
    top = 1.0 if grokked else 0.02 * (number % 7)
    rise = [top / (1 + math.exp(6 - 10 * e / evaluations)) for e in range(1, evaluations)]
    curve_EM = torch.tensor([[x, 0.5 + x / 2, 2.3 - 2 * x, 2.3 - 2 * x] for x in [*rise, top]])
    return Result(
        pair=Pair(recipe, Seed.of(number)),
        outcome=Outcome.GROKKED if grokked else Outcome.FAILED,
        steps=recipe.steps,
        grok_step=recipe.steps if grokked else None,
        held=False,
        hopeless_step=None,
        best_step=recipe.steps,
        best_exact=top,
        best_token=0.5 + top / 2,
        theta_P=theta_P,
        curve_EM=curve_EM,
    )


def row_of(result: Result, key: str) -> dict[str, object]:
    """Its row of the ledger, as far as it is summed up."""
    seed = result.pair.seed
    return {
        "configuration": key, "init_seed": seed.init_seed, "data_seed": seed.data_seed,
        "confirmation": False, "outcome": result.outcome, "steps": result.steps,
        "grok_step": result.grok_step, "held": result.held, "hopeless_step": None,
        "best_exact": result.best_exact, "best_token": result.best_token,
    }  # fmt: skip


def record(tracker: Tracker, made: Configuration, seeds: int, grokked: int) -> str:
    """A configuration's run with its parameters, counts and curves. Returns the run."""
    results = [result_of(made.recipe, 770 + n, n < grokked, torch.zeros(0)) for n in range(seeds)]
    final = final_metrics([row_of(r, made.key) for r in results]) | {"verified": min(grokked, 1)}
    metrics = [Metric(f"final.{name}", value, 0, made.recipe.steps) for name, value in final.items()]
    exact_ES = torch.stack([r.curve_EM[:, 0] for r in results], 1).tolist()
    for e, exact_S in enumerate(exact_ES, 1):
        values = {
            "grok_rate": sum(x == 1 for x in exact_S) / seeds, "best_exact": max(exact_S),
            "median_exact": median(exact_S), "loss": 2.3 - 2 * median(exact_S),
        }  # fmt: skip
        metrics += [Metric(name, value, 0, e * made.recipe.eval_every) for name, value in values.items()]
    params = [Param(name, str(value)) for name, value in made.as_params().items()]
    client, experiment = tracker.client, tracker.experiment
    run = client.create_run(experiment, tags={KEY_TAG: made.key}, run_name=made.title).info.run_id
    client.log_batch(run, metrics=metrics, params=params)
    client.set_terminated(run)
    return str(run)
