"""The compiled programs do what the eager ones do. One shape, so that it is compiled once."""

import pytest
import torch

from model import rung
from tests.golden import golden_theta
from trainer import Bank, Pair, Recipe, Seed
from trainer.problems import selection
from trainer.programs import missing_for_compilation

pytestmark = [
    pytest.mark.compiled,
    pytest.mark.skipif(bool(missing_for_compilation()), reason=f"needs {missing_for_compilation()}"),
]
SPEC, SLOTS = rung("57p"), 8
RECIPE = Recipe(steps=40, batch=256, eval_every=20, warmup=20, curriculum=((3, 15),))


@pytest.fixture(scope="module")
def programs():
    return Bank(SPEC, [Pair(RECIPE, Seed.of(s)) for s in range(SLOTS)], compiled=True).programs


def make(seeds, programs=None, **recipe):
    """A bank of this shape on given programs, by default its own eager ones."""
    pair_recipe = Recipe(**{**RECIPE.as_dict(), **recipe})
    bank = Bank(SPEC, [Pair(pair_recipe, Seed.of(s)) for s in seeds], slots=SLOTS, compiled=False)
    bank.programs = programs or bank.programs
    return bank


def finish(bank):
    while bank.advance():
        pass
    return bank


@pytest.fixture(scope="module")
def eight(programs):
    return finish(make(range(8), programs)).state["theta"]


@pytest.mark.parametrize(
    "seeds",
    [[7, 6, 5, 4, 3, 2, 1, 0], [3, 90, 0, 91], [5]],
    ids=["other slots", "other neighbours", "short bank"],
)
def test_theta_is_bitwise_the_same_in_any_company_and_slot(programs, eight, seeds):
    theta = finish(make(seeds, programs)).state["theta"]
    common = [(slot, seed) for slot, seed in enumerate(seeds) if seed < 8]
    assert common and all(torch.equal(theta[slot], eight[seed]) for slot, seed in common)


def test_a_diverged_neighbour_changes_nothing(programs, eight):
    bank = make(range(8), programs)
    bank.state["theta"][3] = torch.nan
    finish(bank)
    assert bank.result(3).outcome == "diverged"
    others = [0, 1, 2, 4, 5, 6, 7]  # they have moved up: live slots come first
    assert torch.equal(bank.state["theta"][:7], eight[others])


def test_training_losses_are_the_eager_ones(programs):
    eager, compiled = make(range(8)), make(range(8), programs)
    tokens_KSTB = eager.programs.make_block(eager.state, eager.hyper)
    for tokens_STB in tokens_KSTB:
        eager.state, expected = eager.programs.train_step(eager.state, eager.hyper, tokens_STB)
        compiled.state, loss = programs.train_step(compiled.state, compiled.hyper, tokens_STB)
        torch.testing.assert_close(loss, expected, rtol=1e-3, atol=1e-3)
    assert len(tokens_KSTB) == 20 and compiled.state["step"].tolist() == [20] * 8
    assert (compiled.state["theta"] - make(range(8)).state["theta"]).abs().max() > 0.01


@pytest.mark.parametrize("at", [0, 20_000, 50_000])
def test_problems_are_the_eager_ones_bit_for_bit(programs, at):
    bank = make([777, 0, 1, 1 << 40, 2, 3, 4, 5], steps=60_000)
    bank.state["step"] += at
    expected = bank.programs.make_block(bank.state, bank.hyper)
    assert torch.equal(programs.make_block(bank.state, bank.hyper), expected)


def test_evaluation_is_the_eager_one(programs):
    bank = finish(make(range(8)))
    expected = bank.programs.evaluate(bank.state["theta"])
    for name, measured in programs.evaluate(bank.state["theta"]).items():
        torch.testing.assert_close(measured, expected[name], rtol=1e-4, atol=3e-4)


def test_a_perfect_model_measures_exactly_one(programs):
    """Grokking is `exact == 1.0`: the mean of 5,000 ones must not be rounded."""
    _, theta = golden_theta("57p")
    spoilt = torch.cat([theta[None], theta.repeat(SLOTS - 1, 1) * 1.05])
    exact = programs.evaluate(spoilt)["exact"]
    assert exact[0] == 1.0 and (exact[1:] < 1.0).all()


def test_nothing_is_compiled_again(programs):
    """Refilled slots, idle slots, other recipes: one shape, one program."""
    with torch._dynamo.config.patch(error_on_recompile=True):
        before = dict(torch._dynamo.utils.counters["stats"])
        for recipe in (
            {},
            {"lr": 0.001, "clip": 0.1, "wd_drop": 0.5},
            {"curriculum": ((2, 5),), "carry_mix": 0.0},
        ):
            bank = finish(make(range(11), programs, **recipe))
            assert recipe or {bank.result(n).steps for n in range(11)} == {40}
        assert torch._dynamo.utils.counters["stats"] == before


def test_a_saved_state_goes_on_bit_for_bit_without_compiling_again(programs, eight, tmp_path):
    first = make(range(8), programs)
    first.advance()
    first.save(tmp_path / "bank.state")
    again = make(range(8), programs)
    assert again.load(tmp_path / "bank.state")
    with torch._dynamo.config.patch(error_on_recompile=True):
        assert torch.equal(finish(again).state["theta"], eight)


def test_torchs_table_of_dtypes_is_filled_once(programs, monkeypatch):
    from torch._inductor.dtype_propagation import DtypePropagationOpsHandler as Handler

    rule = Handler().add
    assert Handler().add is rule
    monkeypatch.setattr(Handler, "__init__", Handler.__init__.__wrapped__)
    assert Handler().add is not rule, "torch does so itself by now: initialise_once can go"


def test_one_process_compiles_more_programs_than_dynamos_limit(monkeypatch):
    """torch.compile keeps eight versions of one function; banks of many shapes must not share one."""
    whole = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **options: whole(f, backend="eager", **options))
    monkeypatch.setattr("trainer.programs.selection", lambda: selection(64))
    recipe = Recipe(steps=1, eval_every=1, batch=2)
    for slots in range(1, 4):
        Bank(rung("262p"), [Pair(recipe, Seed.of(1))], slots=slots)
