"""Other people's checkpoints: a file that MicroAdder's or the 456p report's training code wrote, as ours."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from torch import Tensor

from model.spec import Spec
from trainer.checkpoints import foreign_low_rank, foreign_microadder
from trainer.checkpoints.checkpoint import JSON_FILE, THETA_FILE, Checkpoint
from trainer.checkpoints.foreign_file import LARGEST, State, integer, mapping, plain, unpacked

Content = Mapping[str, Any]
Found = tuple[Spec, Tensor]


def load_any(path: Path) -> Checkpoint:
    """A checkpoint folder of ours, either of its files, or another program's file.

    Raises ValueError saying what is wrong.
    """
    ours = path.is_dir() or path.name in (JSON_FILE, THETA_FILE)
    return Checkpoint.load(path) if ours else read_foreign(path)


def read_foreign(path: Path) -> Checkpoint:
    """Another program's checkpoint file. Nothing in it is run.

    Raises ValueError saying what the file is instead, which of its settings no spec can say, or which tensor
    is not as its settings demand.
    """
    try:
        data = _bytes(path)
        return _checkpoint(unpacked(data), {"imported_from": path.name, "sha256": sha256(data).hexdigest()})
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
    raise ValueError(
        "a checkpoint of no known format: MicroAdder's has model_state_dict and config, "
        "the 456p report's model_state and model_config"
    )


def _from_microadder(content: Content, source: dict[str, Any]) -> Checkpoint:
    state = State(content["model_state_dict"], "model_state_dict")
    found = foreign_microadder.read(mapping(content["config"], "config"), state)
    written = {"format": "MicroAdder", "trained_by": "MicroAdder's training code"}
    return _ours(found, content, source | written, content.get("metrics"), content.get("args"))


def _from_report(content: Content, source: dict[str, Any]) -> Checkpoint:
    state = State(content["model_state"], "model_state")
    found = foreign_low_rank.read(mapping(content["model_config"], "model_config"), state)
    stored = integer(content, "params", found[0].params)
    if stored != found[0].params:
        raise ValueError(f"params is {stored}, but its settings and tensors make {found[0].params}")
    written = {"format": "456p report", "trained_by": "the 456p report's training code"}
    metrics = {name: content[name] for name in ("val_exact",) if name in content}
    return _ours(found, content, source | written, metrics, content.get("train_config"))


def _ours(found: Found, content: Content, about: dict[str, Any], metrics: Any, arguments: Any) -> Checkpoint:
    spec, theta_P = found
    measured, known = (
        value if isinstance(value, dict) else {} for value in (plain(metrics), plain(arguments))
    )
    seed = known.get("seed")
    return Checkpoint(
        spec=spec,
        theta_P=theta_P,
        seed={"init_seed": seed, "data_seed": seed} if type(seed) is int else {},
        step=integer(content, "step", 0),
        metrics=measured,
        provenance={**about, "arguments": known},
    )
