"""Every rung's bank uses one program a function, whatever its seeds, recipes, ages and slots."""

import pytest
import torch

from model import RUNGS, rung
from trainer import Bank, Pair, Recipe, Seed
from trainer.problems import selection
from trainer.programs import missing_for_compilation

SHAPE = {"steps": 2, "batch": 4, "eval_every": 1}
RECIPES = [
    Recipe(**SHAPE),
    Recipe(**SHAPE, lr=0.001, weight_decay=0.1, curriculum=((2, 1), (3, 1)), carry_mix=0.0),
    Recipe(
        **{**SHAPE, "steps": 1}, clip=0.1, fade_token=0.1, fade_token_end=0.2, wd_drop=0.5, mixed_lengths=1
    ),
]
PAIRS = [Pair(recipe, Seed(n, n + 7)) for n in range(2) for recipe in RECIPES]


def train(spec, folder):
    """Six pairs of three recipes in four slots, two of which refill; on from half the way; and backwards."""
    bank = Bank(spec, PAIRS, slots=4)
    bank.advance()
    bank.save(folder / "bank.state")
    while bank.advance():
        pass
    again = Bank(spec, PAIRS, slots=4, compiled=False)
    again.programs = bank.programs
    assert again.load(folder / "bank.state")
    while again.advance():
        pass
    turned = Bank(spec, PAIRS[::-1], slots=4, compiled=False)  # other slots, other neighbours
    turned.programs = bank.programs
    while turned.advance():
        pass
    for n in range(len(PAIRS)):
        assert torch.equal(bank.result(n).curve_EM, again.result(n).curve_EM)
        assert torch.equal(bank.result(n).theta_P, turned.result(len(PAIRS) - 1 - n).theta_P)
        assert bank.result(n).steps == PAIRS[n].recipe.steps


@pytest.fixture(autouse=True)
def few_selection_problems(monkeypatch):
    monkeypatch.setattr("trainer.programs.selection", lambda: selection(64))


@pytest.fixture
def graphs(monkeypatch):
    """How many graphs dynamo hands to its backend, which here runs them as they are."""
    count, whole = [], torch.compile

    def backend(graph, _inputs, options):
        count.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", lambda f, **options: whole(f, **{**options, "backend": backend}))
    return count


@pytest.mark.parametrize("name", RUNGS)
def test_one_graph_for_each_program(name, graphs, tmp_path):
    torch._dynamo.reset()
    train(rung(name), tmp_path)
    assert len(graphs) == 4  # operands, tokens, train step, evaluation


@pytest.mark.compiled
@pytest.mark.skipif(bool(missing_for_compilation()), reason=f"needs {missing_for_compilation()}")
@pytest.mark.parametrize("name", ["57p", pytest.param("170p", marks=pytest.mark.full), "456p"])
def test_inductor_compiles_once(name, tmp_path):
    torch._dynamo.reset()
    with torch._dynamo.config.patch(error_on_recompile=True):
        train(rung(name), tmp_path)
