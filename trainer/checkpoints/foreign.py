"""Other projects' checkpoints, of MicroAdder's, the 456p report's and Qwen-like training code, read as ours."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from torch import Tensor

from model.spec import Spec
from trainer.checkpoints import foreign_low_rank, foreign_microadder, foreign_rope
from trainer.checkpoints.checkpoint import JSON_FILE, THETA_FILE, Checkpoint
from trainer.checkpoints.foreign_file import (
    LARGEST,
    State,
    integer,
    load_archive,
    load_tensors,
    mapping,
    plain,
)

Content = Mapping[str, Any]


def load_any(path: Path) -> Checkpoint:
    """Load a checkpoint folder of ours, either of its files, or another program's file.

    Raises ValueError saying what is wrong.
    """
    is_foreign = not path.is_dir() and path.name not in (JSON_FILE, THETA_FILE)
    return read_foreign(path) if is_foreign else Checkpoint.load(path)


def read_foreign(path: Path) -> Checkpoint:
    """Read another program's checkpoint file. Nothing in it is run.

    Raises ValueError for another kind of file, a setting that no spec can express, or a tensor that does not fit
    the settings.
    """
    try:
        data = _bytes(path)
        source = {"imported_from": path.name, "sha256": sha256(data).hexdigest()}
        tensors = load_tensors(data)
        return _checkpoint(load_archive(data), source) if tensors is None else _from_qwen(tensors, source)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _bytes(path: Path) -> bytes:
    if not path.is_file():
        raise ValueError("not a file" if path.exists() else "no such file")
    with path.open("rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"larger than any checkpoint known here ({path.stat().st_size} bytes)")
    return data


def _checkpoint(content: Content, source: dict[str, Any]) -> Checkpoint:
    if {"model_state_dict", "config"} <= content.keys():
        return _from_microadder(content, source)
    if {"model_state", "model_config"} <= content.keys():
        return _from_report(content, source)
    if {"state_dict", "config"} <= content.keys():
        return _from_rope(content, source)
    raise ValueError(
        "a checkpoint of no known format: MicroAdder's has model_state_dict and config, "
        "the 456p report's model_state and model_config, tbukic's state_dict and config"
    )


def _from_microadder(content: Content, source: dict[str, Any]) -> Checkpoint:
    state = State(content["model_state_dict"], "model_state_dict")
    spec, theta_P = foreign_microadder.read(mapping(content["config"], "config"), state)
    about = source | {"format": "MicroAdder", "trained_by": "MicroAdder's training code"}
    return _ours(spec, theta_P, content, about, content.get("metrics"), content.get("args"))


def _from_report(content: Content, source: dict[str, Any]) -> Checkpoint:
    state = State(content["model_state"], "model_state")
    spec, theta_P = foreign_low_rank.read(mapping(content["model_config"], "model_config"), state)
    if (stored := integer(content, "params", spec.params)) != spec.params:
        raise ValueError(f"params is {stored}, but its settings and tensors make {spec.params}")
    about = source | {"format": "456p report", "trained_by": "the 456p report's training code"}
    metrics = {name: content[name] for name in ("val_exact",) if name in content}
    return _ours(spec, theta_P, content, about, metrics, content.get("train_config"))


def _from_rope(content: Content, source: dict[str, Any]) -> Checkpoint:
    state = State(content["state_dict"], "state_dict")
    spec, theta_P = foreign_rope.read(mapping(content["config"], "config"), state)
    about = source | {"format": "tbukic", "trained_by": "training code of a Qwen-like adder"}
    metrics = {name: content[name] for name in ("accuracy", "n_params") if name in content}
    return _ours(spec, theta_P, content, about, metrics, content.get("args"))


def _from_qwen(tensors: Content, source: dict[str, Any]) -> Checkpoint:
    spec, theta_P = foreign_rope.read_qwen(State(tensors, "its content"))
    about = source | {"format": "Qwen3", "trained_by": "another program"}
    return _ours(spec, theta_P, {}, about, {}, {})


def _ours(
    spec: Spec, theta_P: Tensor, content: Content, about: dict[str, Any], metrics: Any, arguments: Any
) -> Checkpoint:
    metrics, arguments = (value if isinstance(value, dict) else {} for value in (plain(metrics), plain(arguments)))
    seed = arguments.get("seed")
    return Checkpoint(
        spec=spec,
        theta_P=theta_P,
        seed={"init_seed": seed, "data_seed": seed} if type(seed) is int else {},
        step=integer(content, "step", 0),
        metrics=metrics,
        provenance={**about, "arguments": arguments},
    )
