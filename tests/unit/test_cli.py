"""The command line on bad input: one clear line a problem, its exit code, no traceback, nothing written.

Checkpoints, what `verify` and `export` say of them, are in test_cli_checkpoints.py.
"""

import dataclasses
import json
import math
import pkgutil
import re
import sqlite3
from configparser import ConfigParser
from contextlib import closing
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from unittest.mock import Mock

import click
import pytest

from search import cli, plugins
from search.cli import COMMANDS, GROUPS
from search.cli.listed import Listed
from search.errors import Failure, UserError
from search.run.snapshot import Snapshot
from search.store import database
from search.store.progress_file import write_progress
from tests import PLUGINS, ROOT
from tests.bad_studies import GOOD
from tests.commands import call, done, fails, fails_with_one, python, says
from tests.homes import Recorder, empty_home, records_of, study_of, two_studies

pytestmark = pytest.mark.usefixtures("here")
# ---- the commands as such


def test_every_command_is_listed_and_found_by_its_name():
    names = [m.name for m in pkgutil.iter_modules(cli.__path__) if m.name != "__main__"]
    values = [value for name in names for value in vars(import_module(f"search.cli.{name}")).values()]
    assert {v.name for v in values if isinstance(v, click.Command)} == set(COMMANDS)
    loaded = {name: known.load() for name, known in cli.main.commands.items()}
    assert all(command.name == name and command.help for name, command in loaded.items())
    lines = call("--help").stdout.splitlines()
    shown = [line.split()[0] for line in lines if line.startswith("  ") and not line.startswith("   ")]
    assert [name for name in shown if name in COMMANDS] == list(COMMANDS)
    assert all(f"{group}:" in lines for group in GROUPS)


