"""`adder-search rerun`: whether training the same pair again gives the same θ."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from search import plugins
from search.run import rerun as module
from search.run.rerun import read_request, train_again
from search.run.worker import environment_of
from search.study.resources import Resources
from search.study.trial import Configuration
from tests import CERTIFICATES, needs_compiler
from tests.banks import SMALL, SPEC, finish, make
from tests.commands import call, fails_with_one, says
from trainer import Recipe, Seed
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.engine.build import denormals
from trainer.files.installed import missing_for_compilation

pytestmark = pytest.mark.usefixtures("few_selection_problems", "here")
SLOTS, EAGER = 3, Resources(cpu=1, compiled=False)
EAGER_ONE = {"threads": 1, "slots": 3, "compiled": False}
# Too high a learning rate: no seed's last θ is its best.
RECIPE = Recipe(**{**SMALL, "steps": 24, "eval_every": 4, "warmup": 0, "lr": 0.2})


@pytest.fixture(scope="module")
def trained(few_selection_problems):
    """By torch's programs, eager."""
    return made(EAGER)


@pytest.fixture(scope="module")
def by_engine(few_selection_problems):
    if missing := missing_for_compilation():
        pytest.skip(f"needs {missing}")
    return made(Resources(cpu=1))


def made(resources, recipe=RECIPE):
    """The checkpoint of the last of four seeds; in a bank of three slots it had to wait for one."""
    configuration = Configuration(SPEC, recipe)
    pairs = [configuration.pair(Seed(n, n + 1)) for n in (4, 5, 6, 7)]
    bank = finish(make(pairs, SLOTS, compiled=resources.compiled))
    result = bank.result(3)
    assert (0 < result.best_step < recipe.steps) == (recipe is RECIPE)
    return Checkpoint(
        spec=SPEC,
        theta_P=result.theta_P.clone(),
        recipe=recipe.as_dict(),
        seed=asdict(result.pair.seed),
        step=result.best_step,
        provenance={"trained": "from scratch", "environment": environment_of(bank, resources)},
    )


@pytest.mark.parametrize("names", [None, {}, {"denormals": "0"}, {"denormals": "\0", "engine": []}])
def test_denormal_numbers_are_kept_unless_the_checkpoint_says_otherwise(names, trained, monkeypatch):
    """Those of before 2026-11-26 say nothing of them, or have no environment at all; a stranger's may say anything."""
    provenance = {"trained": "from scratch"} | ({} if names is None else {"environment": EAGER_ONE | names})
    checkpoint, seen = replace(trained, provenance=provenance), []
    monkeypatch.setattr(module, "_compare", lambda *given: seen.append(denormals()))
    train_again(checkpoint, read_request(checkpoint))
    assert seen == ["0" if names and "denormals" in names else "kept"]


def rerun(checkpoint, *words):
    checkpoint.save(Path("trained"))
    return call("rerun", "trained", *words)


@needs_compiler
def test_what_was_finished_is_finished_again(monkeypatch):
    """Whatever curvature makes of it, here another trained θ: it is made of the last θ, and not left out."""
    better_P = Checkpoint.load(CERTIFICATES / "57p").theta_P
    monkeypatch.setattr("trainer.bank.bank.finish", lambda *given: better_P.clone())
    finished = made(Resources(cpu=1), replace(RECIPE, finish_above=0.0))
    assert finished.step == RECIPE.steps and torch.equal(finished.theta_P, better_P)
    assert "θ is bitwise the same" in rerun(finished).stdout
    monkeypatch.setattr("trainer.bank.bank.finish", lambda *given: better_P * 1.001)
    assert "nothing that is recorded of the environment explains it" in rerun(finished).stdout
    environment = finished.provenance["environment"]
    for how in ({}, {"finish": "torch"}, {"finish": []}):
        then = {name: value for name, value in environment.items() if name != "finish"} | how
        said = rerun(replace(finished, provenance=finished.provenance | {"environment": then})).stdout
        assert "torch finished it, as all seeds until 2026-11-28: it rounds as the machine does" in said
        assert f"finish: {how.get('finish', 'torch')} then, engine here" in said
        assert "nothing that is recorded" not in said


