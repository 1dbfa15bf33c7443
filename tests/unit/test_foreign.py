"""Other people's checkpoints: what is read, what is refused and in which words, and that nothing is run."""

from __future__ import annotations

import argparse
import io
import json
import os
import pickle
import zipfile
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from model import PRESETS, verify
from model.families.low_rank.spec import SHARED, TIES, LowRank
from tests.bad_foreign import BAD_REPORT, BAD_SETTINGS, BAD_TENSORS, NEW, OLD, SMALL, new, old
from tests.commands import call, fails_with_one, says
from tests.golden_checkpoints import SPECS as GOLDEN
from tests.golden_checkpoints import golden_file
from tests.published import newer, noisy, older, report
from trainer.checkpoints.checkpoint import JSON_FILE, THETA_FILE, Checkpoint
from trainer.checkpoints.foreign import load_any, read_foreign
from trainer.checkpoints.foreign_file import LARGEST

pytestmark = pytest.mark.usefixtures("here")
FILE = Path("theirs.pt")


def written(content: Any) -> Path:
    torch.save(content, FILE)
    return FILE


def refusal(content: Any) -> str:
    """The error for a file with this content, which names the file and is one line."""
    return refused(written(content))


def refused(file: Path) -> str:
    with pytest.raises(ValueError) as error:
        read_foreign(file)
    start, line = f"{file}: ", str(error.value)
    assert line.startswith(start) and "\n" not in line and len(line) < 250, line
    return line.removeprefix(start)


# ---- what is read


@pytest.mark.parametrize("name", GOLDEN)
def test_published_checkpoints(name: str) -> None:
    found = read_foreign(golden_file(name))
    assert found.spec == PRESETS[name] and found.spec.params == int(name[:-1])
    assert verify(found.spec, found.theta_P).correct == (10_008 if name == "226p" else 10_010)
    assert found.metrics == {"exact_match": 1.0, "token_accuracy": 1.0} and found.step >= 30_000
    arguments = found.provenance["arguments"]
    assert found.seed == {"init_seed": arguments["seed"], "data_seed": arguments["seed"]}
    assert found.provenance["imported_from"] == f"microadder_{name}.pt"


SPLIT = {name: spec for name, spec in PRESETS.items() if spec.family == "split_subspace"}
ELLIPSE = replace(OLD, spiral_amp=0.5, spiral_slope=0.25)
MICROADDER = {
    **{f"{name} older": (older, spec) for name, spec in SPLIT.items() if spec.params >= 67},
    "other start": (older, ELLIPSE),
    "flat, corrected": (older, replace(PRESETS["133p"], flat_spiral=True)),
    "frozen at 1": (older, replace(OLD, frozen_spiral=True)),
    "toeplitz, qk_dim 4": (older, replace(PRESETS["67p"], toeplitz_q=True)),
    "fixed norm": (older, replace(OLD, parameterless_norm=True)),
    "four heads": (older, replace(PRESETS["187p"], heads=3, pos_dim=6)),
    **{f"{name} newer": (newer, PRESETS[name]) for name in ("74p", "67p", "57p")},
    "structured": (newer, replace(NEW, structured_norm3=True)),
    "parameterless": (newer, replace(NEW, parameterless_norm=True)),
    "equals elsewhere": (newer, replace(NEW, equals_on_ring=True, equals_index=3.25, spiral_amp=2.7)),
    "wider": (newer, replace(NEW, pos_dim=4, qk_dim=3)),
}


@pytest.mark.parametrize("case", MICROADDER)
def test_microadder(case: str) -> None:
    write, spec = MICROADDER[case]
    theta_P = noisy(spec)
    found = read_foreign(written(write(spec, theta_P)))
    assert found.spec.params == spec.params == len(theta_P)
    assert torch.equal(found.theta_P, theta_P) and found.theta_P.dtype == torch.float32
    if spec.frozen_spiral and spec.spiral_slope == 1 / 9:  # a float32 in the file
        spec = replace(spec, spiral_slope=found.spec.spiral_slope)
    assert found.spec == spec
    assert found.provenance["format"] == "MicroAdder" and found.metrics == {"exact_match": 1.0}
    assert found.seed == {"init_seed": 42, "data_seed": 42} and found.step == 84_000


