"""A run of several stages is trained again from its first step."""

import dataclasses
from pathlib import Path

import pytest

from model import preset
from model.tied import constrained, project, tie
from model.transfer import transfer
from search.run.rerun import read_request, train_again
from tests import needs_compiler
from tests.banks import SMALL, finish
from tests.commands import call
from trainer import Bank, Pair, Recipe, Seed
from trainer.checkpoints.checkpoint import Checkpoint

pytestmark = pytest.mark.usefixtures("few_selection_problems", "here")
# Too high a learning rate: no seed's last θ is its best.
RECIPE = Recipe(**{**SMALL, "steps": 24, "eval_every": 4, "warmup": 0, "lr": 0.2})


def in_stages():
    """Return the checkpoint of one run in three stages: 54p, 46p with a tie, a form with a constraint more."""
    wide, base = preset("54p"), preset("46p")
    form = dataclasses.replace(base, opposite_out=True)
    tied = {spec: tie(spec, constrained(spec, ["fc1[0,3] = 0"])) for spec in (base, form)}
    ramp = dataclasses.replace(RECIPE, ramp=8)
    entries = [n for n in range(base.params) if n != base.layout.places("out_B")[0]]
    seed, theta_P = Seed(4, 5), None

    def train(spec, recipe, ties=None):
        start = None if theta_P is None else tuple(theta_P.tolist())
        bank = Bank(spec, [Pair(recipe, seed, start, ties)])
        return finish(bank).result(0)

    theta_P = transfer(wide, train(wide, RECIPE).theta_P, base).theta_Q
    theta_P = train(base, RECIPE, tied[base].ties).theta_P[entries]
    result = train(form, ramp, tied[form].ties)
    stages = [
        {"spec": wide.as_dict(), "recipe": RECIPE.as_dict()},
        {"spec": tied[base].as_dict(), "recipe": RECIPE.as_dict(), "entries": entries},
    ]
    return Checkpoint(
        spec=tied[form],
        theta_P=project(tied[form].ties, result.theta_P[None])[0],
        recipe=ramp.as_dict(),
        seed=dataclasses.asdict(seed),
        step=result.best_step,
        provenance={"trained": "from scratch", "stages": stages, "environment": {"compiled": True}},
    )


@needs_compiler
def test_one_run_in_stages_is_trained_from_its_first_step():
    staged, steps = in_stages(), []
    assert train_again(staged, read_request(staged), steps.append).same
    assert steps[-1] == 2 * RECIPE.steps + staged.step and sorted(steps) == steps
    staged.save(Path("trained"))
    head = call("rerun", "trained").stdout.splitlines()[0]
    assert head == f"trained: seed 4.5 trained again to step {staged.step} of the last of 3 stages"
    first, second = staged.provenance["stages"]
    shorter = [first | {"recipe": first["recipe"] | {"steps": 20}}, second]
    other = dataclasses.replace(staged, provenance=staged.provenance | {"stages": shorter})
    assert not train_again(other, read_request(other)).same