def test_a_command_of_a_package_stands_behind_ours_in_its_section(monkeypatch):
    points = {name: EntryPoint(name, "one:f", plugins.COMMANDS) for name in ("b", "a")}
    monkeypatch.setattr(plugins, "added", lambda group: points)
    monkeypatch.setattr(cli, "load_plugin", lambda point: Listed(point.name, "Says.", "m", "Evidence"))
    evidence = call("--help").stdout.partition("Evidence:\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in evidence.splitlines()] == ["best", "records", "b", "a"]


def test_what_a_package_has_broken_is_left_out_of_a_group_and_said_once(monkeypatch, caplog):
    points = {"good": "math:pi", "bad": "gone.part:reader"}
    monkeypatch.setattr(plugins, "added", lambda group: {n: EntryPoint(n, v, group) for n, v in points.items()})
    assert plugins.loaded("a group") == plugins.loaded("a group") == {"good": math.pi}
    said = "bad: gone.part:reader cannot be imported (No module named 'gone')"
    assert caplog.messages == [f"package gone: its a group are left out: {said}"]


def test_commands_of_other_packages_are_listed_by_package(monkeypatch):
    points = {"a": "one:f", "b": "two.part:f", "c": "one.part:f"}
    added = {name: EntryPoint(name, value, plugins.COMMANDS) for name, value in points.items()}
    monkeypatch.setattr(plugins, "added", lambda group: added)
    monkeypatch.setattr(cli, "load_plugin", lambda point: click.Command(point.name, help="Says."))
    *_, first, second = call("--help").stdout.split("\n\n")
    assert " ".join(first.split()) == "Added by one: a Says. c Says."
    assert second.startswith("Added by two:\n  b")


def test_what_another_package_has_broken_is_said_when_it_is_called(monkeypatch):
    point = EntryPoint("broken", "search.plugins:gone", plugins.COMMANDS)
    monkeypatch.setattr(plugins, "added", lambda group: {"broken": point})
    lines = call("--help").stdout.splitlines()
    assert lines[-1].split() == ["broken", "(cannot", "be", "imported)"]
    said = "search.plugins:gone cannot be imported (module 'search.plugins' has no attribute 'gone')"
    assert fails_with_one(1, "broken") == f"broken: {said}"
    with pytest.raises(Failure, match=re.escape(f"--carries: {said}")):
        plugins.part("broken", "--carries")
    with pytest.raises(UserError, match=r"--carries needs the research notebook: pip install -e ./lab"):
        plugins.part("carries", "--carries")


WITHOUT = """
import contextlib, io, json, sys
from search.cli import main

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[2:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
said = {}
for words in json.loads(sys.argv[1]):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            main(words.split())
        except SystemExit as end:
            said[words] = [end.code, out.getvalue()]
assert not set(sys.argv[2:]) & set(sys.modules)
print(json.dumps(said))
"""


THEIRS = [
    "claims", "thresholds", "forge", "table x", "report x", "ui", "sync", "prove x", "explain x", "import x -o y",
    "compress x -o y",
]  # fmt: skip


def test_commands_need_no_plug_in():
    """No module of the core imports one either: tests/test_imports.py."""
    ours = ["--help", "studies", "models", "keys", "status --home nowhere"]
    said = json.loads(python("-c", WITHOUT, json.dumps(ours + THEIRS), *PLUGINS, "lab").splitlines()[-1])
    assert all(said[words][0] == 0 for words in ours), said
    for words in THEIRS:
        code, text = said[words]
        assert code != 0 and "Traceback" not in text and words.split()[0] in text


@pytest.mark.parametrize("words", [*plugins.NOTEBOOK, "claims --shipped", "forge --help"])
def test_what_comes_with_the_notebook_says_how_to_add_it(words, monkeypatch):
    monkeypatch.setattr(plugins, "added", lambda group: {})
    needed = f"{words.split()[0]} needs the research notebook: pip install -e ./lab"
    assert fails_with_one(2, *words.split()) == needed


def test_the_notebook_adds_the_commands_that_are_said_to_need_it():
    """And README names them, with what adds them."""
    declared = ConfigParser()
    declared.read(ROOT / "lab" / "setup.cfg")
    lines = declared["options.entry_points"][plugins.COMMANDS].split("\n")
    assert {line.partition(" ")[0] for line in lines if line} == set(plugins.NOTEBOOK)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in readme for name in plugins.NOTEBOOK) and "`pip install -e ./lab`" in readme


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (OSError(28, "No space left on device", "x"), 1, "error: x: No space left on device\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_what_stops_a_command_is_a_line_and_a_code(error, code, said, monkeypatch):
    monkeypatch.setattr(Listed, "load", lambda known: click.Command(known.name, callback=Mock(side_effect=error)))
    result = call("studies")
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", said)


# ---- studies


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_a_bad_study_starts_nothing(options):
    """Each problem is a line. What is said of all others: test_study.py."""
    Path("some.yaml").write_text("nmae: x\nmodel: 57p\nseeds: [1]")
    lines = fails(2, "run", "some.yaml", *options)
    assert lines == ["some.yaml: name: missing", "some.yaml: nmae: unknown key; did you mean name?"]


def test_a_machine_without_a_compiler_is_told_so(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    Path("some.yaml").write_text(GOOD)
    lacks = "without a C++ compiler (no-such-compiler) training is a hundred times slower"
    assert done("run", "some.yaml", "--dry-run").splitlines()[-1].startswith(lacks)


def test_an_option_before_the_command_belongs_behind_it():
    line = "--home: options go after the command: adder-search COMMAND --home"
    assert fails_with_one(2, "--home", "there", "status") == line


def test_a_dry_run_prints_the_plan_and_writes_nothing(monkeypatch):
    monkeypatch.setattr("search.run.estimate.local_resources", lambda: {"CPU": 2, "GPU": 0})
    result = call("run", "57p", "--dry-run", "--home", "somewhere")
    assert result.exit_code == 0 and not result.stderr
    banks = "2 at once, of 4 slots each; more follow\n"
    for text in ("57 parameters", "16, 60,000 steps each", banks, "/somewhere", "64 seeds in all"):
        assert text in result.stdout, text
    assert not list(Path().iterdir())


def test_a_plan_for_a_cluster_does_not_ask_this_machine_for_room(monkeypatch):
    Path("some.yaml").write_text(GOOD + "\nresources: {cpu: 1000, accelerator_type: H200}\n")
    here = fails_with_one(2, "run", "some.yaml", "--dry-run")
    assert here.endswith("accelerator_type chooses among the nodes of a cluster (RAY_ADDRESS), and there is none")
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    *_, last = done("run", "some.yaml", "--dry-run").splitlines()
    assert says(last, "planned for one bank, on a node of head:6379: here there is no room (resources.cpu: *)")


OF_A_STUDY = ["status 57p", "stop 57p", "delete 57p", "best 57p", "table 57p", "report 57p -o x.html",
              "records 57p -o x.csv", "pull 57p", "pull 57p --seed 777"]  # fmt: skip


@pytest.mark.parametrize("words", [*OF_A_STUDY, "ui", "table"])
def test_where_nothing_has_run_or_the_study_has_not_all_say_so_alike(words, home):
    said = f"nothing has run yet in {Path('adder-runs').absolute()}: no such folder"
    assert fails_with_one(2, *words.split()) == said
    if words in OF_A_STUDY:
        said = f"study '57p' has no records in {home.path}; no study was begun here"
        assert fails_with_one(2, *words.split(), "--home", "home") == said


# ---- homes, databases, servers


def test_an_unwritable_home(monkeypatch):
    Path("file").write_text("")
    line = fails_with_one(2, "run", "smoke", "--home", "file/home")
    assert line.endswith("file/home: cannot write there (Not a directory); choose another home (--home)")
    assert "File name too long" in fails_with_one(1, "status", "--home", "x" * 5_000)
    assert "Directory 'file' is a file" in call("run", "smoke", "--home", "file").stderr
    monkeypatch.setenv("ADDER_SEARCH_HOME", "file")
    assert "cannot write there (File exists)" in fails_with_one(2, "run", "smoke")


@pytest.fixture
def home():
    """A home that has been used."""
    return records_of(empty_home("home")).home


def progress_of(records, seeds, **changes):
    """What a driver leaves of a run of which no seed has begun."""
    snapshot = Snapshot([0, 1], [0, seeds], 0, 0, 0, "", 0.0, 0.0, None, True, 0.0, waiting=seeds)
    return {"owner": records.get_driver(), "began": 0, "training": []} | dataclasses.asdict(snapshot) | changes


def test_a_study_without_seeds_is_shown_with_its_driver(home):
    records_of(home, "first").lease.acquire()
    (records := records_of(home, "smoke")).lease.acquire()
    write_progress(records, running := progress_of(records, 16))
    lines = call("status", "--home", "home").stdout.splitlines()
    assert len(lines) == 2 and lines[0].startswith("first: no seed begun yet; run by ")
    first, second, *_ = call("status", "smoke", "--home", "home").stdout.splitlines()
    assert first == lines[1] == f"smoke: no seed begun yet; run by {running['owner']}"
    told = json.loads(call("status", "smoke", "--home", "home", "--json").stdout)
    assert second.startswith("  runs since ") and told["running"] == running
    assert [s["study"] for s in told["studies"]] == ["smoke"]


def test_a_seed_that_waits_does_not_run(home):
    """Those that have reported a step run; where all wait, and where there are too many to list, all are alike."""
    recorder = Recorder(home, study_of())
    recorder.claim((1, 2, 3))
    key = recorder.configuration.key
    for running, steps, said in (
        (0, [], ["waiting"] * 3),
        (1, [[key, 1, 1, 500], [key, 2, 2, 0]], ["running", "waiting", "waiting"]),
        (3, [], ["running"] * 3),
    ):
        write_progress(recorder.records, progress_of(recorder.records, 3, running=running, steps=steps))
        lines = call("status", "sweep", "--home", "home").stdout.splitlines()
        assert [line.split()[2] for line in lines if line.startswith("  seed ")] == said, lines
    recorder.done()


def test_a_stopped_study_goes_on_by_the_file_that_run_was_given(home, monkeypatch):
    (records := records_of(home, "tie")).lease.acquire()
    monkeypatch.setattr("search.cli.run._wait_until", lambda condition, timeout_s: True)
    Path("sub").mkdir()
    Path("sub/tie.yaml").write_text("")
    for source, said in ((Path("sub/tie.yaml").absolute(), "sub/tie.yaml"), ("/gone.yaml", "tie")):
        write_progress(records, {"owner": records.get_driver(), "source": str(source)})
        lines = done("stop", "tie", "--home", "home").splitlines()
        assert lines[-1] == f"  adder-search run {said} --home home"


def test_a_study_that_is_refused_hides_no_other():
    two_studies("home")
    with closing(sqlite3.connect("home/records.db")) as db, db:
        db.execute("""UPDATE ledger_studies SET definition = '{"nmae": 1}' WHERE study = 'sweep'""")
    for words in ("status", "status sweep"):
        lines = call(*words.split(), "--home", "home").stdout.splitlines()
        assert "  study sweep as it was recorded: name: missing" in lines
        assert lines[0].startswith("sweep: 4 seeds (")
    assert any(line.startswith("sweep-2: ") for line in call("status", "--home", "home").stdout.splitlines())


@pytest.mark.parametrize("words", [["run", "smoke"], ["run", "smoke", "--dry-run"], ["status"]])
def test_a_locked_ledger(words, home, monkeypatch):
    monkeypatch.setattr(database, "LOCK_WAIT_S", 0.1)
    with closing(sqlite3.connect(home.ledger_db)) as other:
        other.execute("BEGIN EXCLUSIVE")
        line = fails_with_one(1, *words, "--home", "home")
        other.rollback()
    assert f"{home.ledger_db}: database is locked; another program holds it" in line
    assert "nothing has run yet" in call("status", "--home", "home").stdout


def test_a_store_that_is_no_database_or_of_another_version(home):
    home.mlflow_db.write_bytes(b"no database at all " * 500)
    line = fails_with_one(1, "run", "smoke", "--home", "home")
    assert line.startswith("MLflow store sqlite:///") and "file is not a database" in line
    with closing(sqlite3.connect(home.ledger_db)) as db, db:
        db.execute("UPDATE ledger_version SET schema = 99")
    line = fails_with_one(2, "status", "--home", "home")
    assert line.startswith(f"{home.ledger_db}: written by a newer version of adder-search; ")
    home.ledger_db.write_bytes(b"no database at all " * 500)
    assert fails_with_one(1, "status", "--home", "home") == f"{home.ledger_db}: file is not a database"
