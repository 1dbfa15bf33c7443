"""Checkpoints as MLflow's models: logged models of runs, and versions of registered models with aliases.

A logged model has a pyfunc flavour around the exported submission, so that torch alone predicts with it.
"""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Dataset
from mlflow.exceptions import MlflowException

from adders.export import export_source
from adders.proof.program import source as program_text
from adders.proof.second import program_digest
from model import preset_name
from model.tasks import ADDITION
from search.errors import Failure, one_line
from tracking.datasets import described
from tracking.shown import PROVED_TAG, word
from trainer.checkpoints.checkpoint import Checkpoint

BEST, SMALLEST, SMALLEST_PROVED = "best", "smallest", "smallest-proved"
"""Aliases of versions."""
MEANING = (
    "Adders, a version for each checkpoint and program (adder-search). `best`: the best verified seed of the "
    "configuration that ranks first in `adder-search best`, if it has one. `smallest`, `smallest-proved`: the fewest "
    "parameters of those that are verified, or proved."
)
THETA_TAG, PARAMS_TAG, VERIFIED_TAG = "adder.theta", "adder.params", "adder.verified"
MODEL_TAG = "adder.model"
"""Tag of a version: its logged model. MLflow's SQL store keeps it for sources of another kind alone."""
PROGRAM = "submission.py"
REQUIREMENTS = ["mlflow", "pandas", "torch"]
EXAMPLE = {"a": [3, 9_999_999_999, 5_000_000_000], "b": [4, 1, 5_000_000_000]}


@dataclass(frozen=True)
class Facts:
    """What is known of a checkpoint; None what is not."""

    correct: int | None = None
    """Of AdderBoard's 10,010 additions."""
    margin: float | None = None
    proved: bool | None = None
    """True or False where all pairs are decided."""

    @property
    def verified(self) -> bool:
        """True if all of AdderBoard's additions are right."""
        return self.correct == ADDITION.problems

    def metrics(self, checkpoint: Checkpoint) -> dict[str, float]:
        """Return metrics of a logged model."""
        values = {
            "best_exact": checkpoint.metrics.get("best_exact"),
            "adderboard": self.correct,
            "margin": self.margin,
            "verified": self.verified if self.correct is not None else None,
            "proved": self.proved,
        }
        return {name: float(value) for name, value in values.items() if value is not None}


def digest_of(checkpoint: Checkpoint) -> str:
    """Return a digest of spec, program and θ: the same model has the same."""
    spec, theta_P = checkpoint.spec, checkpoint.theta_P
    # a proof is of a program, and one that is exported later may be another
    text = json.dumps(spec.as_dict(), sort_keys=True) + program_digest(program_text(spec, theta_P))
    # θ as bytes: two that differ in a bit are two models
    return hashlib.sha256(text.encode() + theta_P.numpy().tobytes()).hexdigest()[:16]


def adderboard_dataset() -> Dataset:
    """Return the dataset on which adders are verified."""
    source = {"seed": 2025, "pairs": ADDITION.problems, "protocol": "https://github.com/anadim/AdderBoard"}
    columns = [{"type": "long", "name": name, "required": True} for name in ("a", "b", "sum")]
    schema = {"mlflow_colspec": columns}
    return described("AdderBoard 10,010", json.dumps(source), json.dumps(schema))


def log_model(
    client: MlflowClient, experiment: str, run: str, checkpoint: Checkpoint, facts: Facts,
    check: Callable[[str], object] = lambda uri: None,
) -> str:  # fmt: skip
    """Write a checkpoint as a logged model of a run, once. Return its id.

    check: raises Failure for a place of artifacts that is none of the store's.
    """
    digest = digest_of(checkpoint)
    models = client.search_logged_models([experiment], f"tags.`{THETA_TAG}` = '{digest}'")
    own = [model for model in models if model.source_run_id == run]
    for model in own:
        if str(model.status) == "READY":
            return str(model.model_id)
    # a driver that died before the end left them, without their artifacts or some of them
    for model in own:
        client.delete_logged_model(model.model_id)
    spec = checkpoint.spec
    params = {"model": preset_name(spec), "params": spec.params, **checkpoint.seed, "step": checkpoint.step}
    texts = {key: str(value) for key, value in params.items()}
    name = f"adder-{spec.params}p-{digest[:6]}"
    logged = client.create_logged_model(experiment, name, run, {THETA_TAG: digest}, texts, "adder")
    check(logged.artifact_location)
    with tempfile.TemporaryDirectory() as folder:
        write_model(checkpoint, Path(folder), logged.model_id, run)
        client.log_model_artifacts(logged.model_id, str(Path(folder) / "model"))
    dataset = adderboard_dataset()
    about = {"dataset_name": dataset.name, "dataset_digest": dataset.digest, "model_id": logged.model_id}
    # at the run's start, so that a metric that is written again is the same
    start = client.get_run(run).info.start_time
    for key, value in facts.metrics(checkpoint).items():
        client.log_metric(run, key, value, timestamp=start, **about)
    # last, as a model that is ready is never written again
    client.finalize_logged_model(logged.model_id, "READY")
    return str(logged.model_id)


