"""Libraries of our C++ in the user's cache: whole or built again, and a compiler that does anything at all."""

import re
from pathlib import Path

import pytest

from model import PRESETS
from tests.processes import wait_until
from trainer import Recipe
from trainer.bank.bank import programs_of
from trainer.engine import build
from trainer.engine.build import BuildError, library
from trainer.engine.torch_backend import TorchBackend
from trainer.files.installed import compiler_command, missing_for_compilation

needs_compiler = pytest.mark.skipif(
    bool(missing_for_compilation()), reason=f"needs {missing_for_compilation()}"
)


@pytest.fixture
def small(monkeypatch, tmp_path):
    """A source that compiles in no time, and an empty cache of libraries."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    source = tmp_path / "small.cpp"
    source.write_text('extern "C" int answer() { return 42; }')
    yield source
    build._library.cache_clear()


def kept(source):
    """The files of the cache: one library, whole."""
    build._library.cache_clear()
    return sorted((source.parent / "cache" / "native").glob("*.so"))


FOREIGN = {
    "empty": lambda whole: b"", "cut": lambda whole: whole[: len(whole) // 2], "text": lambda whole: b"x" * 999,
    "flipped": lambda whole: whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:],
}  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("damage", FOREIGN.values(), ids=FOREIGN)
def test_a_damaged_library_is_built_again_once_with_a_line(damage, small, caplog):
    library(small)
    (file,) = kept(small)
    whole = file.read_bytes()
    file.unlink()  # a library that is mapped is not to be written over
    file.write_bytes(damage(whole))
    assert library(small).answer() == 42 and "built again" in caplog.text and caplog.text.count("\n") == 1
    caplog.clear()
    assert [f.read_bytes() for f in kept(small)] == [whole] and library(small).answer() == 42
    assert caplog.text == ""


def compiler(folder, text):
    """A compiler that is this shell script; `$OUT` is what it was asked to write."""
    script = folder / "compiler"
    script.write_text(f'#!/usr/bin/env bash\nOUT="${{@: -1}}"\n{text}\n')
    script.chmod(0o755)
    return str(script)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("head -c 3000 /dev/urandom > $OUT", "compiler built no library: .*"),
        ("exit 0", "compiler built no library: .*No such file.*"),
        ("head -c 3000 /dev/urandom >&2; exit 1", "compiler failed: .*"),
        (
            r"printf 'note\n\x1b[31m x.cpp: error: \xff no' >&2; exit 2",
            r"compiler failed: \?\[31m x.cpp: error: . no",
        ),
        ("kill -9 $$", "compiler failed: exit code -9"),
        ("yes error | head -c 3000000 >&2; exit 1", "compiler failed: error"),
    ],
)
def test_a_compiler_that_makes_garbage_is_one_line(text, said, small, monkeypatch):
    monkeypatch.setenv("CXX", compiler(small.parent, text))
    with pytest.raises(BuildError) as failed:
        library(small)
    line = str(failed.value)
    assert re.fullmatch(f"/.*/{said}", line) and line.isprintable() and len(line) < 500
    assert kept(small) == []


@needs_compiler
def test_a_compiler_that_fails_is_a_line(monkeypatch, small):
    small.write_text("int f( { }")
    with pytest.raises(BuildError, match=r"failed: .*error"):
        library(small)
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(BuildError, match="no-such-compiler: No such file"):
        library(small)


@pytest.mark.parametrize(("name", "command"), [("", ["g++"]), ("clang++ -O1", ["clang++", "-O1"])])
def test_the_compiler_is_the_users(name, command, monkeypatch):
    monkeypatch.setenv("CXX", name)
    assert compiler_command() == command


def test_a_quotation_without_end_is_no_compiler(monkeypatch):
    monkeypatch.setenv("CXX", 'g++ "')
    assert missing_for_compilation() == "a C++ compiler (CXX: No closing quotation: 'g++ \"')"


def test_a_compiler_that_hangs_is_given_up_with_what_it_started(small, monkeypatch, caplog):
    """And a bank trains without the engine."""
    monkeypatch.setattr(build, "LONGEST_S", 1.0)
    monkeypatch.setenv("CXX", compiler(small.parent, f"sleep 987 & echo $! >> {small.parent}/pids; wait"))
    assert isinstance(programs_of(PRESETS["57p"], Recipe(), "cpu", compiled=True), TorchBackend)
    assert re.search(r"compiler has not ended in 1 s: training without the engine", caplog.text)
    (pid,) = map(int, (small.parent / "pids").read_text().split())
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the compiler's own processes are still there")
