"""Libraries of our C++ in the user's cache: whole or built again, and a compiler that does anything at all; and
the folder of that cache: each user's own, since what lies there is run.
"""

import itertools
import re
from pathlib import Path

import pytest

from model import PRESETS
from tests import needs_compiler
from tests.crashes import Disk, failing
from tests.processes import wait_until
from trainer import Recipe
from trainer.bank import bank
from trainer.bank.bank import backend_of
from trainer.engine import build, native
from trainer.engine.build import BuildError, job_of, library, missing_to_build
from trainer.engine.torch_backend import TorchBackend
from trainer.files.installed import cache_folder, missing_for_compilation


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


FOREIGN = {"cut": lambda whole: whole[:-9], "flipped": lambda whole: whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:]}


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


@pytest.fixture
def copied(small, monkeypatch):
    """A compiler that is quick: it copies what the real one built."""
    library(small)
    (file,) = kept(small)
    built = file.rename(small.parent / "built.so")
    file.with_name(re.sub(r"\.\w+\.so$", ".lock", file.name)).unlink()
    file.parent.rmdir()
    monkeypatch.setenv("CXX", compiler(small.parent, f"cp {built} $OUT"))
    return small


def check_works(source, monkeypatch, cache):
    """With what is left of a cache a library is loaded, and kept whole."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache))
    build._library.cache_clear()
    assert library(source).answer() == 42
    whole = (source.parent / "built.so").read_bytes()
    assert [f.read_bytes() for f in (cache / "native").glob("*.so")] == [whole]


@needs_compiler
def test_whenever_the_power_goes_the_cache_has_a_whole_library_or_builds_one(copied, monkeypatch, tmp_path, caplog):
    disk = Disk(tmp_path / "cache")
    with disk.recording():
        library(copied)
    assert len(disk.found) > 8
    for number, left in enumerate(disk.found):
        cache = left.restore(tmp_path / str(number))
        cache.chmod(0o700)
        try:
            check_works(copied, monkeypatch, cache)
        except BaseException as error:
            raise AssertionError(left.how) from error
    assert "built again" not in caplog.text, "by its name, and not whole"


@needs_compiler
def test_whichever_call_of_the_cache_fails_what_was_built_is_used_or_the_reason_is_one_line(
    copied, monkeypatch, tmp_path
):
    answers = []
    for at in itertools.count(1):
        cache = tmp_path / str(at)
        cache.mkdir(mode=0o700)
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache))
        build._library.cache_clear()
        with failing(at) as calls:
            try:
                answers.append(library(copied).answer())
            except (BuildError, ValueError) as error:
                assert "Input/output error" in str(error) and str(error).isprintable()
                answers.append(None)
        check_works(copied, monkeypatch, cache)
        if len(calls) < at:
            break
    assert set(answers) == {42, None} and len(answers) > 6


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
        (r"printf 'note\n\x1b[31m x.cpp: error: \xff no' >&2; exit 2", r"compiler failed: \?\[31m x.cpp: error: . no"),
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


def test_engine_and_kernel_are_compiled_at_once(small, monkeypatch):
    """Each compiler waits for the other one."""
    began = small.parent / "began"
    wait = f"for n in {{1..100}}; do [ $(wc -l < {began}) = 2 ] && exit 3; sleep 0.1; done"
    monkeypatch.setenv("CXX", compiler(small.parent, f"echo >> {began}; {wait}; exit 4"))
    native._engine.cache_clear()
    with pytest.raises(BuildError, match="exit code 3"):
        native.EngineBackend(PRESETS["57p"], Recipe())


def test_a_quotation_without_end_is_no_compiler(monkeypatch):
    monkeypatch.setenv("CXX", 'g++ "')
    assert missing_for_compilation() == "a C++ compiler (CXX: No closing quotation: 'g++ \"')"


@needs_compiler
def test_a_shipped_library_needs_no_compiler_and_no_cache(small, monkeypatch, caplog):
    shipped = small.parent / "shipped"
    monkeypatch.setattr(build, "SHIPPED", shipped)
    job = job_of(small)
    build.build(job.command(["g++"]), small.parent, job.stem())
    shipped.mkdir()
    (file,) = small.parent.glob("*.so")
    file.rename(shipped / file.name)
    monkeypatch.setenv("PATH", "")
    assert library(small).answer() == 42 and kept(small) == [] and missing_to_build(small, {}) is None
    assert missing_to_build(small, {"OTHER": 1}) == "a C++ compiler (g++)"
    monkeypatch.setenv("CXX", "clang++")
    assert missing_to_build(small, {}) == "a C++ compiler (clang++)", "the user's own builds it"
    monkeypatch.delenv("CXX")
    (shipped / file.name).unlink()  # a library that is mapped is not to be written over
    (shipped / file.name).write_bytes(b"not a library")
    with pytest.raises(BuildError, match="No such file"):
        library(small)
    assert "built again, it was damaged" in caplog.text


def test_a_shape_without_a_shipped_kernel_trains_without_the_engine_and_says_so(monkeypatch, tmp_path, caplog):
    for module in (build, bank):
        monkeypatch.setattr(module, "SHIPPED", tmp_path)
    monkeypatch.setenv("PATH", "")
    assert isinstance(backend_of(PRESETS["57p"], Recipe(), "cpu", compiled=True), TorchBackend)
    (line,) = caplog.messages
    assert line.startswith("57p has no shipped kernel and needs a C++ compiler (g++): training")


def test_a_compiler_that_hangs_is_given_up_with_what_it_started(small, monkeypatch, caplog):
    """And a bank trains without the engine."""
    monkeypatch.setattr(build, "LONGEST_S", 0.3)
    monkeypatch.setenv("CXX", compiler(small.parent, f"sleep 987 & echo $! >> {small.parent}/pids; wait"))
    assert isinstance(backend_of(PRESETS["57p"], Recipe(), "cpu", compiled=True), TorchBackend)
    assert re.search(r"compiler has not ended in 0 s: training without the engine", caplog.text)
    pids = (small.parent / "pids").read_text().split()
    left = "the compiler's own processes are still there"
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), left)


# ---- the folder


@pytest.fixture
def user(tmp_path, monkeypatch):
    """A user who has compiled nothing and set nothing."""
    for name in ("TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("", "", "me/.cache/adder-search"),
        ("XDG_CACHE_HOME", "xdg", "xdg/adder-search"),
        ("XDG_CACHE_HOME", "./relative", "me/.cache/adder-search"),  # as its specification says
        ("TORCHINDUCTOR_CACHE_DIR", "own", "own"),
    ],
)
def test_programs_are_each_users_own(name, value, found, user, monkeypatch):
    if name:
        relative = not value or value.startswith(".")
        monkeypatch.setenv(name, value if relative else str(user / value))
    assert cache_folder() == user / found
    assert (user / found).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o1777, 0o770])
def test_a_cache_that_others_can_write_is_refused(mode, user):
    """Whoever can write it can have any code run: a sticky bit does not keep them from adding to it."""
    folder = user / "me" / ".cache" / "adder-search"
    folder.mkdir(parents=True)
    folder.chmod(mode)
    with pytest.raises(ValueError, match=r"adder-search others can write there.*TORCHINDUCTOR_CACHE_DIR"):
        cache_folder()
    folder.chmod(0o755)
    assert cache_folder() == folder
