"""`run` where a declared GPU fails, hangs or computes wrongly: one line is said, and the results are the CPU's."""

import ctypes

import pytest

from tests.commands import call
from tests.reference import QUICK, check_whole, expected, write_study
from tests.standin import standin_folder
from trainer.engine.cuda import check, driver, guard, nvrtc

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("few_selection_problems", "no_ray", "here")]
STUDY = QUICK | {
    "name": "broken",
    "recipe": QUICK["recipe"] | {"steps": 160},
    "seeds": {"first": 5, "count": 1},
}
IN_TEST = "the CUDA engine failed its test on Stand-in: "
FAILED = "cuLaunchKernel failed (CUDA_ERROR_LAUNCH_FAILED)"


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    return standin_folder(tmp_path_factory.mktemp("cuda"))


@pytest.mark.parametrize(
    ("how", "after", "gpu", "why"),
    [
        ("hang at once", 0, "auto", "CUDA's driver did not answer in 2 s"),
        ("hang", 0, 1, f"{IN_TEST}no end of a test in 5 s"),
        ("error", 0, 1, IN_TEST + FAILED),
        ("error", 5, 1, FAILED),
        ("hang", 5, 1, "Stand-in did not answer in 20 s"),
        ("wrong", 5, 1, "the CUDA engine gave other bits on Stand-in (within 20 steps, slot 0, state[0])"),
    ],
)
def test_a_study_ends_well(how, after, gpu, why, libraries, here, monkeypatch, caplog):
    monkeypatch.setenv(driver.SWITCH, str(libraries))
    monkeypatch.setenv("STANDIN", how)
    monkeypatch.setenv("STANDIN_AFTER", str(after))
    for verdict in (check.cache_folder() / "cuda").glob("*.json"):  # of another test
        verdict.unlink()
    monkeypatch.setattr(driver, "ANSWER_S", 2.0 if how == "hang at once" else 60.0)
    monkeypatch.setattr(check, "TEST_S", 5.0 if (how, after) == ("hang", 0) else 900.0)
    monkeypatch.setattr(guard, "LONGEST_S", 20.0)
    for cached in (driver.gpus, nvrtc.library):
        cached.cache_clear()
    ctypes.c_int.in_dll(ctypes.CDLL(str(libraries / "libcuda.so.1")), "launches").value = 0
    study = STUDY | {"resources": QUICK["resources"] | {"gpu": gpu, "compiled": True}}
    try:
        result = call("run", write_study(here, study), "--home", "home")
    finally:
        for cached in (driver.gpus, nvrtc.library):
            cached.cache_clear()
    assert result.exit_code == 0, result.output
    lines = [r.getMessage() for r in caplog.records if r.name.startswith("search")]
    lines += [line.partition(": ")[2] for line in result.output.splitlines() if "CPU engine" in line]
    assert lines == [f"{why}; training by the CPU engine"]
    monkeypatch.setenv(driver.SWITCH, "off")
    check_whole(here / "home", study, here, expected(study))
