"""Branches of lab/2026-11-29-small: the bits of one study with all stages."""

import dataclasses
import sys

import pytest
import torch

from lab.plans import LAB
from trainer import Pair, Seed
from trainer.recipe.stages import end_of, road_of
from trainer.road import RoadBank

pytestmark = pytest.mark.usefixtures("few_selection_problems")


def shortened(stage, n):
    """A stage of few steps, which hands on whatever it has."""
    ramp = {"ramp": 500} if n else {}
    short = {"steps": 1_000, "fade_start": 500, "fade_end": 1_000, **ramp}
    longer = {"steps": 2_000} if n else {}
    return {**stage, "enough": 0, "recipe": {**stage["recipe"], **short}, "longer": longer}


@pytest.mark.full
def test_a_branch_has_the_bits_of_one_study_with_all_stages(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(LAB / "2026-11-29-small"), *sys.path])
    import small

    stages = tuple(shortened(dict(stage), n) for n, stage in enumerate(small.TO_57.stages))
    monkeypatch.setattr(small, "SEEDS", (960_001, 960_003))
    monkeypatch.setattr(small, "TO_57", dataclasses.replace(small.TO_57, stages=stages))
    monkeypatch.setattr(small, "BRANCHES", {"7": [shortened(small.into("7p", 1_000), 1)]})
    small.recipe_of.cache_clear()
    branch = small.travel(tmp_path, "7")
    recipe = small.recipe_of("7")
    whole = RoadBank(end_of(road_of(recipe)), [Pair(recipe, Seed.of(seed)) for seed in small.SEEDS])
    while whole.advance():
        pass
    for n in range(2):
        ours, wanted = branch.result(n), whole.result(n)
        assert torch.equal(ours.theta_P, wanted.theta_P) and ours.stages == wanted.stages
        assert ours.steps == wanted.steps > 10_000
