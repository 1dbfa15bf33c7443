"""The study that a command takes: recorded, shipped, of a file or of a stream; and packages beside ours."""

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from search.cli import main, run
from search.run.source import read_study
from search.store.home import Home
from search.store.progress_file import write_progress
from search.study.file import load_study, shipped_study
from search.study.spelling import LARGEST_FILE
from search.study.written import UNCHANGED
from tests import PLUGINS, ROOT
from tests.bad_studies import GOOD
from tests.commands import call, done, fails_with_one, own_environment
from tests.homes import begin_study, empty_home, records_of, study_of, work_of

pytestmark = pytest.mark.usefixtures("here")
MINE = study_of(name="smoke", about="my own")


# ---- recorded, shipped, files


@pytest.mark.parametrize("command", ["run", "resume"])
def test_a_recorded_study_wins_over_a_shipped_one_and_says_so(command, monkeypatch):
    """The shipped study never trains into the records of one's own."""
    begin_study("adder-runs", MINE)
    begun = []
    monkeypatch.setattr(run, "open_and_run", lambda study, *given, **options: begun.append(study))
    said = call(command, "smoke")
    assert begun == [MINE] and said.exit_code == 0
    other = "the study that comes with the package is another: give it a home of its own with --home"
    assert said.stderr == f"smoke: your recorded study of that name; {other}\n"
    call(command, "smoke", "--home", "other")
    assert begun[1] == shipped_study("smoke")


def test_the_recorded_study_is_the_shipped_one_in_silence():
    begin_study("adder-runs", shipped_study("smoke"))
    assert call("run", "smoke", "--dry-run").stderr == ""


@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize("recorded", [True, False])
def test_no_file_or_folder_takes_the_place_of_a_name(kind, recorded):
    study, home = study_of(name="57p" if recorded else "74p"), Home("adder-runs")
    begin_study("adder-runs", study)
    Path("57p").write_text("a: [1") if kind == "file" else Path("57p").mkdir()
    taken = "your recorded study of that name" if recorded else "the study that comes with the package"
    said = []
    assert read_study("57p", home, said.append, UNCHANGED).name == "57p"
    assert said[0].startswith(f"57p: {taken}; ") and said[0].endswith(f"the {kind} of that name is ./57p")
    refused = fails_with_one(2, "run", "./57p", "--dry-run")
    assert refused.startswith(
        "./57p: line 1" if kind == "file" else "./57p: is a folder; give the path of a study file"
    )


def test_a_file_without_a_suffix_that_nothing_else_has_the_name_of():
    Path("mine").write_text(GOOD)
    assert call("run", "mine", "--dry-run").exit_code == 0
    Path("mine").write_text("a: [1")
    assert fails_with_one(2, "run", "mine").startswith("mine: line 1")


def test_stop_ends_the_study_of_that_name_whatever_lies_beside(monkeypatch):
    Path("smoke").write_text("name: another\nmodel: 57p\nseeds: [1]")
    records = records_of(empty_home("adder-runs"), "smoke")
    records.lease.acquire()
    monkeypatch.setattr("search.cli.run._wait_until", lambda condition, timeout_s: True)
    write_progress(records, {"owner": records.get_driver(), "source": "smoke"})
    assert done("stop", "smoke") == "smoke has stopped. To go on:\n  adder-search run smoke\n"
    assert fails_with_one(2, "stop", "./smoke").startswith("study 'another' has no records")
    begin_study("adder-runs", study_of(name="base"))
    Path("s.yaml").write_text("name: smoke\nextends: base\nrecipe: {lr: '${RATE}'}\nmodel: {module: gone.py:Net}")
    assert done("stop", "s.yaml").startswith("smoke has stopped.")
    for text, problem in (("seeds: [1]", "name: must be a string, got None"), ("[1]", "must be a mapping")):
        Path("s.yaml").write_text(text)
        assert fails_with_one(2, "stop", "s.yaml").startswith(f"s.yaml: {problem}")


@pytest.mark.parametrize("words", [(), ("--dry-run",)])
def test_a_file_with_the_name_of_other_records_says_so_once(words, monkeypatch):
    monkeypatch.setattr(run, "open_and_run", lambda *given, **options: None)
    records = records_of(begin_study("adder-runs", MINE).home, MINE.name)
    with records.lease:
        records.claim(work_of(MINE, 1, 2))
    Path("s.yaml").write_text(GOOD.replace("name: x", "name: smoke").replace("57p", "74p"))
    said = call("run", "s.yaml", *words)
    assert said.stderr == (
        "smoke: the 2 recorded seeds of that name are all of other configurations, and stay; "
        "--fresh begins a study of its own\n"
    )
    assert not words or "not asked for   2 recorded seeds of other configurations" in said.stdout
    assert call("run", "s.yaml", "--fresh", *words).stderr == ""
    Path("s.yaml").write_text(MINE.model_dump_json())
    assert call("run", "s.yaml", *words).stderr == ""


@pytest.mark.parametrize("length", [63, 64])
def test_a_fresh_start_of_a_long_name_has_room_for_its_number(length):
    Path("s.yaml").write_text(GOOD.replace("name: x", f"name: {'x' * length}"))
    assert call("run", "s.yaml", "--dry-run", "--fresh").stdout.startswith("x" * 62 + "-2")


# ---- streams, folders, misspelt files