LOW_RANK = {
    **{name: spec for name, spec in PRESETS.items() if spec.family == "low_rank"},
    **{f"{tie}, full": LowRank(tie_qkv=tie) for tie in TIES},
    **{f"{tie}, rank 3": LowRank(tie_qkv=tie, qkv_rank=3) for tie in (*TIES, *SHARED)},
}


@pytest.mark.parametrize("case", LOW_RANK)
def test_the_456p_report(case: str) -> None:
    spec = LOW_RANK[case]
    theta_P = noisy(spec)
    found = read_foreign(written(report(spec, theta_P)))
    assert found.spec == spec and torch.equal(found.theta_P, theta_P)
    assert spec.params == int(case[:-1]) if case.endswith("p") else True
    assert found.provenance["format"] == "456p report" and found.metrics == {"val_exact": 1.0}
    assert found.seed == {"init_seed": 43, "data_seed": 43} and found.step == 34_000


def test_missing_settings_have_their_trees_defaults() -> None:
    for spec, write, config in (
        (PRESETS["242p"], older, {}),
        (replace(PRESETS["74p"], spiral_amp=1.0, spiral_slope=1 / 9), newer, {"d_model": 5}),
        (LOW_RANK["763p"], report, {}),
    ):
        content = write(spec, noisy(spec))
        content["model_config" if write is report else "config"] = config
        assert read_foreign(written(content)).spec == spec
    content = report(LOW_RANK["582p"], noisy(LOW_RANK["582p"]))
    del content["model_config"]["use_rmsnorm"], content["model_config"]["tie_qkv"]
    del content["model_config"]["ffn_rank"], content["model_state"]["lm_head.weight"]
    assert read_foreign(written(content)).spec == LOW_RANK["582p"]


def test_settings_that_change_nothing() -> None:
    assert read_foreign(written(old(num_kv_heads=1, token_init="normal", freeze_spiral=""))).spec == OLD
    assert read_foreign(written(old(something=False, other=0, third="", fourth=None))).spec == OLD
    assert read_foreign(written(new(tok_arc_init_A=7.0, alibi=False, n_layers=1))).spec == NEW
    circular = older(PRESETS["74p"], noisy(PRESETS["74p"]))
    del circular["model_state_dict"]["tok_arc_B"], circular["config"]["tie_tok_arc_ab"]
    assert read_foreign(written(circular)).spec == PRESETS["74p"]


def test_provenance_is_plain_and_written_as_ours() -> None:
    nested = argparse.Namespace(lr=0.02, wd=float("nan"))
    arguments = argparse.Namespace(seed=5, out=Path("/a/b"), big=2**70, extra=nested, t=torch.ones(2))
    content = new() | {"args": arguments, "metrics": {"exact_match": float("inf"), 3: 4}}
    content["model_state_dict"] = OrderedDict(content["model_state_dict"])
    found = read_foreign(written(content))
    assert found.provenance["arguments"] == {
        "seed": 5, "out": "/a/b", "big": 2**70, "extra": {"lr": 0.02, "wd": "nan"}, "t": "a Tensor",
    }  # fmt: skip
    assert found.metrics == {"exact_match": "inf"} and found.seed == {"init_seed": 5, "data_seed": 5}
    found.save(Path("ours"))
    again = Checkpoint.load(Path("ours"))
    assert again.as_dict() == found.as_dict() and torch.equal(again.theta_P, found.theta_P)
    for content in (new() | {"args": None, "metrics": [1]}, new() | {"args": {"seed": "5"}}):
        assert read_foreign(written(content)).seed == {}


def test_any_kind_of_checkpoint_by_its_path() -> None:
    found = load_any(written(new()))
    found.save(Path("ours"))
    for path in (Path("ours"), Path("ours", JSON_FILE), Path("ours", THETA_FILE)):
        assert torch.equal(load_any(path).theta_P, found.theta_P)
    with pytest.raises(ValueError, match=r"nowhere: no such file"):
        load_any(Path("nowhere"))
    assert refused(Path("ours")) == "not a file"


# ---- what is refused


@pytest.mark.parametrize("case", BAD_SETTINGS)
def test_settings_that_no_spec_can_say(case: str) -> None:
    content, expected = BAD_SETTINGS[case]
    assert says(refusal(content), expected)


