"""Every kernel compiles for every kind of GPU, within the registers and the shared memory that one has."""

import configparser
import dataclasses
import re
import subprocess
from itertools import product
from pathlib import Path

import pytest

from benchmarks.cuda_compiled import usage
from benchmarks.emulator import Emulator
from gpu import nvrtc
from gpu.backend import CudaBackend, macros_of
from gpu.driver import SWITCH, CudaError
from gpu.prices import CARDS
from model import PRESETS, preset
from tests import needs_compiler
from trainer import Recipe
from trainer.files.installed import compiler_command

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
OLDEST, NEWEST = 70, 120  # architectures that are promised, as far as NVRTC has them
QUICK = ("113p", "sm_75"), ("113p", "sm_120")


def program_of(name):
    """What NVRTC compiles for a preset, which others may share."""
    spec = preset(name)
    kernel = spec.kernel()
    return kernel and (kernel.source, *macros_of(spec, kernel, Recipe()).items())


LARGEST = {program: name for name in reversed(PRESETS) if (program := program_of(name))}
"""The largest preset of each program."""


def targets():
    """Presets by architecture; of a machine without NVRTC the quick ones, which then fail."""
    try:
        known = nvrtc.architectures()
    except CudaError:
        known = [architecture for _, architecture in QUICK]
    asked = [a for a in known if OLDEST <= int(a.removeprefix("sm_")) <= NEWEST]
    for target in product(LARGEST.values(), asked):
        yield target if target in QUICK else pytest.param(*target, marks=pytest.mark.full)


def stated(pattern):
    """The numbers that the page states in a sentence."""
    (sentence,) = re.findall(pattern, " ".join(PAGE.split()))
    return [int(number.replace(",", "")) for number in sentence]


MOST_SPILLED, FEW_SPILLED, FEW_UP_TO, LOW_RANK_UP_TO = stated(
    r"spills at most ([\d,]+) bytes per thread, and at most (\d+) up to (\d+) parameters, (\d+) of low rank"
)


@pytest.mark.parametrize(("name", "architecture"), [*targets()])
def test_a_kernel_compiles_for_a_kind_of_gpu_with_few_spills(name, architecture):
    """Neither does a kernel need more stack than twice that: what is spilled, and where an array is indexed."""
    spec = preset(name)
    used = usage(spec, architecture)
    assert used.keys() == {"engine_sizes", "engine_train", "engine_evaluate"}
    spilled = max(max(function.stores, function.loads) for function in used.values())
    is_small = spec.params <= (LOW_RANK_UP_TO if spec.family == "low_rank" else FEW_UP_TO)
    assert spilled <= (FEW_SPILLED if is_small else MOST_SPILLED), used
    assert max(function.stack for function in used.values()) <= 2 * MOST_SPILLED


COMPILER = """
extern "C" int nvrtcVersion(int* major, int* minor) { return *major = VERSION, *minor = 0; }
static const int known[] = {KNOWN};
extern "C" int nvrtcGetNumSupportedArchs(int* to) { return *to = sizeof known / sizeof *known, 0; }
extern "C" int nvrtcGetSupportedArchs(int* to) {
    for (int number : known) *to++ = number;
    return 0;
}
"""
NVRTC_13, NVRTC_12 = (13, "121,120,90,75"), (12, "50,70,75,90")


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Install compilers that say which they are, for a machine with a GPU of an architecture and a driver's CUDA."""

    def install(architecture, cuda, *compilers):
        gpu = dataclasses.replace(CARDS[0], architecture=architecture, driver=f"CUDA {cuda}")
        monkeypatch.setattr(nvrtc, "gpus", lambda: ((gpu,), ""))
        monkeypatch.setenv(SWITCH, str(tmp_path))
        for version, known in compilers:
            (source := tmp_path / "nvrtc.cpp").write_text(COMPILER)
            target = tmp_path / f"libnvrtc.so.{version}"
            command = [*compiler_command(), "-shared", "-fPIC", f"-DVERSION={version}", f"-DKNOWN={known}"]
            subprocess.run([*command, str(source), "-o", str(target)], check=True)

    nvrtc.library.cache_clear()
    yield install
    nvrtc.library.cache_clear()


@needs_compiler
@pytest.mark.parametrize(
    ("architecture", "cuda", "compilers", "version", "why"),
    [
        ("sm_75", "13.1", [NVRTC_13, NVRTC_12], "13.0", ""),
        ("sm_75", "12.4", [NVRTC_13, NVRTC_12], "12.0", ""),
        ("sm_70", "13.1", [NVRTC_13, NVRTC_12], "12.0", ""),
        ("sm_75", "12.4", [NVRTC_13], "13.0", f"NVRTC 13.0 is newer than the driver (CUDA 12): {nvrtc.OLDER}, or"),
        ("sm_70", "13.1", [NVRTC_13], "13.0", f"compiles for sm_75 to sm_121, not for sm_70: {nvrtc.OLDER}"),
        ("sm_120", "13.1", [NVRTC_12], "12.0", f"compiles for sm_50 to sm_90, not for sm_120: {nvrtc.NEWER}"),
    ],
)
def test_the_compiler_that_suits_the_gpu_and_its_driver_is_taken(architecture, cuda, compilers, version, why, packages):
    packages(architecture, cuda, *compilers)
    assert nvrtc.version() == version
    said = nvrtc.unsuited(nvrtc.library())
    assert why in said and bool(why) == bool(said)


def test_without_a_compiler_its_extra_is_named(packages):
    """And setup.cfg has it, in the version of the tests."""
    packages("sm_75", "13.1")
    with pytest.raises(CudaError, match=r"NVRTC, is not here \(pip install 'adder-search\[gpu\]'\)"):
        nvrtc.version()
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = setup["options.extras_require"]
    assert extras["gpu"].strip() in extras["test"].splitlines()


def too_wide():
    """The presets that the page says have no seed that fits, by the cards of the table's row."""
    rows = re.findall(r"^\| ([\w, ]+) \| (\d+) \| ([\w, -]*) \|$", PAGE, re.MULTILINE)
    return {cards: (int(kilobytes), set(filter(None, names.split(", ")))) for cards, kilobytes, names in rows}


@needs_compiler
@pytest.mark.full
def test_the_page_says_which_kernels_have_no_seed_that_fits_into_a_card():
    words = {name: CudaBackend(preset(name), Recipe(), Emulator()).cuda_program.team_words for name in LARGEST.values()}
    by_program = {program: words[name] for program, name in LARGEST.items()}
    told = too_wide()
    for gpu in CARDS:
        ((kilobytes, names),) = (row for cards, row in told.items() if gpu.name in cards.split(", "))
        assert kilobytes << 10 == gpu.shared
        needed = {name: 4 * by_program[p] for name in PRESETS if (p := program_of(name))}
        assert {name for name, size in needed.items() if size > gpu.shared} == names, gpu.name