@pytest.fixture
def stream():
    """A pipe that has no name, as a shell makes for <(...), with a study in it."""
    out, into = os.pipe()
    os.write(into, GOOD.encode())
    os.close(into)
    yield f"/dev/fd/{out}"
    os.close(out)


def test_a_study_may_come_through_a_pipe(stream):
    assert load_study(stream).name == "x"


def test_a_study_may_come_on_the_standard_input(monkeypatch):
    said = CliRunner().invoke(main, ["run", "-", "--dry-run"], input=GOOD)
    assert said.exit_code == 0 and said.output.startswith("x\n")
    sources = []
    monkeypatch.setattr("tracking.mirror.connect", lambda *given, **options: None)
    monkeypatch.setattr(run, "_run", lambda opened, *options: sources.append(opened.source))
    assert CliRunner().invoke(main, ["run", "-"], input=GOOD).exit_code == 0
    assert sources == ["x"], "the next run takes it from the records"


@pytest.mark.parametrize("source", ["-", "/dev/stdin", "/dev/zero", "large.yaml"])
def test_what_is_too_large_is_refused_wherever_it_comes_from(source, monkeypatch):
    out, into = os.pipe()
    writer = threading.Thread(target=lambda: os.fdopen(into, "wb").write(b" " * (LARGEST_FILE + 1)))
    writer.start()
    Path("large.yaml").write_bytes(b" " * (LARGEST_FILE + 1))
    with os.fdopen(out, "rb") as stdin:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stdin))
        name = f"/dev/fd/{out}" if source == "/dev/stdin" else source
        with pytest.raises(Exception, match=r"larger than any study file \(1,048,576 bytes\)") as refused:
            load_study(name)
        stdin.read()
    writer.join()
    assert str(refused.value).startswith(f"{name}: ")


@pytest.mark.timeout(20)
def test_a_pipe_with_a_name_is_not_waited_for():
    os.mkfifo("pipe.yaml")
    assert fails_with_one(2, "run", "pipe.yaml").startswith("pipe.yaml: is a pipe; give a study file, or -")


@pytest.mark.parametrize(
    ("source", "said"),
    {
        "base": "unknown study 'base'; did you mean base.yaml?",
        "studies/57p.yml": "studies/57p.yml: no such study file; did you mean 57p, which comes with the package?",
        "smoke.yml": "smoke.yml: no such study file; did you mean smoke.yaml?",
        "bases.yaml": "bases.yaml: no such study file; did you mean base.yaml?",
        "folder": "folder: is a folder; give the path of a study file",
        "folder/": "folder/: is a folder; give the path of a study file",
        "": "a study has a name, or a file: adder-search studies lists those that come with the package",
    }.items(),
)
def test_what_was_meant_is_named(source, said):
    Path("smoke.yaml" if source == "smoke.yml" else "base.yaml").write_text(GOOD)
    Path("folder").mkdir()
    assert fails_with_one(2, "run", source) == said


# ---- packages beside


LOOK = """
import json, subprocess, sys
from contextlib import suppress
from importlib.util import find_spec
{entry}
with suppress(SystemExit):
    main()
from trainer.files.installed import own_module
from_here = [find_spec(name).origin for name in ("search", "model", "trainer", "studies", *sys.argv[2:])]
started = [sys.executable, "-P", "-c", "import search, trainer; print(search.__file__, trainer.__file__)"]
begun = [own_module("adder_search") + ["--version"], started]
said = [subprocess.run(words, capture_output=True, text=True) for words in begun]
print(json.dumps([from_here, said[0].stdout, said[1].stdout.split()]))
"""
"""A script as pip makes it of the entry point, and what its process and others that it starts import afterwards."""


@pytest.mark.parametrize(("path", "others"), [(":/x:", ["yaml", "click"]), (".:other", [])])
def test_what_lies_beside_is_not_imported(path, others, here):
    """By an empty entry of PYTHONPATH nobody means the current folder; and our packages are those beside each other,
    whatever of their names lies on the path: also in processes that a run starts.
    """
    Path("other").mkdir()
    for folder in (here, here / "other"):
        for name in ("search", "model", "trainer", "studies", *others):
            (folder / f"{name}.py").write_text("print('imported')\nraise SystemExit('imported')")
    module, _, function = re.search(r"adder-search = (.*)", (ROOT / "setup.cfg").read_text())[1].partition(":")
    script = LOOK.format(entry=f"from {module} import {function}")
    ran = subprocess.run(
        [sys.executable, "-P", "-c", script, "--version", *others],
        cwd=here, env=own_environment() | {"PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0 and "imported" not in ran.stdout, ran
    version, answer = ran.stdout.splitlines()
    places, child, started = json.loads(answer)
    assert "version" in version and "version" in child
    assert all(Path(place).is_relative_to(ROOT) for place in (*places[:4], *started)) and len(started) == 2
    assert not any(Path(place).is_relative_to(here) for place in places)


def test_no_process_of_ours_is_started_by_a_name_that_others_may_have():
    """`python -m` looks into the current folder first; `own_module` does not."""
    files = [file for package in ("search", "trainer", "model", *PLUGINS) for file in (ROOT / package).rglob("*.py")]
    assert not [file for file in files if re.search(r"""sys\.executable, [^]]*["']-m["']""", file.read_text("utf-8"))]
    assert sum("own_module(" in file.read_text("utf-8") for file in files) >= 2
