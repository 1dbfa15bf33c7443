"""A bank that torch compiles uses one program a function, whatever its seeds, recipes, ages and slots."""

import pytest
import torch

from model import PRESETS, preset
from trainer import Bank, Pair, Recipe, Seed
from trainer.data.problems import selection
from trainer.engine.torch_backend import TorchBackend

SHAPE = {"steps": 2, "batch": 4, "eval_every": 1}
RECIPES = [
    Recipe(**SHAPE),
    Recipe(**SHAPE, lr=0.001, weight_decay=0.1, curriculum=((2, 1), (3, 1)), carry_mix=0.0),
    Recipe(
        **{**SHAPE, "steps": 1}, clip=0.1, fade_token=0.1, fade_token_end=0.2, wd_drop=0.5, mixed_lengths=1
    ),
]
PAIRS = [Pair(recipe, Seed(n, n + 7)) for n in range(2) for recipe in RECIPES]
BRANCHES = ("57p", "456p")  # a circle, and low rank; the others are traced by `make test-full`


@pytest.fixture
def graphs(monkeypatch):
    """How many graphs dynamo hands to its backend, which here runs them as they are."""
    count, whole = [], torch.compile

    def backend(graph, _inputs):
        count.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", lambda f, **options: whole(f, **{**options, "backend": backend}))
    monkeypatch.setattr("trainer.engine.torch_backend.selection", lambda: selection(64))
    torch._dynamo.reset()
    return count


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in BRANCHES else pytest.mark.full) for n in PRESETS]
)
def test_one_graph_for_each_program(name, graphs, tmp_path):
    """Six pairs of three recipes in four slots, two of which refill; on from half the way; and backwards."""
    bank = Bank(preset(name), PAIRS, slots=4, compiled=False)
    bank.programs = TorchBackend(preset(name), RECIPES[0], "cpu", compiled=True)
    bank.advance()
    bank.save(tmp_path / "bank.state")
    again, turned = (Bank(preset(name), pairs, slots=4, compiled=False) for pairs in (PAIRS, PAIRS[::-1]))
    assert again.load(tmp_path / "bank.state")
    again.programs = turned.programs = bank.programs
    for each in (bank, again, turned):
        while each.advance():
            pass
    for n, pair in enumerate(PAIRS):
        assert torch.equal(bank.result(n).curve_EM, again.result(n).curve_EM)
        assert torch.equal(bank.result(n).theta_P, turned.result(len(PAIRS) - 1 - n).theta_P)
        assert bank.result(n).steps == pair.recipe.steps
    assert len(graphs) == 4  # operands, tokens, train step, evaluation


def test_one_process_compiles_more_programs_than_dynamos_limit(graphs):
    """torch.compile keeps so many versions of one function; banks of many shapes must not share one."""
    with torch._dynamo.config.patch(recompile_limit=1):
        for batch in (2, 3, 4):
            programs = TorchBackend(preset("57p"), Recipe(batch=batch), "cpu", compiled=True)
            programs._tokens(*torch.ones(2, 1, 1, batch, dtype=torch.float64))
    assert len(graphs) == 3