@pytest.mark.parametrize(("changes", "expected"), BAD_REPORT, ids=str)
def test_settings_of_the_report_that_no_spec_can_say(changes: dict[str, Any], expected: str) -> None:
    content = report(SMALL, noisy(SMALL))
    content["model_config"] |= changes
    assert refusal(content) == expected


def test_what_the_report_repeats_must_agree() -> None:
    content = report(SMALL, noisy(SMALL))
    assert refusal(content | {"params": 455}) == "params is 455, but its settings and tensors make 456"
    assert refusal(content | {"params": "456"}) == "params must be an integer, got '456'"
    content["model_state"]["lm_head.weight"][3, 2] += 1e-6
    expected = "tensor lm_head.weight must be token_emb.weight, to which it is tied, and is not"
    assert refusal(content) == expected


@pytest.mark.parametrize("case", BAD_TENSORS)
def test_tensors_that_are_not_the_specs(case: str) -> None:
    changes, expected = BAD_TENSORS[case]
    content = new()
    state = content["model_state_dict"] | changes
    content["model_state_dict"] = {k: t for k, t in state.items() if t is not None}
    assert says(refusal(content), expected)


def test_tensors_that_are_frozen_elsewhere() -> None:
    for spec, name, what in (
        (replace(OLD, frozen_z_hi=True), "z_hi_pos", "zero where it is frozen"),
        (replace(OLD, flat_spiral=True), "spiral_slope", "zero where it is frozen"),
        (PRESETS["74p"], "tok_arc_B", "tok_arc_A where they are tied"),
    ):
        content = older(spec, noisy(spec))
        content["model_state_dict"][name] += 0.5
        assert refusal(content) == f"tensor {name} must be {what}, and is not"
    ring = replace(NEW, equals_on_ring=True)
    content = newer(ring, noisy(ring))
    content["model_state_dict"]["special_pos_equals"] += 0.01
    assert "special_pos_equals must be on the spiral where it is frozen" in refusal(content)


# ---- what is refused: files


class Runs:
    """A pickle of it makes a file when it is read."""

    def __reduce__(self) -> Any:
        return os.system, (f"touch {Path('was-run').resolve()}",)


def repacked(change: Any) -> Path:
    """A sound archive with its pickle changed."""
    with zipfile.ZipFile(written(new())) as archive:
        inside = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(FILE, "w") as archive:
        for name, content in inside.items():
            archive.writestr(name, change(content) if name.endswith("data.pkl") else content)
    return FILE