def test_the_same_pair_gives_the_same_theta(trained):
    result = rerun(trained)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        f"trained: seed 7.8 trained again to step {trained.step}",
        "  θ is bitwise the same, all 57 numbers",
    ]


def test_one_number_that_differs_is_told_with_its_place(trained):
    parts = SPEC.layout.split(trained.theta_P[None].clone())
    name = SPEC.layout.names[-1]
    parts[name].flatten()[0] += 0.25
    theta_P = SPEC.layout.join({n: t[0] for n, t in parts.items()})
    result = rerun(replace(trained, theta_P=theta_P))
    assert result.exit_code == 1
    assert f"  θ is not the same: 1 of 57 numbers differ, by 0.25 at most (in {name})" in result.stdout
    assert "  exact match 0.0000, trained again 0.0000" in result.stdout
    assert "  nothing that is recorded of the environment explains it" in result.stdout


def test_bits_are_compared_and_not_values(trained, monkeypatch):
    """0 and -0 are the same number."""
    zero_P = torch.zeros_like(trained.theta_P)
    monkeypatch.setattr(module, "own_numbers", lambda result: replace(result, theta_P=zero_P))
    again = train_again(replace(trained, theta_P=-zero_P), read_request(trained))
    assert not again.same and again.numbers_different == 57 and again.largest_difference == 0


def test_an_environment_that_a_stranger_made_up_is_compared_as_it_is(trained):
    provenance = trained.provenance | {"environment": trained.provenance["environment"] | {"engine": []}}
    assert "  θ is bitwise the same" in rerun(replace(trained, provenance=provenance)).stdout


def test_what_the_engine_trained_compares_across_machines(by_engine):
    elsewhere = {"cpu": "NEON", "device": "aarch64", "threads": 100_000, "slots": 1_000}
    provenance = by_engine.provenance | {"environment": by_engine.provenance["environment"] | elsewhere}
    result = rerun(replace(by_engine, provenance=provenance), "--json")
    found = json.loads(result.stdout)
    assert (found["same"], result.exit_code, found["differs"]) == (True, 0, {})
    assert found["environment"]["engine"] == "native" and found["environment"]["cpu"] != "NEON"


MADE_BY = {"46p": "fold", "28p-finished": "finish", "6p": "compress"}
REFUSED = {
    "no recipe": ({"recipe": {}}, "it has no recipe"),
    "recipe": ({"recipe": {"lr": -1.0}}, "recipe: lr *"),
    "fit": (
        {"recipe": RECIPE.as_dict() | {"ramp": 4, "recycle_every": 4, "recycle_unless": [["token", 1.0]]}},
        "recycle_every does not go with ramp",
    ),
    "no seed": ({"seed": {"init_seed": 3}}, "it has no seed"),
    "step": ({"step": 15}, "step 15 is none at which its recipe evaluates"),
    "stages": (
        {"provenance": {"trained": "from scratch", "stages": [{"spec": {"family": "split_subspace"}}]}},
        "its provenance has a stage that cannot be trained: 'recipe'",
    ),
    "start": (
        {"provenance": {"trained": "from a parent", "start": {"spec": {"family": "rope"}, "theta": [10**400]}}},
        "its provenance has no start: *",
    ),
    "slots": (
        {"provenance": {"trained": "from scratch", "environment": {"slots": "x"}}},
        "its environment's threads, slots or compiled are impossible",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_trained_again(case, trained):
    changes, expected = REFUSED[case]
    replace(trained, **changes).save(Path("trained"))
    line = fails_with_one(2, "rerun", "trained")
    is_known = case != "stages" or "stages" in plugins.added(plugins.PARTS)
    assert says(
        line, f"trained: cannot be trained again: {expected}" if is_known else "rerun of * needs the research *"
    )


def test_checkpoints_that_nobody_trained_here():
    for name, why in (
        ("34p-by-hand", "its provenance does not say that it was trained from scratch, or from which θ"),
        *((n, f"made by {m}; only what a run trained can be trained again") for n, m in MADE_BY.items()),
    ):
        assert fails_with_one(2, "rerun", CERTIFICATES / name).endswith(f"cannot be trained again: {why}")
