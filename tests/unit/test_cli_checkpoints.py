"""`verify` on the command line: checkpoints that are none, and a trained adder."""

import json
import re
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from model import PRESETS, verify
from model.verdict import PROVED, UNDECIDED, VERDICT_FILE, write_verdict
from search.cli.options import counted_lines, save_checkpoint, write_file
from search.errors import UserError
from search.store.home import Home
from search.store.verdicts import sealed
from tests.banks import ADDER_P
from tests.commands import call, done, fails_with_one, says
from tests.homes import quickly, recorded, records_of
from tests.verdicts import verdict_on
from trainer.checkpoints.checkpoint import Checkpoint

pytestmark = pytest.mark.usefixtures("here")
SPEC = PRESETS["57p"]


@pytest.fixture
def checkpoint():
    """A checkpoint that is sound, of a seed that has not been trained."""
    provenance = {"study": "57p", "configuration": "0" * 12}
    seed = {"init_seed": 3, "data_seed": 3}
    Checkpoint(SPEC, SPEC.initial(3), seed=seed, provenance=provenance).save(Path("untrained"))
    return Path("untrained")


def test_what_is_no_checkpoint(checkpoint):
    """A file of another kind is refused by name, also when a checkpoint lies beside it."""
    says = "nowhere: no such checkpoint; adder-search pull STUDY writes one of a study"
    for words in ("verify nowhere", "rerun nowhere"):
        assert fails_with_one(2, *words.split()) == says
    Path("untrained/other.pt").write_bytes(b"hello")
    assert re.match("untrained/other.pt: (not a|is no) checkpoint", fails_with_one(2, "verify", "untrained/other.pt"))
    Path("empty").mkdir()
    assert "checkpoint.json: no such file" in fails_with_one(2, "verify", "empty")
    assert "File name too long" in fails_with_one(1, "verify", "x" * 5_000)


def test_a_checkpoint_that_is_no_adder(checkpoint):
    said, told = call("verify", checkpoint), call("verify", checkpoint, "--json")
    assert said.exit_code == told.exit_code == 1 and not said.stderr
    first, *listed, last = said.stdout.splitlines()
    about = json.loads(told.stdout)
    assert first == f"57p, 57 parameters: {about['correct']:,}/10,010 NOT QUALIFIED" and not about["verified"]
    assert len(about["failures"]) == 10_010 - about["correct"]
    assert len(listed) == 20 and last.endswith("more (--json lists all)")
    assert not Path("adder-runs").exists()


def test_a_pulled_checkpoint_replaces_nothing_else(checkpoint):
    loaded = Checkpoint.load(checkpoint)
    with pytest.raises(ValueError, match=r"^untrained/typo: not a checkpoint"):
        Checkpoint.load(checkpoint / "typo")
    Path("notes").mkdir()
    Path("notes/mine.txt").write_text("")
    for folder in ("a/b", "a/b", "proof"):
        save_checkpoint(loaded, Path(folder))
    (checkpoint / "mine.txt").write_text("")
    Path("proof", VERDICT_FILE).write_text(claim := json.dumps({"format": 3, "claim": "right"}))
    before = sorted(Path().rglob("*"))
    for target in (Path("notes"), checkpoint, Path(), Path("notes/mine.txt"), Path("notes/mine.txt/x")):
        with pytest.raises(UserError, match=r"exists and is no checkpoint alone|cannot write there"):
            save_checkpoint(loaded, target)
    with pytest.raises(UserError, match=r"^a/b: has another checkpoint; choose another folder with -o$"):
        save_checkpoint(replace(loaded, theta_P=loaded.theta_P + 1), Path("a/b"))
    with pytest.raises(UserError, match=r"^proof/proof.json: is a proof, which a verdict would overwrite; move it"):
        save_checkpoint(loaded, Path("proof"), verdict_on(loaded, PROVED))
    assert sorted(Path().rglob("*")) == before and Path("proof", VERDICT_FILE).read_text() == claim
    assert torch.equal(Checkpoint.load(Path("a/b")).theta_P, loaded.theta_P)


def test_a_checkpoint_is_written_into_its_own_folder_and_into_an_empty_one(checkpoint, monkeypatch):
    """A verdict that was recorded there stays, unless one that decides as much comes with the checkpoint."""
    loaded, verdict = Checkpoint.load(checkpoint), checkpoint / VERDICT_FILE
    proved, undecided = (sealed(verdict_on(loaded, word)) for word in (PROVED, UNDECIDED))
    write_verdict(checkpoint, loaded.spec, loaded.theta_P, undecided)
    another = undecided | {"program_sha256": "0" * 64}
    for given, kept in ((None, undecided), (proved, proved), (None, proved), (undecided, proved), (another, proved)):
        save_checkpoint(replace(loaded, step=7), checkpoint, given)
        assert json.loads(verdict.read_text()) == kept
    for folder in (checkpoint, Path("empty")):
        folder.mkdir(exist_ok=True)
        with monkeypatch.context() as inside:
            inside.chdir(folder)
            save_checkpoint(replace(loaded, step=8), Path())
        assert Checkpoint.load(folder).step == 8


