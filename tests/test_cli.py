"""The command line on bad input: one clear line a problem, its exit code, no traceback, nothing written."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import save_file

from model import RUNGS, verify
from search import ledger as ledger_module
from search.cli import main
from search.errors import UserError
from search.home import Home
from search.ledger import Ledger
from search.records import save_checkpoint
from search.study import shipped
from tests.golden import FOLDER
from tests.test_study import BAD, GOOD, says
from trainer.checkpoint import JSON_FILE, LARGEST_FILE, THETA_FILE, Checkpoint

SPEC = RUNGS["57p"]
SEED_777 = Path(__file__).with_name("data") / "57p-seed777.json"
SMOKE = "resources: {gpu: 0, compiled: false}\nrecipe: {steps: 20, eval_every: 20, batch: 8}\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory and no settings from outside."""
    for name in ("ADDER_SEARCH_HOME", "MLFLOW_TRACKING_URI", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*words: object) -> Result:
    """Run a command in this process; whatever it raises but an exit is raised here."""
    result = CliRunner().invoke(main, [str(w) for w in words], catch_exceptions=False)
    assert "Traceback" not in result.output
    return result


def fails(code: int, *words: object) -> list[str]:
    """The error lines of a command that must fail with this code, say nothing else and write nothing."""
    before = sorted(Path().rglob("*"))
    result = call(*words)
    assert sorted(Path().rglob("*")) == before
    assert (result.exit_code, result.stdout) == (code, "")
    lines = result.stderr.splitlines()
    assert lines and all(line.startswith("error: ") for line in lines), lines
    return [line.removeprefix("error: ") for line in lines]


def fails_with_one(code: int, *words: object) -> str:
    (line,) = fails(code, *words)
    return line


# ---- studies


@pytest.mark.parametrize(("text", "expected"), BAD.items(), ids=[repr(t[-60:]) for t in BAD])
@pytest.mark.parametrize("options", [[], ["--dry-run"]], ids=["run", "dry"])
def test_a_bad_study_starts_nothing(text: str, expected: list[str], options: list[str]) -> None:
    Path("some.yaml").write_text(text)
    lines = fails(2, "run", "some.yaml", *options)
    assert all(says(a, f"some.yaml: {b}") for a, b in zip(lines, expected, strict=True)), lines


def test_a_study_that_is_not_there() -> None:
    assert fails_with_one(2, "run", "nowhere.yaml") == "nowhere.yaml: no such study file"
    assert fails_with_one(2, "run", "smoky") == "unknown study 'smoky'; did you mean smoke?"
    assert "File name too long" in fails_with_one(2, "run", "x" * 5_000)
    Path("folder.yaml").mkdir()
    assert fails_with_one(2, "run", "folder.yaml") == "folder.yaml: no such study file"
    Path("latin.yaml").write_bytes("name: é".encode("latin-1"))
    assert "latin.yaml: cannot be read" in fails_with_one(2, "run", "latin.yaml")


def test_a_dry_run_prints_the_plan_and_writes_nothing() -> None:
    result = call("run", "57p", "--dry-run", "--home", "somewhere")
    assert result.exit_code == 0 and not result.stderr
    for said in (
        "57 parameters",
        "16, 60,000 steps each",
        "2 of up to 8 seeds",
        "/somewhere",
        "64 seeds in all",
    ):
        assert said in result.stdout, said
    assert not list(Path().iterdir())


def test_the_shipped_studies_are_listed() -> None:
    found = {s["name"]: s for s in json.loads(call("studies", "--json").stdout)}
    assert list(found) == list(shipped())
    assert (found["57p"]["params"], found["smoke"]["params"]) == (57, 57)
    lines = call("studies").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(found)


def test_status_of_nothing() -> None:
    assert "nothing has run yet" in call("status").stdout
    found = json.loads(call("status", "--json").stdout)
    assert (found["studies"], found["seeds"]) == ([], None)
    assert fails_with_one(2, "status", "57p").startswith("study '57p' has no records in ")
    Home("adder-runs").create()
    Ledger(Home("adder-runs"))
    assert "nothing has run yet" in call("status").stdout
    assert fails_with_one(2, "status", "57p").startswith("study '57p' has no records in ")


@pytest.mark.parametrize("words", [["pull", "57p"], ["pull", "57p", "--seed", "777"], ["ui"]])
def test_nothing_to_fetch_or_show(words: list[str]) -> None:
    assert fails_with_one(2, *words).startswith("nothing has run yet in ")


def test_pull_wants_one_seed() -> None:
    assert fails_with_one(2, "pull", "57p", "--best", "--seed", "3") == "give --best or --seed, not both"


@pytest.mark.parametrize("words", [["runn"], ["run"], ["run", "57p", "--hom", "x"], ["ui", "--port", "0"]])
def test_wrong_words_exit_with_2(words: list[str]) -> None:
    result = call(*words)
    assert result.exit_code == 2 and not result.stdout
    assert sum(line.startswith("Error: ") for line in result.stderr.splitlines()) == 1
    assert not list(Path().iterdir())


