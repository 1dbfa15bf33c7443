"""Commands start at once: what they import is counted. How long that takes: benchmarks/startup.py."""

import json
import subprocess

import pytest

from benchmarks.startup import LIMITS, record
from search import plugins
from search.store.home import Home
from tests import PLUGINS
from tests.commands import COMMAND, own_environment, python

HEAVY = {"torch", "numpy", "pandas", "pyarrow", "matplotlib", "scipy", "sklearn", "mlflow", "optuna", "ray"}
LOADS_PANDAS = "records startup -o records.csv"
LISTING = ["models", "models --json", "keys", "studies", "status", "status startup"]
LISTING += [f"{name} --help" for name in plugins.added(plugins.COMMANDS)]
WITH_INTERVALS = ["best", "table", "table --format csv", "run 57p --dry-run"]
COMMANDS = ["--help", "runn", *LISTING, *WITH_INTERVALS, LOADS_PANDAS]
SCRIPT = """
import contextlib, io, json, sys
before = set(sys.modules)
from search.cli import main
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit, Exception):
        main(words.split(), standalone_mode=False)
    tops = {name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)
    print(json.dumps([words, sorted(tops)]))
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """The packages that one process has after each command, one after another: what came before stays."""
    folder = tmp_path_factory.mktemp("startup")
    record(Home(folder / "adder-runs"), 20)
    said = python("-c", SCRIPT, json.dumps(COMMANDS), cwd=folder)
    assert (folder / "records.csv").is_file(), "the commands have done their work"
    return {name: set(tops) for name, tops in map(json.loads, said.splitlines())}


def test_help_needs_click_alone(loaded):
    for words in ("--help", "runn"):
        assert loaded[words] - {*PLUGINS, "lab"} == {"search", "click"}, "beside plug-ins"


def test_what_lists_or_plans_needs_nothing_heavy_but_scipy_for_intervals(loaded):
    for words in LISTING:
        assert not loaded[words] & HEAVY, words
    for words in WITH_INTERVALS:
        assert not loaded[words] & HEAVY - {"numpy", "scipy"}, words


def test_what_is_heavy_would_be_seen(loaded):
    assert "pandas" in loaded[LOADS_PANDAS]
    assert {words for words in COMMANDS if "records" not in words} >= set(LIMITS), "all that are timed"


def test_addresses_that_are_too_few_for_ray_are_one_line_at_once():
    """As by `ulimit -v`: Ray would wait for itself or abort, and torch and MLflow could not be imported."""
    script = f"ulimit -v 300000; exec {COMMAND} run 57p"
    said = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=own_environment())
    assert said.returncode == 1 and said.stderr.startswith("error: ulimit -v leaves 0.3 GB of addresses; ")
    assert said.stderr.count("\n") == 1