def write_model(checkpoint: Checkpoint, folder: Path, model_id: str | None = None, run: str | None = None) -> None:
    """Write the model's folder, `model`, with its MLmodel file, below `folder`."""
    import pandas as pd
    from mlflow.models import Model, ModelSignature
    from mlflow.pyfunc import save_model
    from mlflow.types import ColSpec, DataType, Schema

    spec = checkpoint.spec
    name = f"{preset_name(spec)} seed {checkpoint.seed.get('init_seed', 'unknown')}"
    source = export_source(spec, checkpoint.theta_P, name=name, author="adder-search", provenance=checkpoint.provenance)
    program = folder / PROGRAM
    program.write_text(source, encoding="utf-8")
    inputs = Schema([ColSpec(DataType.long, column) for column in EXAMPLE])
    save_model(
        folder / "model",
        python_model=str(Path(__file__).with_name("pyfunc_model.py")),
        artifacts={"submission": str(program)},
        signature=ModelSignature(inputs, Schema([ColSpec(DataType.long, "sum")])),
        input_example=pd.DataFrame(EXAMPLE),
        pip_requirements=REQUIREMENTS,
        mlflow_model=Model(model_id=model_id, run_id=run),
    )


def register(
    client: MlflowClient, name: str, model_id: str, run: str, checkpoint: Checkpoint, facts: Facts,
    aliases: Iterable[str] = (), description: str = "",
) -> str:  # fmt: skip
    """Make a logged model a version of a registered model, once, and set aliases. Return the version.

    `smallest` and `smallest-proved` go to the version with the fewest parameters of those that are verified, or proved:
    of equals to `best`, or else to the earliest.
    """
    try:
        client.create_registered_model(name, description=MEANING)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise Failure(f"registered model {name}: {one_line(error)}") from None
    digest = digest_of(checkpoint)
    versions = client.search_model_versions(f"name = '{name}'")
    existing = next((v for v in versions if v.tags.get(THETA_TAG) == digest), None)
    tags = {
        THETA_TAG: digest,
        PARAMS_TAG: str(checkpoint.spec.params),
        VERIFIED_TAG: word(facts.verified),
        MODEL_TAG: model_id,
    }
    if facts.proved is not None:
        tags[PROVED_TAG] = word(facts.proved)
    if existing is None:
        # not `models:/ID`, which would ask the store of the environment
        source = client.get_logged_model(model_id).artifact_location
        existing = client.create_model_version(
            name, source, run_id=run, tags=tags, model_id=model_id, description=description
        )
        versions = [*versions, existing]
    else:
        for key, value in tags.items():
            client.set_model_version_tag(name, existing.version, key, value)
    # the store's answer is of before the tags that were just set
    tags_of = {v.version: v.tags for v in versions} | {existing.version: {**existing.tags, **tags}}
    for alias in aliases:
        client.set_registered_model_alias(name, alias, existing.version)
    best = client.get_registered_model(name).aliases.get(BEST)
    for alias, tag in ((SMALLEST, VERIFIED_TAG), (SMALLEST_PROVED, PROVED_TAG)):
        version = _smallest(tags_of, tag, best)
        if version is not None:
            client.set_registered_model_alias(name, alias, version)
    return str(existing.version)


def _smallest(tags_of: Mapping[Any, Mapping[str, str]], tag: str, best: Any) -> Any:
    """Return the version with the fewest parameters whose tag says yes; of equals the best, or the earliest."""
    # a version that somebody registered by other means has no count
    versions = [v for v, tags in tags_of.items() if tags.get(tag) == "yes" and PARAMS_TAG in tags]

    def order(version: Any) -> tuple[int, bool, int]:
        params = int(tags_of[version][PARAMS_TAG])
        return params, str(version) != str(best), int(version)

    return min(versions, key=order, default=None)