# ---- homes, databases, servers


def test_an_unwritable_home(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("file").write_text("")
    line = fails_with_one(2, "run", "smoke", "--home", "file/home")
    assert line.endswith("file/home: cannot write there (Not a directory); choose another home with --home")
    assert "File name too long" in fails_with_one(1, "status", "--home", "x" * 5_000)
    assert "Directory 'file' is a file" in call("run", "smoke", "--home", "file").stderr
    monkeypatch.setenv("ADDER_SEARCH_HOME", "file")
    assert "cannot write there (File exists)" in fails_with_one(2, "run", "smoke")


@pytest.fixture
def home() -> Home:
    """A home that has been used."""
    home = Home("home")
    home.create()
    Ledger(home)
    return home


@pytest.mark.parametrize(
    "words", [["run", "smoke"], ["run", "smoke", "--dry-run"], ["status"]], ids=["run", "dry", "status"]
)
def test_a_locked_ledger(words: list[str], home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "LOCK_WAIT_S", 0.1)
    with closing(sqlite3.connect(home.records_db)) as other:
        other.execute("BEGIN EXCLUSIVE")
        line = fails_with_one(1, *words, "--home", "home")
        other.rollback()
    assert f"{home.records_db}: database is locked; another program holds it" in line
    assert "nothing has run yet" in call("status", "--home", "home").stdout


@pytest.mark.parametrize("words", [["run", "smoke"], ["status"]], ids=["run", "status"])
def test_a_ledger_that_is_no_database(words: list[str], home: Home) -> None:
    home.records_db.write_bytes(b"no database at all " * 500)
    assert fails_with_one(1, *words, "--home", "home") == f"{home.records_db}: file is not a database"


def test_a_ledger_of_another_version(home: Home) -> None:
    with closing(sqlite3.connect(home.records_db)) as db:
        db.execute("UPDATE ledger_version SET schema = 99")
        db.commit()
    line = fails_with_one(2, "status", "--home", "home")
    assert line == f"{home.records_db}: written by another version (schema 99, this is 1)"


def test_an_mlflow_store_that_is_no_database(home: Home) -> None:
    home.mlflow_db.write_bytes(b"no database at all " * 500)
    line = fails_with_one(1, "run", "smoke", "--home", "home")
    assert line.startswith("MLflow store sqlite:///") and "file is not a database" in line


def test_a_tracking_server_that_is_away(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    start = time.monotonic()
    line = fails_with_one(1, "run", "smoke", "--home", "home")
    assert line.startswith("MLflow store http://127.0.0.1:9: ")
    assert time.monotonic() - start < 15
    assert "nothing has run yet" in call("status", "--home", "home").stdout


@pytest.mark.parametrize("uri", ["foo://bar", "not a uri", "file:///nowhere", "https://[bad", "./runs"])
def test_a_tracking_uri_that_is_none(uri: str, home: Home) -> None:
    Path("some.yaml").write_text(GOOD + SMOKE + f"tracking_uri: {json.dumps(uri)}\n")
    line = fails_with_one(1, "run", "some.yaml", "--home", "home")
    assert line.startswith(f"MLflow store {uri}: ")


def test_a_password_is_not_repeated(home: Home) -> None:
    Path("some.yaml").write_text(GOOD + SMOKE + "tracking_uri: postgresqlx://me:secret@127.0.0.1:9/x\n")
    assert "secret" not in fails_with_one(1, "run", "some.yaml", "--home", "home")


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
    "empty": (b"", "not valid JSON"),
    "deep": (b"[" * 100_000, "not valid JSON"),
    "long number": (b"9" * 5_000, "not valid JSON"),
    "list": (b"[]", "not a checkpoint, code, metrics, provenance, recipe, seed, spec, step missing"),
    "foreign": (b'{"model_state_dict": {}}', "not a checkpoint, code, metrics, provenance, *"),
    "huge": (b" " * (LARGEST_FILE + 1), "larger than any checkpoint (16777217 bytes)"),
}
BAD_FIELDS = {
    "format": ({"format": 2}, "not a checkpoint of format 1"),
    "spec list": ({"spec": []}, "spec: must be a mapping, got []"),
    "no family": ({"spec": {}}, "spec.family: must be a string, got None"),
    "family list": ({"spec": {"family": [1]}}, "spec.family: must be a string, got [1]"),
    "family": (
        {"spec": SPEC_DICT | {"family": "split_subspaces"}},
        "spec: unknown family 'split_subspaces'; did you mean split_subspace?",
    ),
    "constraint": (
        {"spec": SPEC_DICT | {"tie_vos": True}},
        "spec: unknown constraint 'tie_vos' of split_subspace; did you mean tie_vo?",
    ),
    "value": ({"spec": SPEC_DICT | {"qk_dim": 1e9}}, "spec: qk_dim must be an integer, got 1000000000.0"),
    "recipe": ({"recipe": 3}, "recipe: must be a mapping, got 3"),
    "seed": ({"seed": 3}, "seed: must be a mapping, got 3"),
    "init_seed": ({"seed": {"init_seed": "3"}}, "seed.init_seed: must be an integer, got '3'"),
    "step": ({"step": "3"}, "step: must be an integer, got '3'"),
    "metrics": ({"metrics": None}, "metrics: must be a mapping, got None"),
    "provenance": ({"provenance": ["x"]}, "provenance: must be a mapping, got ['x']"),
    "code": ({"code": 1}, "code: must be a string, got 1"),
}
THETA = SPEC.initial(3)
BAD_THETA = {
    "short": ({"theta": THETA[:-1]}, "θ must be 57 float32 numbers for this spec, found torch.float32 (56,)"),
    "matrix": ({"theta": THETA[None]}, "θ must be 57 float32 *, found torch.float32 (1, 57)"),
    "float64": ({"theta": THETA.double()}, "θ must be 57 float32 *, found torch.float64 (57,)"),
    "half": ({"theta": THETA.half()}, "θ must be 57 float32 *, found torch.float16 (57,)"),
    "other name": ({"weights": THETA}, "θ must be 57 float32 *, found no tensor 'theta'"),
    "nan": ({"theta": THETA * torch.nan}, "θ has numbers that are not finite"),
    "inf": ({"theta": THETA / 0}, "θ has numbers that are not finite"),
}


@pytest.mark.parametrize("command", ["verify", "export"])
@pytest.mark.parametrize("case", BAD_JSON)
def test_papers_that_are_none(command: str, case: str, checkpoint: Path) -> None:
    content, expected = BAD_JSON[case]
    (checkpoint / JSON_FILE).write_bytes(content)
    line = fails_with_one(2, command, checkpoint)
    assert says(line, f"untrained/{JSON_FILE}: {expected}"), line


@pytest.mark.parametrize("case", BAD_FIELDS)
def test_papers_with_a_wrong_entry(case: str, checkpoint: Path) -> None:
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
        assert line == f"{name}: not a checkpoint, which is a folder with {JSON_FILE} and {THETA_FILE}"
    Path("empty").mkdir()
    assert "checkpoint.json: no such file" in fails_with_one(2, "verify", "empty")
    assert "File name too long" in fails_with_one(1, "verify", "x" * 5_000)


def test_a_published_pickle_is_refused() -> None:
    file = FOLDER / "microadder_57p.pt"
    if not file.is_file():
        pytest.skip("no published checkpoint: set ADDER_SEARCH_GOLDEN to its folder")
    assert "microadder_57p.pt: not a checkpoint, which is a folder" in fails_with_one(2, "verify", file)


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
    assert {"params", "correct", "total", "qualified", "verified", "failures"} <= found.keys()
    assert (found["params"], found["total"], found["verified"], found["qualified"]) == (
        57,
        10_010,
        False,
        False,
    )
    assert found["correct"] + len(found["failures"]) == 10_010
    assert all(a + b != decoded for a, b, decoded in found["failures"])
    assert not Path("adder-runs").exists()


def test_export_is_whole_or_not_there(checkpoint: Path) -> None:
    Path("file").write_text("")
    Path("folder").mkdir()
    unwritable = "cannot write there (Not a directory)"
    assert fails_with_one(2, "export", checkpoint, "-o", "file/s.py") == f"file/s.py: {unwritable}"
    for folder in ("folder", ".", "/"):
        line = fails_with_one(2, "export", checkpoint, "-o", folder)
        assert line == f"{folder}: is a folder; give the file's name with -o"
    assert "No such file or directory" in fails_with_one(2, "export", checkpoint, "-o", "nowhere/s.py")
    change(checkpoint, provenance={"loss": float("nan")})
    assert fails_with_one(2, "export", checkpoint).startswith("untrained: provenance must hold only plain")


def test_export_writes_any_author(checkpoint: Path) -> None:
    result = call("export", checkpoint, "-o", "s.py", "--author", "Zoë ↯ \"'")
    assert result.exit_code == 0 and result.stdout.startswith("s.py: 57 parameters")
    assert "Zoë ↯" in Path("s.py").read_text("utf-8")
    assert sorted(f.name for f in Path().iterdir()) == ["s.py", "untrained"]


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
    assert about["spec"] == SPEC.as_dict()
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


def test_decoding_the_protocol_takes_no_two_seconds(adder: Path) -> None:
    loaded = Checkpoint.load(adder)
    start = time.perf_counter()
    assert verify(loaded.spec, loaded.theta_P).verified
    assert time.perf_counter() - start < 2


def test_a_trained_adder_is_exported(adder: Path) -> None:
    assert call("export", adder).exit_code == 0
    source = Path("submission.py").read_text("utf-8")
    scope: dict[str, Any] = {"__name__": "submission"}
    exec(compile(source, "submission.py", "exec"), scope)  # our own text
    model, metadata = scope["build_model"]()
    assert metadata["params"] == 57 and "777" in metadata["name"]
    assert scope["add"](model, 9_999_999_999, 1) == 10**10