def said_before(words, work, monkeypatch):
    """What a command says of a place where nothing can be written. work: functions that it must not call before."""
    Path("file").write_text("")
    for name in work:
        monkeypatch.setattr(name, Mock(side_effect=AssertionError("worked in vain")))
    said = fails_with_one(2, *words.split())
    assert re.search(r"has another checkpoint|not empty|is a folder|there \((No such file|Not a dir)[^)]*\)$", said)


@pytest.mark.parametrize(
    "words", ["report sweep -o .", "records sweep -o nowhere/x.db", "records sweep -o nowhere/x.csv"]
)
def test_where_nothing_can_be_written_is_said_before_the_work(words, checkpoint, monkeypatch):
    said_before(words, ("search.store.study_records.open_records", "search.analysis.frames.records"), monkeypatch)


def test_an_error_that_has_words_alone_is_said_in_them(monkeypatch):
    monkeypatch.setattr("trainer.files.durable.make_folder", Mock(side_effect=OSError("no such bucket")))
    with pytest.raises(UserError, match=r"home: cannot write there \(no such bucket\); choose another home"):
        Home("home").create()
    with pytest.raises(UserError, match=r"^x: cannot write there \(no such bucket\)$"):
        write_file(Path("x"), Mock(side_effect=OSError("no such bucket")))


# ---- a trained adder


def test_a_trained_adder_is_verified():
    Checkpoint(SPEC, ADDER_P).save(Path("adder"))
    result = call("verify", "adder")
    verdict, margin = result.stdout.splitlines()
    assert (result.exit_code, verdict) == (0, "57p, 57 parameters: 10,010/10,010 VERIFIED")
    assert says(margin, "  least margin 0.*: of a right digit's logit over the next, in float32")


def test_qualified_is_enough_if_asked_for():
    """A θ that is a little off gets most sums right: exit code 1, or 0 with --qualified."""
    worse_P = ADDER_P + 2.0**-10.5 * torch.randn(57, generator=torch.Generator().manual_seed(1))
    result = verify(SPEC, worse_P)
    assert result.qualified and not result.verified
    Checkpoint(SPEC, worse_P).save(Path("worse"))
    assert call("verify", "worse").exit_code == 1
    assert f"{result.correct:,}/10,010 QUALIFIED" in done("verify", "worse", "--qualified")


def verifications():
    return [(r["verify_calls"], r["verified"]) for r in records_of("home").list_seeds()]


def test_what_verify_finds_is_kept_with_the_seed_that_it_is_of():
    with quickly():
        recorded("home", (1, 2))
    done("pull", "sweep", "--seed", "2", "-o", "two", "--home", "home")
    unknown = fails_with_one(2, "pull", "sweep", "--seed", "5", "--home", "home")
    assert unknown == "study 'sweep' has begun no seed 5; the nearest of 2 is 2"
    checkpoint = Checkpoint.load(Path("two"))
    next_P = checkpoint.theta_P.clone()
    next_P[-1] = torch.nextafter(next_P[-1], torch.tensor(torch.inf))
    other = PRESETS["74p"]
    for spec, theta_P in ((checkpoint.spec, next_P), (other, other.initial(1))):
        replace(checkpoint, spec=spec, theta_P=theta_P).save(Path("forged"))
        result = call("verify", "forged", "--home", "home")
        assert "/10,010 " in result.stdout and verifications() == [(0, None)] * 2
        expected = "this call could not be recorded: its θ is not the one that study sweep has of seed 2\n"
        assert result.stderr == expected
    for times in (1, 2):
        result = call("verify", "two", "--json", "--home", "home")
        assert not result.stderr
        assert verifications() == [(0, None), (times, json.loads(result.stdout)["correct"])]


def test_verify_says_nothing_of_a_seed_that_is_in_training():
    """As of one that the ledger lacks: the study was deleted, and runs again."""
    with quickly():
        recorded("home", (2,))
    done("pull", "sweep", "--seed", "2", "-o", "two", "--home", "home")
    records = records_of("home")
    (row,) = records.list_seeds()
    again = records.list_configurations()[row.configuration]
    done("delete", "sweep", "--yes", "--home", "home")
    records_of("home").claim([(again, row.seed, False)])
    assert not call("verify", "two", "--home", "home").stderr and verifications() == [(0, None)]


def test_what_a_stranger_says_was_frozen_cannot_be_more_than_there_is():
    assert counted_lines(SPEC, {"frozen_on_the_way": [str(n) for n in range(100)]}) == []
    (line,) = counted_lines(SPEC, {"frozen_on_the_way": ["a", "a"]})
    assert line.startswith("  its author may count 56: 1 more, learned")
