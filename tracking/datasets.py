"""Datasets of MLflow's runs: what a run is trained on, or its checkpoint measured."""

import dataclasses
import hashlib
import json

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag

from model.tasks import ADDITION, Task
from trainer import Recipe
from trainer.recipe.carry import CarrySchedule
from trainer.recipe.curriculum import Augmentation, Curriculum


def described(name: str, about: str, schema: str | None = None) -> Dataset:
    """Return a dataset that is described by a text, whose digest it has."""
    return Dataset(name, hashlib.sha256(about.encode()).hexdigest()[:8], "code", about, schema)


def training_dataset(task: Task, recipe: Recipe) -> Dataset:
    """Return the problems that a recipe trains on: a function of data seed and step, never stored."""
    groups = (Curriculum, Augmentation, CarrySchedule)
    fields = {f.name: getattr(recipe, f.name) for group in groups for f in dataclasses.fields(group)}
    if task != ADDITION:
        fields["task"] = str(task)
    text = json.dumps(fields, sort_keys=True)
    name = "additions by step" if task == ADDITION else f"{task.title} by step"
    return described(name, text)


def log_dataset(client: MlflowClient, run: str, dataset: Dataset, context: str = "verification") -> None:
    """Note what a run is trained on, or its checkpoint measured."""
    client.log_inputs(run, datasets=[DatasetInput(dataset, [InputTag("mlflow.data.context", context)])])
