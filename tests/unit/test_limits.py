"""Small files that ask for much, and databases with values no column can have: refused in one line."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from model import PRESETS
from search.study.file import shipped_studies
from tests.commands import call
from tests.homes import two_studies
from trainer import Recipe
from trainer.checkpoints.checkpoint import JSON_FILE, Checkpoint

pytestmark = pytest.mark.usefixtures("here")


def refused(*words: str) -> str:
    """Return the error lines of a command that must refuse its input."""
    result = call(*words)
    lines = result.stderr.splitlines()
    assert result.exit_code in (1, 2) and lines and all(line.startswith("error: ") for line in lines), lines
    assert all(line.isprintable() and len(line) < 2_000 for line in lines)
    return "\n".join(lines)


# ---- study files

ONE = "name: x\nmodel: 57p\nseeds: [1]\n"
STUDIES = {
    "40,000 colons": (ONE.replace("[1]", f"[1{':1' * 40_000}]"), "no int"),
    "101 toggles": (ONE + f"toggle: [{', '.join(['tie_vo'] * 101)}]", "toggle"),
    "10^9 evaluations": (ONE + "recipe: {steps: 1000000000, eval_every: 1}", "10000 evaluations"),
    "80,000 keys": ("{" + ", ".join(f"a{n}: 1" for n in range(80_000)) + "}", "25000 keys and values"),
    "a list of merge keys": ("{<<: [" + "{a: 1}, " * 6_000 + "]}", "merge keys"),
    "7,000 stages": (ONE + "recipe: {curriculum: [" + "[1, 1], " * 7_000 + "]}", "at most 4 stages"),
    "2 million seeds": (
        ONE.replace("[1]", "{first: 1, count: 1000000}\nconfirm: {seeds: {first: 1000001, count: 1000000}}"),
        "200000",
    ),
    "deep brackets": ("[" * 500_000, "nested too deeply"),
    "threads: 10000": (ONE + "resources: {cpu: 10000}", "1024"),
}  # fmt: skip


@pytest.mark.parametrize("case", STUDIES)
def test_study_files(case: str) -> None:
    text, expected = STUDIES[case]
    Path("own.yaml").write_text(text)
    assert expected in refused("run", "own.yaml", "--dry-run")


def test_what_is_shipped_is_far_from_the_limits() -> None:
    assert max(map(len, shipped_studies().values())) < 25_000


# ---- homes from elsewhere


def change(file: str, *statements: str) -> None:
    with closing(sqlite3.connect(file)) as db, db:
        for statement in statements:
            db.execute(statement)


DEEP = "[" * 100_000 + "]" * 100_000
TEXTS = {
    "steps": "UPDATE ledger SET steps = 'many'",
    "a seed": "UPDATE ledger SET init_seed = 'x' WHERE init_seed = 1",
    "best_exact": "UPDATE ledger SET best_exact = 'all'",
    "grok_step": "UPDATE ledger SET grok_step = x'00ff'",
    "an outcome": "UPDATE ledger SET outcome = char(27) || '[31m'",
    "verified": "UPDATE ledger SET verified = 'yes'",
    "an owner": "UPDATE ledger SET owner = 'me', lease_until = 9e12",
    "lease_until": "UPDATE ledger_studies SET owner = 'a/1/b', lease_until = 'soon'",
    "a trial": "UPDATE ledger SET trial = '../../x'",
    "a configuration": "UPDATE ledger_configurations SET configuration = '/x'",
    "a run": "UPDATE ledger_configurations SET run = '/tmp/x'",
    "no JSON": "UPDATE ledger_configurations SET spec = '{'",
    "another spec": """UPDATE ledger_configurations SET spec = '{"family": "split_subspace", "heads": 0}'""",
    "a recipe": """UPDATE ledger_configurations SET recipe = '{"steps": 1000000000, "eval_every": 1}'""",
    "a list": "UPDATE ledger_configurations SET recipe = '[]'",
    "deep brackets": f"UPDATE ledger_configurations SET spec = '{DEEP}'",
    "a deep environment": f"UPDATE ledger SET environment = '{DEEP}'",
    "a deep study": f"UPDATE ledger_studies SET definition = '{DEEP}'",
    "no study": "UPDATE ledger_studies SET definition = '[]'",
}  # fmt: skip


@pytest.mark.parametrize("case", TEXTS)
def test_what_no_column_can_have(case: str) -> None:
    change(f"{two_studies()}/ledger.db", TEXTS[case])
    assert "ledger.db: " in refused("report", "sweep", "-o", "x.html", "--home", "runs")
    assert not Path("x.html").exists()


# ---- other files


@pytest.mark.timeout(60)  # a reader of a pipe waits for ever
@pytest.mark.parametrize(
    "words",
    [["run", "pipe"], ["run", "pipe.yaml"], ["verify", "pipe"], ["import", "pipe", "-o", "x"],
     ["verify", "folder"], ["table", "pipe.parquet"], ["export", "folder", "-o", "x.py"], ["rerun", "folder"],
     ["verify", "/dev/zero"]],
    ids=" ".join,
)  # fmt: skip
def test_pipes_and_devices(words: list[str]) -> None:
    Path("folder").mkdir()
    for name in ("pipe", "pipe.yaml", "pipe.parquet", f"folder/{JSON_FILE}"):
        os.mkfifo(name)
    assert refused(*words)


def test_a_checkpoint_of_ten_thousand_threads() -> None:
    spec, recipe = PRESETS["57p"], Recipe().as_dict()
    for threads in (10_000, 1_000):
        environment = {"threads": threads, "slots": 1, "compiled": False}
        papers = {"trained": "from scratch", "environment": environment}
        seed = {"init_seed": 3, "data_seed": 3}
        Checkpoint(spec, spec.initial(3), recipe=recipe, seed=seed, step=1_000, provenance=papers).save(
            Path("it")
        )
        assert "threads" in refused("rerun", "it")
        shutil.rmtree("it")
