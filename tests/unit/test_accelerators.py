"""The door for kinds of GPU: a stranger's is asked, priced and trained on; without any the CPU trains, in one line."""

from contextlib import nullcontext
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest

from search.errors import UserError
from search.run.estimate import estimate
from search.run.packing import check_resources, local_resources, placement_of
from search.store.home import Home
from search.study.file import parse_study
from search.study.resources import Resources
from tests import needs_compiler
from tests.banks import SPEC, pair
from tests.unit.test_packing import MANY, slots
from trainer import Bank
from trainer.engine import accelerators
from trainer.engine.accelerators import MISSING, NEEDED, Price, accelerator, device, installed
from trainer.engine.native import EngineBackend

PRICE = Price(100, 1e-3, 0.5, 4, "57p", "as measured of {} on a Metal", ("one card", "another"))


class MetalEngine(EngineBackend):
    name = "metal"


def metal(is_here=True):
    """A kind of GPU with two cards, of which each trains a hundred seeds at once."""
    return SimpleNamespace(
        is_declared=lambda: is_here, count=lambda: 2, remark=lambda share: f"a share of {share}", backend=MetalEngine,
        price=lambda spec: PRICE, sharing=lambda: "Crowds", side_by_side=lambda *_: nullcontext({}),
        end=lambda session: None,
    )  # fmt: skip


@pytest.fixture
def kinds(monkeypatch):
    """Install kinds of GPU by name, in place of others."""
    return lambda **by_name: monkeypatch.setattr(accelerators, "installed", lambda: by_name)


@needs_compiler
@pytest.mark.usefixtures("few_selection_problems")
def test_a_strangers_kind_trains(kinds, caplog):
    kinds(metal=metal())
    assert device() == "metal" and local_resources()["GPU"] == 2
    assert Bank(SPEC, [pair(3)], device=device()).backend.name == "metal"
    assert Bank(SPEC, [pair(3)]).backend.name == "native" and not caplog.records


def test_the_kind_that_is_here_comes_before_the_first(kinds):
    absent, here = metal(is_here=False), metal()
    kinds(cuda=absent, metal=here)
    assert accelerator() is here and device() == "metal"
    kinds(cuda=absent)
    assert accelerator() is absent and device() == "cpu", "its prices are in a plan"


@pytest.mark.parametrize(("seeds", "share"), [(10_000, 1.0), (3, 0.0)])
def test_its_price_says_whether_it_is_faster_and_how_many_seeds_it_gets(seeds, share, kinds):
    kinds(metal=metal())
    study = parse_study(MANY.replace("count: 70", f"count: {seeds}"), "test")
    node = {"CPU": 4.0, "GPU": 2.0}
    assert placement_of(study, node, side_by_side=True)[0]["GPU"] == share
    assert slots(study, 2, gpu=1) == min(100, -(-seeds // 2))


def test_a_price_counts_waves_and_banks():
    assert [PRICE.slots(share) for share in (2, 1, 0.25, 0.001)] == [100, 100, 25, 1]
    assert PRICE.time_s(100) == 1e-3 and PRICE.time_s(101) == 2e-3
    assert PRICE.rate(100) == 2 * PRICE.rate(100, 0.25, side_by_side=True) == 4 * PRICE.rate(100, 0.25)


def test_a_plan_has_its_words(kinds, tmp_path):
    kinds(metal=metal())
    plan = estimate(parse_study(MANY + "resources: {gpu: 0.5}\n", "test"), Home(tmp_path / "runs"))
    for words in ("  on a GPU        one card\n", "on the GPU, 2 banks side by side by Crowds", "of 57p on a Metal)"):
        assert words in plan, plan
    assert plan.endswith("a share of 0.5") and check_resources(Resources()) == "a share of None"
    assert check_resources(Resources(gpu=0)) is None


def test_without_any_the_cpu_trains_in_one_line(kinds, caplog, tmp_path):
    kinds()
    assert accelerator() is MISSING and device() == "cpu" and local_resources()["GPU"] == 0
    assert Bank(SPEC, [pair(3)], device="cuda").backend.name == "native"
    assert [r.getMessage() for r in caplog.records] == [f"a GPU needs {NEEDED}; training by the CPU engine"]
    assert "GPU " not in estimate(parse_study(MANY, "test"), Home(tmp_path / "runs"))
    assert check_resources(Resources()) is None is check_resources(Resources(gpu=0))


@pytest.mark.parametrize("cluster", ["", "somewhere:6379"])
def test_a_study_that_asks_for_a_gpu_is_refused_where_no_package_has_one(cluster, kinds, monkeypatch):
    kinds()
    monkeypatch.setenv("RAY_ADDRESS", cluster)
    with pytest.raises(UserError, match=r"^resources\.gpu needs a package that trains on GPUs \(adder_search\."):
        check_resources(Resources(gpu=0.25))


def test_a_package_that_cannot_be_imported_is_left_out(monkeypatch, caplog):
    broken = EntryPoint("metal", "adder_gone.door", accelerators.ACCELERATORS)
    monkeypatch.setattr(accelerators, "points", lambda group: {"metal": broken})
    assert installed.__wrapped__() == {}
    (said,) = (record.getMessage() for record in caplog.records)
    assert said == "metal: adder_gone.door cannot be imported: ModuleNotFoundError: No module named 'adder_gone'"
