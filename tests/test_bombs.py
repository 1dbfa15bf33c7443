"""Small files that ask for much: each is refused in one line, 2 s and 500 MB, whatever command reads it."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from model import PRESETS
from search.study.file import shipped_studies
from tests.commands import call
from tests.homes import two_studies
from trainer import Recipe
from trainer.checkpoints.checkpoint import JSON_FILE, Checkpoint

pytestmark = pytest.mark.usefixtures("here")
MOST_S, MOST_BYTES = 2.0, 500 << 20


def fenced() -> None:
    """So that a bomb which goes off takes neither this machine's disk nor its memory."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    most_s = int(time.process_time()) + 60
    for what, most in (
        (resource.RLIMIT_CPU, most_s),
        (resource.RLIMIT_DATA, size + (4 << 30)),
        (resource.RLIMIT_FSIZE, 64 << 20),
    ):
        resource.setrlimit(what, (most, most))


def measured(*words: str) -> tuple[int, list[str], float, int]:
    """Exit code, lines on stderr, seconds of processor time and bytes of a command, in a process of its own:
    a fork of this one, which has imported what there is to import.
    """
    reads, writes = os.pipe()
    before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    child = os.fork()
    if child == 0:
        fenced()
        signal.alarm(120)  # whoever waits for a pipe
        try:
            start, said = time.process_time(), call(*words)
            size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            facts: Any = said.exit_code, said.stderr.splitlines(), time.process_time() - start, size - before
        except BaseException as error:
            facts = repr(error)[:1_000]
        os.write(writes, json.dumps(facts).encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as pipe:
        facts = json.loads(pipe.read() or '"no answer"')
    os.waitpid(child, 0)
    assert not isinstance(facts, str), facts
    return tuple(facts)


def refused(*words: str) -> str:
    """Run a command that must refuse its input, and say what it said."""
    code, lines, seconds, size = measured(*words)
    assert code in (1, 2) and lines and all(line.startswith("error: ") for line in lines), (code, lines)
    assert all(line.isprintable() and len(line) < 2_000 for line in lines)
    assert size < MOST_BYTES, f"{size:,} bytes"
    assert seconds < MOST_S, f"{seconds:.1f} s"
    return "\n".join(lines)


# ---- study files

ONE = "name: x\nmodel: 57p\nseeds: [1]\n"
LISTED = ", ".join(f"{{recipe: {{lr: {n / 1e5}}}}}" for n in range(1, 9_001))
SHORT = "\n".join(f"- {{recipe: {{lr: {n / 1e5}}}}}" for n in range(1, 1_001))
SEVEN = "tie_vo, tie_qk, qk_dim=3, qk_dim=4, qk_dim=5, shared_norm, rank1_out"
STUDIES = {
    "40,000 colons": (ONE.replace("[1]", f"[1{':1' * 40_000}]"), "no int"),
    "40,000 colons of a fraction": (ONE + f"recipe: {{lr: 1{':1' * 40_000}.5}}", "no float"),
    "60,000 toggles": (ONE + f"toggle: [{', '.join(['tie_vo'] * 60_000)}]", "25000 keys and values"),
    "101 toggles": (ONE + f"toggle: [{', '.join(['tie_vo'] * 101)}]", "toggle"),
    "10^9 evaluations": (ONE + "recipe: {steps: 1000000000, eval_every: 1}", "10000 evaluations"),
    "9,000 configurations x 7 toggles": (
        ONE + f"toggle: [{SEVEN}]\nconfigurations: [{LISTED}]", "25000 keys and values"
    ),
    "1,000 configurations x 7 toggles": (
        ONE + f"toggle: [{SEVEN}]\nconfigurations:\n{SHORT}", "at most 2000 configurations, this one 8000"
    ),
    "80,000 keys": ("{" + ", ".join(f"a{n}: 1" for n in range(80_000)) + "}", "25000 keys and values"),
    "a list of merge keys": ("{<<: [" + "{a: 1}, " * 6_000 + "]}", "merge keys"),
    "100,000 stages": (ONE + "recipe: {curriculum: [" + "[1, 1], " * 100_000 + "]}", "25000 keys and values"),
    "7,000 stages": (ONE + "recipe: {curriculum: [" + "[1, 1], " * 7_000 + "]}", "at most 4 stages"),
    "2 million seeds": (
        ONE.replace("[1]", "{first: 1, count: 1000000}\nconfirm: {seeds: {first: 1000001, count: 1000000}}"),
        "200000",
    ),
    "deep brackets": ("[" * 500_000, "nested too deeply"),
    "deep dashes": ("- " * 200_000, "nested too deeply"),
    "threads: 10000": (ONE + "resources: {cpu: 10000}", "1024"),
}  # fmt: skip


@pytest.mark.parametrize("case", STUDIES)
def test_study_files(case: str) -> None:
    text, told = STUDIES[case]
    Path("own.yaml").write_text(text)
    assert told in refused("run", "own.yaml", "--dry-run")


def test_what_is_shipped_is_far_from_the_limits() -> None:
    assert max(map(len, shipped_studies().values())) < 25_000


# ---- homes from elsewhere


def change(file: str, *statements: str) -> None:
    with closing(sqlite3.connect(file)) as db, db:
        for statement in statements:
            db.execute(statement)


ENDLESS = "AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"
VIEW = (
    "ALTER TABLE ledger RENAME TO it",
    f"CREATE VIEW ledger {ENDLESS} 'sweep' study, 'c7bf37000000' configuration, i init_seed, i data_seed,"
    " 'a' trial, 0 confirmation, 'failed' outcome, zeroblob(1000) reason, i steps, i grok_step, 0 held,"
    " 0 hopeless_step, 0 best_step, 0.5 best_exact, 0.5 best_token, 1.0 seed_steps_per_s, '{}' environment,"
    " '' owner, 1.0 lease_until, 0 published, 0 verify_calls, 0 verified FROM n",
)
DISGUISED = (
    "PRAGMA writable_schema = ON",
    "UPDATE sqlite_master SET type = 'table' WHERE name = 'ledger'",
)


@pytest.mark.parametrize(
    "words", [["status"], ["status", "sweep"], ["best"], ["table"], ["delete", "sweep", "--yes"]]
)
def test_a_ledger_that_is_a_view_without_end(words: list[str]) -> None:
    change(f"{two_studies()}/ledger.db", *VIEW)
    assert "has 'ledger', which is no table" in refused(*words, "--home", "runs")


def test_a_view_that_says_it_is_a_table() -> None:
    change(f"{two_studies()}/ledger.db", *VIEW, *DISGUISED)
    assert "ledger.db: malformed" in refused("status", "--home", "runs"), "SQLite sees it by itself"


@pytest.mark.parametrize(
    "statement",
    [f"CREATE VIEW more {ENDLESS} i FROM n", "CREATE TRIGGER more AFTER UPDATE ON ledger BEGIN SELECT 1; END",
     "CREATE VIRTUAL TABLE more USING fts5(a)"],
    ids=["view", "trigger", "virtual"],
)  # fmt: skip
@pytest.mark.parametrize("file", ["ledger.db", "mlflow.db"])
def test_no_database_of_a_home_has_programs(file: str, statement: str) -> None:
    change(
        f"{two_studies()}/{file}",
        statement.replace("ON ledger", f"ON {'ledger' if 'led' in file else 'runs'}"),
    )
    assert "has 'more', which is no table" in refused("pull", "sweep", "--home", "runs")


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


@pytest.mark.parametrize("file", ["ledger.db", "mlflow.db", "optuna.db"])
@pytest.mark.parametrize(
    "words", [["status"], ["pull", "sweep"], ["run", "smoke"]], ids=lambda words: words[0]
)
def test_pipes_in_a_home(file: str, words: list[str]) -> None:
    """Nobody ever writes into them: who reads one waits for ever."""
    home = Path(two_studies())
    (home / file).unlink(missing_ok=True)
    os.mkfifo(home / file)
    assert f"{file}: is no file" in refused(*words, "--home", "runs")


# ---- other files


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


@pytest.mark.parametrize("kind", ["rows", "one text for many rows"])
def test_parquet_that_unfolds(kind: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if kind == "rows":  # half a megabyte that stands for 800 MB
        table = pa.table({f"c{n}": pa.array([1.0]).take(pa.array([0] * 1_000_000)) for n in range(4)})
        with pq.ParquetWriter("x.parquet", table.schema, compression="zstd") as writer:
            for _ in range(24):
                writer.write_table(table)
    else:  # 600 bytes that stand for 2.7 GB
        text = pa.DictionaryArray.from_arrays(pa.array([0] * 900, pa.int32()), pa.array(["a" * 3_000_000]))
        pq.write_table(pa.table({"study": text}), "x.parquet", compression="zstd")
    assert Path("x.parquet").stat().st_size < 2_000_000
    assert "any table of records" in refused("table", "x.parquet")


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
