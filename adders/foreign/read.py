"""Other projects' checkpoints, of MicroAdder's, the 456p report's and Qwen-like training code, read as ours."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from torch import Tensor

from adders.foreign import low_rank, microadder, rope
from adders.foreign.file import (
    LARGEST,
    MAX_DEPTH,
    State,
    integer,
    layers_of,
    listed,
    load_archive,
    load_tensors,
    mapping,
    plain,
)
from model.families.rope.spec import Rope
from model.families.split_subspace.spec import SplitSubspace
from model.files import read_limited
from model.spec import Spec
from trainer.checkpoints.checkpoint import Checkpoint

Content = Mapping[str, Any]
MAIN = ("model_state_dict", "model_state", "state_dict")
STATES = (
    *MAIN,
    "model",
    "net",
    "network",
    "module",
    "ema_model",
    "ema",
    "ema_state_dict",
)
"""Keys under which programs keep a state dictionary; beside one of the first, others are copies."""
SETTINGS = ("config", "model_config", "hyper_parameters", "hparams")
METRICS = ("val_exact", "accuracy", "n_params")
PROGRAMS = {".py", ".ipynb", ".sh"}
A_PROGRAM = (
    "a program, not a checkpoint; nothing of it was run. It could do whatever you can: "
    "adder-search verify --run-code FILE runs a submission locked in a child"
)
WITHOUT_SETTINGS = (
    "a bare state dict: tensors without the settings of their model. adder-search import reads files with both, "
    "under model_state_dict and config for example"
)


@dataclass(frozen=True)
class Format:
    """A program's files, which are known by the beginning of a tensor's name."""

    name: str
    trained_by: str
    marks: tuple[str, ...]
    read: Callable[[Content, State], tuple[Spec, Tensor]]
    needs_settings: bool = True


# The first that fits is taken: other programs' names are told by their beginnings, MicroAdder's are what remains.
FORMATS = (
    Format(
        "Qwen3",
        "another program",
        ("embed_tokens.",),
        rope.read_qwen,
        needs_settings=False,
    ),
    Format("456p report", "the 456p report's training code", ("token_emb.",), low_rank.read),
    Format("tbukic", "training code of a Qwen-like adder", ("embed.", "block."), rope.read),
    Format(
        "JackCai1206",
        "JackCai1206's training code",
        ("z10_enc",),
        microadder.read,
        needs_settings=False,
    ),
    Format("MicroAdder", "MicroAdder's training code", ("",), microadder.read),
)


def read_foreign(path: Path) -> Checkpoint:
    """Read another program's checkpoint file. Nothing in it is run.

    Raises ValueError for another kind of file, a setting that no spec can express, or a tensor that does not fit
    the settings.
    """
    try:
        data = read_limited(path, LARGEST, "checkpoint known here")
        if path.suffix in PROGRAMS:
            raise ValueError(A_PROGRAM)
        source = {"imported_from": path.name, "sha256": sha256(data).hexdigest()}
        tensors = load_tensors(data)
        return _checkpoint(load_archive(data) if tensors is None else tensors, source)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _checkpoint(content: Content, source: dict[str, Any]) -> Checkpoint:
    """Return the checkpoint of a file's content. source: what its provenance says of the file."""
    place = _place_of_state(content)
    state = State(content[place] if place else content, place or "its content")
    layers = layers_of(state.names())
    if layers:
        words = {2: "two", 3: "three", 4: "four"}
        raise ValueError(f"architecture not known here: {words.get(layers, layers)} layers: this reads one")
    format_ = _format_of(state.names())
    settings = _settings(content)
    if settings is None and format_.needs_settings:
        raise ValueError(WITHOUT_SETTINGS)
    settings = settings or {}
    spec, theta_P = format_.read(settings, state)
    stored = integer(content, "params", spec.params)
    if stored != spec.params:
        raise ValueError(f"params is {stored}, but its settings and tensors make {spec.params}")
    about = source | {"format": format_.name, "trained_by": format_.trained_by}
    if isinstance(spec, SplitSubspace):
        frozen = microadder.frozen_on_the_way(settings, spec)
        if frozen:
            about["frozen_on_the_way"] = frozen
    # only tensors named as Qwen3's are read without it
    if isinstance(spec, Rope) and "rope_theta" not in settings and spec.half_split:
        about["assumed"] = f"rope_theta {spec.rope_base:g}"
    return _ours(spec, theta_P, content, about)


def _format_of(names: list[str]) -> Format:
    """Return the format to which tensors of these names belong."""
    *others, last = FORMATS
    for format_ in others:
        if any(name.startswith(format_.marks) for name in names):
            return format_
    return last


def _place_of_state(content: Content) -> str:
    """Return the key of the tensors, or nothing where they are the content itself. Raises ValueError if none are."""
    named = [key for key in STATES if key in content]
    of_one_model = [key for key in named if key in MAIN] or named
    if len(of_one_model) > 1:
        raise ValueError(f"it has several models: {listed(of_one_model)}; save one of them alone")
    if named:
        return of_one_model[0]
    if content and any(isinstance(value, Tensor) for value in content.values()):
        return ""
    raise ValueError(
        "a checkpoint of no known format: MicroAdder's has model_state_dict and config, "
        "the 456p report's model_state and model_config, tbukic's state_dict and config"
    )


def _settings(content: Content, depth: int = 0) -> Content | None:
    """Return the settings of a content, which may be inside others; None if it has none."""
    # those that contain themselves have no end
    if depth > MAX_DEPTH:
        raise ValueError(f"its settings are nested more than {MAX_DEPTH} deep")
    for key in SETTINGS:
        value = content.get(key)
        # text is the path of a file that has them
        if value is not None and type(value) is not str:
            values = vars(value) if type(value) is Namespace else value
            settings = mapping(values, key)
            # training code may keep the model's settings in its own
            return _settings(settings, depth + 1) or settings
    return None


def _ours(spec: Spec, theta_P: Tensor, content: Content, about: dict[str, Any]) -> Checkpoint:
    """Return a checkpoint of ours, with what the content says of its training."""
    metrics = plain(content.get("metrics"))
    arguments = plain(content.get("args", content.get("train_config")))
    if not isinstance(metrics, dict):
        metrics = {name: plain(content[name]) for name in METRICS if name in content}
    arguments = arguments if isinstance(arguments, dict) else {}
    seed = arguments.get("seed")
    return Checkpoint(
        spec=spec,
        theta_P=theta_P,
        seed={"init_seed": seed, "data_seed": seed} if type(seed) is int else {},
        step=integer(content, "step", 0),
        metrics=metrics,
        provenance={**about, "arguments": arguments},
    )
