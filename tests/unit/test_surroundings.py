"""What a command finds around it: other locales, closed pipes, full disks; and the encoding of what it writes."""

import ast
import io
import locale
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from search.cli.surroundings import settle_encoding, settle_output
from tests import ROOT
from tests.commands import COMMAND, own_environment

PRINT = """
import sys
from search.cli.surroundings import settle_encoding, settle_output
settle_output()
for n in range(3):
    print("θ → 10²⁰", flush=True)
    print("said", file=sys.stderr)
sys.exit(3)
"""
ENCODINGS = ["latin-1", "ascii", "utf-8", "cp437"]


def run(program, *, stdout=subprocess.PIPE, **environment):
    words = [sys.executable, "-c", program]
    return subprocess.run(words, stdout=stdout, stderr=subprocess.PIPE, env=own_environment() | environment, cwd=ROOT)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_what_a_locale_cannot_write_is_escaped(encoding, monkeypatch):
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(io.BytesIO(), encoding, errors="strict"))
    settle_output()
    print("θ → é")
    print("θ → é", file=sys.stderr, flush=True)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        said = stream.buffer.getvalue().decode(encoding)
        assert ast.literal_eval(f"'{said.strip()}'") == "θ → é"


@pytest.mark.parametrize(("begin", "unbuffered"), [(os.pipe, "1"), (os.pipe, ""), (os.openpty, "")])
def test_a_command_without_a_reader_goes_on_to_its_end(begin, unbuffered):
    """Training, above all; the exit code is that of what was done. Nor does a terminal end it that is closed."""
    out, into = begin()
    os.close(out)
    said = run(PRINT, stdout=into, PYTHONUNBUFFERED=unbuffered)
    os.close(into)
    assert (said.returncode, said.stderr.splitlines()) == (3, [b"said"] * 3)
    assert run(PRINT, PYTHONUNBUFFERED=unbuffered).stdout.decode().count("θ") == 3


def test_a_full_disk_is_an_error():
    """What was asked for and could not be written is no success."""
    with Path("/dev/full").open("wb") as full:
        said = subprocess.run([COMMAND, "keys", "seeds"], stdout=full, stderr=subprocess.PIPE, env=own_environment())
    assert (said.returncode, said.stderr) == (1, b"error: input or output: No space left on device\n")


def test_no_text_is_written_or_read_by_the_locale():
    """Files are UTF-8: those of a home go from one machine to another."""
    bare = []
    for file in (file for folder in ("search", "trainer", "model") for file in (ROOT / folder).rglob("*.py")):
        if not re.search(r"open\(|_text\(", text := file.read_text("utf-8")):
            continue
        for call in filter(lambda node: isinstance(node, ast.Call), ast.walk(ast.parse(text))):
            if is_by_locale(call):
                bare.append(f"{file.relative_to(ROOT)}:{call.lineno}")
    assert bare == []
    samples = ["p.read_text()", "p.write_text(x)", "p.open()", "p.open('w')", "open(p)", "open(p, 'a+')"]
    assert all(is_by_locale(ast.parse(text).body[0].value) for text in samples)
    fine = ["p.read_text('utf-8')", "p.open('rb')", "open(p, encoding='utf-8')", "os.open(p, f)", "write_text(p, x)"]
    assert not any(is_by_locale(ast.parse(text).body[0].value) for text in fine)


FIRST = {"read_text": 0, "write_text": 1}
"""Place of the encoding among a method's arguments."""


def is_by_locale(call):
    """Whether a call reads or writes text in the encoding of the locale."""
    is_method = isinstance(call.func, ast.Attribute)
    name = call.func.attr if is_method else getattr(call.func, "id", "")
    owner = getattr(call.func.value, "id", "") if is_method else ""
    if owner in ("os", "webbrowser", "Driver") or any(word.arg == "encoding" for word in call.keywords):
        return False
    if name == "open":
        place = 0 if is_method else 1
        modes = [*call.args[place : place + 1], *(word.value for word in call.keywords if word.arg == "mode")]
        return not any("b" in getattr(mode, "value", "") for mode in modes)
    return is_method and name in FIRST and len(call.args) <= FIRST[name]


@pytest.mark.parametrize(
    ("encoding", "mode", "begins_again"),
    [("utf-8", None, False), ("iso8859-1", None, True), ("iso8859-1", "0", True), ("iso8859-1", "1", False)],
)
def test_paths_are_utf_8_whatever_the_locale(encoding, mode, begins_again, monkeypatch):
    """Arrow has them so, and made a second folder beside é; what is printed stays in the locale's encoding."""
    begun = []
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: encoding)
    monkeypatch.setattr(locale, "getencoding", lambda: "ISO-8859-1")
    monkeypatch.setattr(os, "execv", lambda program, words: begun.append((program, words, dict(os.environ))))
    monkeypatch.setattr(sys, "orig_argv", ["python", "-P", "-m", "adder_search", "status"])
    for name in ("PYTHONUTF8", "PYTHONIOENCODING"):
        monkeypatch.delenv(name, raising=False)
    if mode:
        monkeypatch.setenv("PYTHONUTF8", mode)
    settle_encoding()
    assert len(begun) == begins_again
    for program, words, environment in begun:
        assert (program, words) == (sys.executable, [sys.executable, "-P", "-m", "adder_search", "status"])
        assert environment["PYTHONUTF8"] == "1"
        assert environment["PYTHONIOENCODING"] == "ISO-8859-1:backslashreplace"
        monkeypatch.delenv("PYTHONUTF8")
        monkeypatch.delenv("PYTHONIOENCODING")
