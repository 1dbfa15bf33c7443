"""The notebook, as a user of Jupyter runs it, and a kernel that is interrupted: what it trained goes on."""

import json
import os
import shlex
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import click
import pytest

from search.cli import main as adder_search
from tests import ROOT, needs_plugins
from tests.commands import OTHERS
from tests.processes import wait_until
from tests.reference import QUICK, check_whole, expected, states, write_study

NOTEBOOK = ROOT / "notebooks" / "57p.ipynb"
LONGEST_S = 1_800


def cells(kind):
    return [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind]


def commands():
    """The words of each command of ours in a cell."""
    lines = [line for cell in cells("code") for line in "".join(cell["source"]).splitlines()]
    return [shlex.split(line.removeprefix("!")) for line in lines if line.startswith("!adder-search")]


def test_the_notebook_is_kept_without_what_it_printed():
    assert all((cell["outputs"], cell["execution_count"], cell["metadata"]) == ([], None, {}) for cell in cells("code"))
    assert len(cells("code")) <= 10 and len(cells("markdown")) <= len(cells("code"))


def test_the_wheel_that_make_wheel_makes_is_installed_or_else_a_clone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before, found = "".join(cells("code")[0]["source"]).partition("\nif ")[0], {}
    exec(before, found)
    assert found["PACKAGE"] == tmp_path / "adder-search"
    (wheel := tmp_path / "adder_search-0.1.0-py3-none-manylinux_2_34_x86_64.whl").touch()
    exec(before, found)
    assert found["PACKAGE"] == wheel


@needs_plugins
def test_its_commands_have_the_options_that_it_gives():
    assert {words[1] for words in commands()} == {"run", "best", "pull", "verify", "export"}
    for _, name, *words in commands():
        command = adder_search.get_command(click.Context(adder_search), name).load()
        command.make_parser(click.Context(command)).parse_args(words)


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Start a notebook's kernel in an empty folder, by this Python, with the command on its path."""
    from nbclient import NotebookClient
    from nbformat import v4

    for name in OTHERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.chdir(tmp_path)

    @contextmanager
    def start(*sources):
        notebook = v4.new_notebook(cells=[v4.new_code_cell(source) for source in sources])
        client = NotebookClient(notebook, timeout=LONGEST_S, kernel_name="python3")
        with client.setup_kernel():
            yield client

    return start


def printed(cell):
    return "".join(output.get("text", "") for output in cell["outputs"])


def run(client, number):
    """Run a cell to its end. Returns what it printed."""
    return printed(client.execute_cell(client.nb.cells[number], number))


@pytest.mark.end_to_end
@pytest.mark.full
def test_every_cell_does_what_is_said_of_it(kernel):
    with kernel(*("".join(cell["source"]) for cell in cells("code"))) as client:
        said = {client.nb.cells[n].source.splitlines()[-1]: run(client, n) for n in range(len(client.nb.cells))}
        results = [output.get("data", {}) for cell in client.nb.cells for output in cell["outputs"]]
    trained = said["!adder-search run 57p"]
    progress = [line for line in trained.splitlines() if line.startswith("[")]
    assert 0 < len(progress) < 60 and "\r\r" not in trained and "seed 777 grokked at step 47,000" in trained, trained
    assert "not measured: T4 " in said["!adder-search run 57p --dry-run"]
    assert "10,010/10,010 VERIFIED" in said["!adder-search export best -o submission.py"]
    assert [r["text/plain"] for r in results if "text/plain" in r][-1] == str(1234567890 + 9876543210)
    assert any("image/png" in r for r in results), "the curves"
    assert all("Traceback" not in text and "WARNING" not in text for text in said.values()), said


def interrupt(client, is_time):
    """Do what Jupyter's button does, to the kernel and what it has started, once it is time."""
    wait_until(is_time, "it was never time")
    os.killpg(os.getpgid(client.km.provisioner.pid), signal.SIGINT)


@pytest.mark.end_to_end
@pytest.mark.full
def test_a_kernel_that_is_interrupted_stops_a_run_and_the_same_cell_goes_on(kernel, tmp_path):
    study, home = QUICK | {"recipe": QUICK["recipe"] | {"steps": 300}}, tmp_path / "adder-runs"
    write_study(tmp_path, study)
    with kernel("!adder-search run quick.yaml") as client, ThreadPoolExecutor(1) as pool:
        pool.submit(interrupt, client, lambda: states(home))
        first = run(client, 0)
        again = run(client, 0)
    assert "stopping: what trains is being saved" in first and "4 not grokked" not in first, first
    assert "0 of 4 grokked" in again and "already being run" not in again, again
    check_whole(home, study, expected(study))


CALL = """
import asyncio, search
asyncio.get_running_loop()
whole = search.run({study}, progress=print)
print(whole, max(whole.curves["step"]))
"""


@pytest.mark.end_to_end
@pytest.mark.full
def test_a_study_that_a_cell_calls_is_interrupted_and_the_same_cell_goes_on(kernel, tmp_path):
    study, home = QUICK | {"recipe": QUICK["recipe"] | {"steps": 100}}, tmp_path / "adder-runs"
    with kernel(CALL.format(study=study)) as client, ThreadPoolExecutor(1) as pool:
        client.allow_errors = True
        pool.submit(interrupt, client, lambda: states(home))
        run(client, 0)
        (error,) = [output for output in client.nb.cells[0]["outputs"] if output["output_type"] == "error"]
        again = run(client, 0)
    assert (error["ename"], error["evalue"]) == (
        "KeyboardInterrupt", "quick: stopped; the same call goes on, with what was saved"
    )  # fmt: skip
    assert {output["output_type"] for output in client.nb.cells[0]["outputs"]} == {"stream"}, "no picture, no error"
    assert "seeds 4 of 4" in again and "quick: 4 of 4 seeds ended, 0 grokked 100" in again, again
    check_whole(home, study, expected(study))
