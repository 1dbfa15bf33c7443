"""`verify` and `export` on the command line: checkpoints that are none, and a trained adder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from model import PRESETS, verify
from search.cli.options import save_checkpoint
from search.errors import UserError
from search.store.home import Home
from search.store.ledger import Ledger
from tests.commands import call, fails_with_one, says
from tests.homes import quickly, recorded
from trainer.checkpoints.checkpoint import JSON_FILE, LARGEST_FILE, THETA_FILE, Checkpoint

pytestmark = pytest.mark.usefixtures("here")
SPEC = PRESETS["57p"]
SEED_777 = Path(__file__).parents[1] / "data" / "57p-seed777.json"


# ---- checkpoints


@pytest.fixture
def checkpoint() -> Path:
    """A checkpoint that is sound, of a seed that has not been trained."""
    provenance = {"study": "57p", "configuration": "0" * 12}
    seed = {"init_seed": 3, "data_seed": 3}
    Checkpoint(SPEC, SPEC.initial(3), seed=seed, provenance=provenance).save(Path("untrained"))
    return Path("untrained")


def change(checkpoint: Path, **changes: Any) -> None:
    file = checkpoint / JSON_FILE
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


SPEC_DICT = SPEC.as_dict()
BAD_JSON = {
    "garbage": (b"\x00\xff garbage", "not valid JSON"),
    "deep": (b"[" * 100_000, "not valid JSON"),
    "list": (b"[]", "not a checkpoint, code, metrics, provenance, recipe, seed, spec, step missing"),
    "foreign": (b'{"model_state_dict": {}}', "not a checkpoint, code, metrics, provenance, *"),
    "huge": (b" " * (LARGEST_FILE + 1), "larger than any checkpoint (16777217 bytes)"),
}
BAD_FIELDS = {
    "format": ({"format": 2}, "not a checkpoint of format 1"),
    "spec list": ({"spec": []}, "spec: must be a mapping, got []"),
    "no family": ({"spec": {}}, "spec.family: must be a string, got None"),
    "family": (
        {"spec": SPEC_DICT | {"family": "split_subspaces"}},
        "spec: unknown family 'split_subspaces'; did you mean split_subspace?",
    ),
    "value": ({"spec": SPEC_DICT | {"qk_dim": 1e9}}, "spec: qk_dim must be an integer, got 1000000000.0"),
    "recipe": ({"recipe": 3}, "recipe: must be a mapping, got 3"),
    "init_seed": ({"seed": {"init_seed": "3"}}, "seed.init_seed: must be an integer, got '3'"),
    "step": ({"step": "3"}, "step: must be an integer, got '3'"),
    "code": ({"code": 1}, "code: must be a string, got 1"),
}
THETA = SPEC.initial(3)
BAD_THETA = {
    "short": ({"theta": THETA[:-1]}, "θ must be 57 float32 numbers for this spec, found torch.float32 (56,)"),
    "matrix": ({"theta": THETA[None]}, "θ must be 57 float32 *, found torch.float32 (1, 57)"),
    "float64": ({"theta": THETA.double()}, "θ must be 57 float32 *, found torch.float64 (57,)"),
    "other name": ({"weights": THETA}, "θ must be 57 float32 *, found no tensor 'theta'"),
    "nan": ({"theta": THETA * torch.nan}, "θ has numbers that are not finite"),
}


@pytest.mark.parametrize("case", BAD_JSON)
def test_json_that_is_no_checkpoints(case: str, checkpoint: Path) -> None:
    content, expected = BAD_JSON[case]
    (checkpoint / JSON_FILE).write_bytes(content)
    for command in ("verify", "export"):
        line = fails_with_one(2, command, checkpoint)
        assert says(line, f"untrained/{JSON_FILE}: {expected}"), line


@pytest.mark.parametrize("case", BAD_FIELDS)
def test_a_wrong_entry_is_named(case: str, checkpoint: Path) -> None:
    changes, expected = BAD_FIELDS[case]
    change(checkpoint, **changes)
    assert fails_with_one(2, "verify", checkpoint) == f"untrained/{JSON_FILE}: {expected}"


@pytest.mark.parametrize("case", BAD_THETA)
def test_theta_that_does_not_fit(case: str, checkpoint: Path) -> None:
    tensors, expected = BAD_THETA[case]
    save_file(tensors, checkpoint / THETA_FILE)
    line = fails_with_one(2, "verify", checkpoint)
    assert says(line, f"untrained/{THETA_FILE}: {expected}"), line


def test_theta_that_is_no_safetensors_file(checkpoint: Path) -> None:
    whole = (checkpoint / THETA_FILE).read_bytes()
    noise = torch.randint(256, (300,), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    header = whole[8:].replace(b"F32", b"F99")
    broken = [b"", b"x", bytes(noise.tolist()), whole[:-1], whole + b"x", whole[:8] + header, b"\0" * 8]
    for content in broken:
        (checkpoint / THETA_FILE).write_bytes(content)
        line = fails_with_one(2, "verify", checkpoint)
        assert line.startswith(f"untrained/{THETA_FILE}: not a safetensors file ("), line
    (checkpoint / THETA_FILE).write_bytes(b"\0" * (LARGEST_FILE + 1))
    assert "larger than any checkpoint" in fails_with_one(2, "verify", checkpoint)
    (checkpoint / THETA_FILE).unlink()
    assert f"{THETA_FILE}: no such file (a checkpoint is a folder" in fails_with_one(2, "verify", checkpoint)


def test_what_is_no_checkpoint(checkpoint: Path) -> None:
    """A file of another kind is refused by name, also when a checkpoint lies beside it."""
    assert fails_with_one(2, "verify", "nowhere") == "nowhere: no such checkpoint"
    for name in ("other.pt", "untrained/other.pt"):
        torch.save({"model_state_dict": {"head": THETA}}, name)
        line = fails_with_one(2, "verify", name)
        assert line.startswith(f"{name}: a checkpoint of no known format: MicroAdder's has ")
    Path("empty").mkdir()
    assert "checkpoint.json: no such file" in fails_with_one(2, "verify", "empty")
    assert "File name too long" in fails_with_one(1, "verify", "x" * 5_000)


@pytest.mark.parametrize("name", ["", JSON_FILE, THETA_FILE])
def test_a_checkpoint_that_is_no_adder(name: str, checkpoint: Path) -> None:
    result = call("verify", checkpoint / name)
    assert result.exit_code == 1 and not result.stderr
    first, *listed, last = result.stdout.splitlines()
    assert first.startswith("57p, 57 parameters: ") and first.endswith("/10010 NOT QUALIFIED")
    assert len(listed) == 20 and last.endswith("more (--json lists all)")


def test_verify_as_json(checkpoint: Path) -> None:
    result = call("verify", checkpoint, "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 1
    expected = {"params": 57, "total": 10_010, "verified": False, "qualified": False}
    assert {name: found[name] for name in expected} == expected
    assert found["correct"] + len(found["failures"]) == 10_010
    assert all(a + b != decoded for a, b, decoded in found["failures"])
    assert not Path("adder-runs").exists()


def test_export_is_whole_or_not_there(checkpoint: Path) -> None:
    Path("file").write_text("")
    unwritable = "cannot write there (Not a directory)"
    assert fails_with_one(2, "export", checkpoint, "-o", "file/s.py") == f"file/s.py: {unwritable}"
    assert (
        fails_with_one(2, "export", checkpoint, "-o", ".") == ".: is a folder; give the file's name with -o"
    )
    assert "No such file or directory" in fails_with_one(2, "export", checkpoint, "-o", "nowhere/s.py")
    change(checkpoint, provenance={"loss": float("nan")})
    assert fails_with_one(2, "export", checkpoint).startswith("untrained: provenance must hold only plain")


def test_a_pulled_checkpoint_replaces_nothing_else(checkpoint: Path) -> None:
    loaded = Checkpoint.load(checkpoint)
    Path("notes").mkdir()
    Path("notes/mine.txt").write_text("")
    save_checkpoint(loaded, Path("a/b"))
    save_checkpoint(loaded, Path("a/b"))
    (checkpoint / "mine.txt").write_text("")
    before = sorted(Path().rglob("*"))
    for target in (Path("notes"), checkpoint, Path(), Path("notes/mine.txt"), Path("notes/mine.txt/x")):
        with pytest.raises(UserError, match=r"exists and is no checkpoint alone|cannot write there"):
            save_checkpoint(loaded, target)
    assert sorted(Path().rglob("*")) == before
    assert torch.equal(Checkpoint.load(Path("a/b")).theta_P, loaded.theta_P)


# ---- a trained adder


@pytest.fixture
def adder() -> Path:
    """Seed 777 of the published 57p recipe as our trainer left it."""
    if not SEED_777.is_file():
        pytest.skip(f"no {SEED_777.name}")
    about = json.loads(SEED_777.read_text())
    assert about["spec"].items() <= SPEC.as_dict().items()  # recorded when there were fewer fields
    papers = {name: about[name] for name in ("recipe", "seed", "step", "metrics", "provenance")}
    Checkpoint(SPEC, torch.tensor(about["theta"]), **papers).save(Path("adder"))
    return Path("adder")


def test_a_trained_adder_is_verified(adder: Path) -> None:
    result = call("verify", adder)
    assert (result.exit_code, result.stdout) == (0, "57p, 57 parameters: 10010/10010 VERIFIED\n")
    found = json.loads(call("verify", adder, "--json", "--qualified").stdout)
    assert (found["correct"], found["failures"], found["verified"]) == (10_010, [], True)


def test_qualified_is_enough_if_asked_for(adder: Path) -> None:
    """A θ that is a little off gets most sums right: exit code 1, or 0 with --qualified."""
    loaded = Checkpoint.load(adder)
    noise_P = torch.randn(57, generator=torch.Generator().manual_seed(1))
    for scale in (2.0**-n for n in range(1, 16)):
        worse_P = loaded.theta_P + scale * noise_P
        found = verify(SPEC, worse_P)
        if found.qualified:
            break
    if found.verified:
        pytest.skip("no noise scale between qualified and verified")
    Checkpoint(SPEC, worse_P).save(Path("worse"))
    assert call("verify", "worse").exit_code == 1
    assert call("verify", "worse", "--qualified").exit_code == 0
    assert f"{found.correct}/10010 QUALIFIED" in call("verify", "worse").stdout


# ---- what the ledger keeps of it


@pytest.fixture
def pulled(here: Path) -> Path:
    """The checkpoint of a recorded seed."""
    with quickly():
        recorded("home", (1, 2))
    assert call("pull", "sweep", "--seed", "2", "-o", "two", "--home", "home").exit_code == 0
    return Path("two")


def verifications() -> list[tuple[int, int | None]]:
    return [(r["verify_calls"], r["verified"]) for r in Ledger(Home("home")).list_seeds()]


def test_what_verify_finds_is_kept_with_the_seed(pulled: Path) -> None:
    for times in (1, 2):
        said = call("verify", pulled, "--json", "--home", "home")
        assert verifications() == [(0, None), (times, json.loads(said.stdout)["correct"])] and not said.stderr


OTHER = PRESETS["74p"]


@pytest.mark.parametrize("which", ["one bit", "another model"])
def test_another_theta_is_not_verified_in_a_seeds_name(which: str, pulled: Path) -> None:
    """The papers are seed 2's."""
    loaded = Checkpoint.load(pulled)
    spec, theta_P = loaded.spec, loaded.theta_P.clone()
    if which == "one bit":
        theta_P[-1] = torch.nextafter(theta_P[-1], torch.tensor(torch.inf))
    else:
        spec = OTHER if which == "another model" else spec
        theta_P = spec.initial(1)
    replace(loaded, spec=spec, theta_P=theta_P).save(Path("forged"))
    said = call("verify", "forged", "--home", "home")
    assert "/10010 " in said.stdout and verifications() == [(0, None)] * 2
    expected = "this call could not be recorded: its θ is not the one that study sweep has of seed 2\n"
    assert said.stderr == expected
