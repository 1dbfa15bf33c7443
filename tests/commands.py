"""The command for the tests that drive it: in this process, or the real one in processes of its own."""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from search.cli import main
from search.cli.listed import Listed
from tests.processes import PATIENCE_S, Process, marked

COMMAND = Path(sys.executable).with_name("adder-search")
OTHERS = (
    "ADDER_SEARCH_HOME", "ADDER_SEARCH_DATABASE", "MLFLOW_TRACKING_URI", "RAY_ADDRESS",
    "PYTHONPATH", "FORCE_COLOR",
)  # fmt: skip
"""Environment variables that would lead a command elsewhere."""


def call(*words, code=None):
    """Run a command in this process; whatever it raises but an exit is raised here. code: with which it must exit."""
    result = CliRunner().invoke(main, [str(w) for w in words], catch_exceptions=False)
    assert "Traceback" not in result.output and code in (None, result.exit_code), result.output
    return result


def done(*words):
    """Run a command that must succeed. Returns what it printed."""
    return call(*words, code=0).stdout


def fails(code, *words):
    """The error lines of a command that must fail with this code, say nothing else and write nothing."""
    assert not Path("setup.cfg").exists(), "here other tests write too: take the fixture `here`"
    before = sorted(Path().rglob("*"))
    result = call(*words)
    assert sorted(Path().rglob("*")) == before
    assert (result.exit_code, result.stdout) == (code, "")
    lines = result.stderr.splitlines()
    assert lines and all(line.startswith("error: ") for line in lines), lines
    return [line.removeprefix("error: ") for line in lines]


def fails_with_one(code, *words):
    (line,) = fails(code, *words)
    return line


def refused_for_its_task(path):
    """Give a checkpoint of another task to each command that takes one, of plug-ins too. Return those that refuse it.

    All but those that know tasks must, in one line.
    """
    refused = set()
    for name in main.list_commands(click.Context(main)):
        command = main.get_command(click.Context(main), name)
        command = command.load() if isinstance(command, Listed) else command
        arguments = [p for p in command.params if isinstance(p, click.Argument)]
        if name in ("verify", "prove", "rerun", "models") or not any("checkpoint" in p.name for p in arguments):
            continue
        options = [p.opts[0] for p in command.params if p.required and isinstance(p, click.Option)]
        result = call(name, path, *(word for option in options for word in (option, "out")))
        assert result.exit_code == 2 and result.stderr.count("\n") == 1, (name, result.output)
        assert result.stderr.startswith(f"error: {name} is about addition in base 10 with 10 digits alone"), name
        refused.add(name)
    return refused


def refusal(error, call, *given, **more):
    """The one line with which a call is refused."""
    with pytest.raises(error) as refused:
        call(*given, **more)
    line = str(refused.value)
    assert "\n" not in line, line
    return line


def says(line, expected):
    """Whether a line is the expected one, in which a * stands for anything."""
    return bool(re.fullmatch(".*".join(map(re.escape, expected.split("*"))), line))


@dataclass(frozen=True)
class Said:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str
    seconds: float


RAY_AGENTS = (b"ray::DashboardAgent", b"ray::RuntimeEnvAgent")


def _title(pid):
    """What a process calls itself, or nothing if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def own_environment():
    """This process's environment without what would lead a command elsewhere."""
    return {k: v for k, v in os.environ.items() if k not in OTHERS}


def python(*words, cwd=None, timeout=1_700, **variables):
    """Run Python in a process of its own, which must succeed; return what it printed.

    timeout: in seconds. variables: of its environment.
    """
    own = own_environment() | {name: str(value) for name, value in variables.items()}
    command = [sys.executable, *map(str, words)]
    ended = subprocess.run(command, cwd=cwd, env=own, capture_output=True, text=True, timeout=timeout)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def declare(site, package, version, points, tops=""):
    """Write what pip would of an installed package. points: its entry points. tops: its modules, a line each."""
    about = Path(site, f"{package.replace('-', '_')}-{version}.dist-info")
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    (about / "entry_points.txt").write_text(points)
    (about / "top_level.txt").write_text(tops)


class Running(Process):
    """A command that has been started."""

    def __init__(self, *words, cwd, environment=None, program=(COMMAND,)):
        self.started = time.monotonic()
        self.out, self.err = (tempfile.TemporaryFile("w+") for _ in range(2))  # noqa: SIM115
        own = own_environment() | dict(environment or {})
        super().__init__((*program, *words), own, self.out, self.err, cwd=cwd)

    def wait(self, timeout=PATIENCE_S):
        code = self.process.wait(timeout)
        return Said(code, self.printed(), self.warned(), time.monotonic() - self.started)

    said = wait

    def done(self):
        """How it ended, which must be well."""
        said = self.wait()
        assert said.code == 0, said
        return said

    def printed(self):
        """Its output until now."""
        return os.pread(self.out.fileno(), 1 << 20, 0).decode()

    def warned(self):
        """Its lines on stderr until now."""
        return os.pread(self.err.fileno(), 1 << 20, 0).decode()

    def descendants(self):
        """Processes with its mark that are still there, this one left out."""
        return [pid for pid in marked(self.mark) if pid != self.process.pid]

    def workers(self):
        """Descendants other than Ray's two agents, which outlive a killed driver by a minute now and then."""
        return [pid for pid in self.descendants() if not _title(pid).startswith(RAY_AGENTS)]

    def training(self):
        """Ray's processes that train trials now."""
        titles = {pid: _title(pid) for pid in self.workers()}
        return [pid for pid, title in titles.items() if title.startswith(b"ray::") and b"IDLE" not in title]

    def gone(self, timeout=20, killed=False):
        """Whether every descendant has ended by then; of a killed command, every one that does its work."""
        deadline = time.monotonic() + timeout
        while self.workers() if killed else self.descendants():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.2)
        return True

    def end(self):
        """Leave nothing of it behind, whatever the test did."""
        super().end()
        self.out.close()
        self.err.close()


@contextlib.contextmanager
def running(*words, cwd, **options):
    """A command that is ended with the block. Options: `environment`, added to this process's; `program`."""
    command = Running(*words, cwd=cwd, **options)
    try:
        yield command
    finally:
        command.end()


def adder_search(*words, cwd, timeout=PATIENCE_S, **options):
    """Run a command to its end."""
    with running(*words, cwd=cwd, **options) as command:
        return command.wait(timeout)
