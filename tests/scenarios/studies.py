"""Studies of seconds that the scenarios run, and how."""

from tests.commands import call
from tests.reference import QUICK, check_whole, expected, write_study
from trainer import Seed
from trainer.bank.tracker import SeedTracker

RECIPE = {"steps": 16, "batch": 8, "eval_every": 4, "warmup": 2, "fade_start": 2, "fade_end": 6, "hold": 4}
BY_ENGINE = QUICK["resources"] | {"compiled": True}
SHORT = QUICK | {"recipe": RECIPE | {"steps": 8}, "resources": BY_ENGINE}
"""Four seeds in two trials."""
SWEEP = QUICK | {"recipe": RECIPE, "seeds": {"first": 1, "count": 12}}
SWEEP |= {"resources": BY_ENGINE | {"slots": 2, "seeds_per_trial": 2}}
MIXED = SWEEP | {
    "configurations": [{"recipe": {"steps": 16}}, {"recipe": {"steps": 8}}],
    "seeds": {"first": 1, "count": 5},
}
"""Seeds of different lengths: a trial begins beside the last seed of the one before."""
SPECS = SWEEP | {
    "configurations": [{"model": name} for name in ("57p", "67p", "456p")],
    "seeds": {"first": 1, "count": 2},
}
"""Three programs."""
UNTIL = SWEEP | {"name": "until", "seeds": {"first": 1, "count": 4}, "until": {"grokked": 1, "max_seeds": 20}}
SCREENED = SWEEP | {
    "name": "screened",
    "seeds": {"first": 1, "count": 8},
    "stop": {"hopeless": False, "screen": {"at": 8, "keep": {"odd": 0.9}}},
}
GRID = SWEEP | {
    "name": "grid",
    "seeds": [5],
    "space": {"recipe.lr": {"choice": [0.01, 0.02]}},
    "sampler": {"name": "grid"},
    "resources": BY_ENGINE | {"seeds_per_trial": 1},
    "faults": {"max_failures": 0},
}
NARROW = {"steps": 8, "ramp": 4}
STAGES = [
    {"name": "wide", "model": {"preset": "67p", "hidden": 4}, "recipe": {"steps": 8}, "enough": 0},
    {"name": "two", "keep": {"units": 2}, "tries": 2, "recipe": NARROW, "longer": {}, "enough": 0},
    {"name": "tied", "into": "57p", "recipe": NARROW},
]
STRICT = [STAGES[0] | {"enough": 0.9}, *STAGES[1:]]
STAGED = SWEEP | {
    "name": "staged",
    "recipe": RECIPE | {"hold": 0, "steps": 1_000},
    "configurations": [{"recipe": {"stages": STAGES}}, {"recipe": {"stages": STRICT}}],
    "seeds": {"first": 1, "count": 3},
}
"""Seeds through several stages, of which some are lost on the way."""


def run(study, here, *options, code=0):
    return call("run", write_study(here, study), *options, "--home", "home", code=code)


def run_whole(study, here):
    """Run a study to its end here, and compare its records with uninterrupted training. Returns what was said."""
    said = run(study, here)
    check_whole(here / "home", study, expected(study))
    return said


def let_seed_7_grok(patch):
    """Make seed 7 perfect from step 8 on."""
    whole = SeedTracker.record_evaluation

    def record_evaluation(self, pair_L, step_L, measures_LM, *rest):
        lucky = [self.pairs[n].seed == Seed.of(7) for n in pair_L.tolist()]
        for i in (i for i, is_seven in enumerate(lucky) if is_seven and int(step_L[i]) >= 8):
            measures_LM[i, 0] = 1.0
        return whole(self, pair_L, step_L, measures_LM, *rest)

    patch.setattr(SeedTracker, "record_evaluation", record_evaluation)