def test_nothing_is_run() -> None:
    content = new()
    for hostile in (
        Runs(),
        content | {"metrics": Runs()},
        content | {"optimizer_state_dict": {"state": [Runs()]}},
        content | {"model_state_dict": content["model_state_dict"] | {"fc1.weight": Runs()}},
    ):
        assert refusal(hostile).startswith("its pickle asks for posix.system, as no known")
    FILE.write_bytes(pickle.dumps(Runs()))
    assert refused(FILE) == "a plain pickle, not a PyTorch checkpoint; nothing of it was run"
    torch.save(Runs(), FILE, _use_new_zipfile_serialization=False)
    assert refused(FILE).startswith("written in PyTorch's format before 1.6")
    torch.save(Runs(), FILE, pickle_protocol=4)
    assert refused(FILE).startswith("its pickle is not of protocol 2")
    repacked(lambda _: b"\x80\x02(S'touch was-run'\nios\nsystem\n.")
    assert refused(FILE) == "damaged: its pickle cannot be read"
    for harmless in (bytearray(b"x"), {1, 2}, torch.float32, complex(1)):
        assert refusal(content | {"args": harmless}).startswith("its pickle asks for ")
    assert not Path("was-run").exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_files_that_are_none() -> None:
    whole = written(new()).read_bytes()
    damaged = "truncated or damaged: it begins like a PyTorch file and is not whole"
    for content, expected in (
        (b"", "empty"),
        (b"hello", "not a checkpoint: no folder of ours, no PyTorch archive"),
        (whole[: len(whole) // 2], damaged),
        (whole[:-1], damaged),
        (whole[:4], damaged),
        (whole.replace(b"tok_arc_A", b"tok_arc_X"), damaged),
        (pickle.dumps({"config": 1}), "a plain pickle, not a PyTorch checkpoint; nothing of it was run"),
        (b"PK\x03\x04" * 2**21, f"larger than any checkpoint known here ({2**23} bytes)"),
    ):
        FILE.write_bytes(content)
        assert refused(FILE) == expected
    assert LARGEST < 2**23
    with zipfile.ZipFile(FILE, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\0" * 10**7)
    assert refused(FILE).startswith("a zip archive, but not as PyTorch writes it")
    with zipfile.ZipFile(FILE, "w") as archive:
        archive.writestr("word/document.xml", "")
    assert refused(FILE).startswith("a zip archive, but not as PyTorch writes it")
    with io.BytesIO() as buffer:
        torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), buffer)
        FILE.write_bytes(buffer.getvalue())
    assert refused(FILE) == "a TorchScript archive, which is a program, not a checkpoint"
    repacked(lambda pickled: pickled[:-20])
    assert refused(FILE) == "damaged: its pickle cannot be read"
    repacked(lambda pickled: pickled.replace(b"K\x02K\x05", b"K\x02K\x7f"))  # more than its storage holds
    assert refused(FILE) == "damaged: its pickle cannot be read"


def test_checkpoints_of_no_known_format() -> None:
    for content in (
        {},
        {"model_state_dict": {}},
        {"state_dict": {}, "config": {}},
        {"weights": torch.ones(2)},
    ):
        assert refusal(content).startswith("a checkpoint of no known format: MicroAdder's has ")
    assert refusal(torch.ones(2)) == "its content must be a dictionary, got a Tensor"
    assert refusal([1]) == "its content must be a dictionary, got a list"
    assert refusal({1: 2}) == "its content must have names for keys, got 1"
    assert refusal(new() | {"model_state_dict": 3}) == "model_state_dict must be a dictionary, got 3"


def test_a_file_may_not_unfold() -> None:
    """A few bytes that would be more than memory holds, once every reference is followed."""
    wide: Any = [0]
    for _ in range(60):
        wide = [wide, wide]
    looped: list[Any] = []
    looped.append(looped)
    for bad in (wide, looped, {"a": [0] * 20_000}, {"a": {"b": wide}}):
        assert refusal(new() | {"args": bad}).startswith("its settings are more than 10000 values, or nested")
        assert refusal(new() | {"metrics": bad}).startswith("its settings are more than 10000 values")
        assert refusal(new(norm_mode=bad)).startswith("norm_mode must be like 'weighted', got a ")


# ---- the commands


def test_import_then_verify() -> None:
    written(new())
    result = call("import", FILE, "-o", "ours")
    assert result.exit_code == 0 and not result.stderr
    first, second = result.stdout.splitlines()
    assert first == "ours: from a MicroAdder checkpoint"
    assert second.startswith("  57p, 57 parameters: ") and second.endswith("/10010 NOT QUALIFIED")
    assert sorted(f.name for f in Path("ours").iterdir()) == [JSON_FILE, THETA_FILE]
    for path in ("ours", FILE):
        assert call("verify", path).stdout.startswith(second.strip())
    assert call("export", "ours", "-o", "s.py").exit_code == 0
    Path("empty").mkdir()
    about = json.loads(call("import", FILE, "-o", "empty", "--json").stdout)
    assert about["checkpoint"] == "empty" and about["format"] == "MicroAdder" and about["params"] == 57
    assert about["spec"] == NEW.as_dict() and about["total"] == 10_010 and not about["verified"]


def test_the_commands_refuse_in_one_line() -> None:
    written(old(norm_mode="scalar"))
    expected = f"{FILE}: architecture not known here: norm_mode=scalar"
    assert fails_with_one(2, "verify", FILE) == expected
    result = call("import", FILE, "-o", "ours")
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"error: {expected}\n")
    assert not Path("ours").exists()
    assert fails_with_one(2, "verify", "nowhere") == "nowhere: no such checkpoint"
    assert call("import", "nowhere", "-o", "ours").stderr == "error: nowhere: no such file\n"


def test_import_replaces_nothing() -> None:
    written(new())
    assert call("import", FILE, "-o", "ours").exit_code == 0
    for target in ("ours", "."):
        line = call("import", FILE, "-o", target).stderr
        assert line == f"error: {target}: exists and is not empty; choose another folder with -o\n"
