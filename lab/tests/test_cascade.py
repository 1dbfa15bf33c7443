"""A cascade: each stage begins, seed for seed, where the one before ended; killed and resumed it ends the same."""

import pytest
import torch

from model import preset
from search.run import worker
from search.study.ancestors import ancestors_of
from tests import by_tier
from tests.commands import call
from tests.homes import records_of
from tests.reference import rows_of, write_study
from tests.scenarios.studies import SHORT
from tests.scenarios.test_start import RECIPE, pulled, trained

pytestmark = pytest.mark.usefixtures("few_selection_problems", "no_ray", "quick", "here")

FROZEN = {"freeze": [[0, "arc", "norm[0,4]"]]}
STAGES = [
    {"name": "free"},
    {"name": "frozen", "recipe": FROZEN},
    {"model": {"base": "57p", "ties": ["z_hi[0] = 0"]}, "recipe": {"ramp": 4}},
]
NAMES = ["cascade.1-free", "cascade.2-frozen", "cascade.3"]
STUDY = SHORT | {"name": "cascade", "seeds": [1, 2, 3], "configurations": STAGES}


def run(here, study=STUDY, code=0, home="home", go_on="0"):
    return call("cascade", write_study(here, study), "--home", home, "--go-on", go_on, code=code).output


def test_each_seed_goes_on_from_its_own_theta_and_keeps_what_is_frozen(here):
    """And more seeds are another study."""
    said = run(here)
    assert [line for line in said.splitlines() if "trainable" in line] == [
        "cascade.1-free: 3 seeds; 57 numbers trainable, 57 with what is frozen",
        "cascade.2-frozen: 3 seeds; 53 numbers trainable, 57 with what is frozen",
        "cascade.3: 3 seeds; 56 numbers trainable, 56 with what is frozen",
    ]
    kept = [*preset("57p").layout.places("arc"), *preset("57p").layout.places("norm[0,4]")]
    for seed in (1, 2, 3):
        first = trained(preset("57p"), RECIPE, seed, None).theta_P
        second = trained(preset("57p"), RECIPE | FROZEN, seed, tuple(first.tolist())).theta_P
        found = [pulled(name, seed, f"{name}-{seed}") for name in NAMES]
        assert torch.equal(found[0].theta_P, first) and torch.equal(found[1].theta_P, second)
        assert torch.equal(second[kept], first[kept]) and not torch.equal(second, first)
        assert found[2].spec.params == 56
        lineage = ancestors_of(found[2])
        assert [step["study"] for step in lineage] == NAMES
        assert [step["seed"] for step in lineage[1:]] == [str(seed)] * 2
        assert lineage[2]["tied"] == ["z_hi[0] = 0"]
    error = run(here, STUDY | {"seeds": [1, 2, 3, 4]}, 2)
    assert "study cascade.2-frozen: was begun with other seeds; give the study a new name" in error


def thetas(home="home"):
    found = {}
    for name in NAMES:
        for configuration in records_of(home, name).list_configurations().values():
            found[name] = dict(configuration.start.thetas) if configuration.start else {}
        found[name, "rows"] = sorted(
            (r["init_seed"], r["outcome"], r["best_exact"]) for r in records_of(home, name).list_seeds()
        )
    return found


@pytest.mark.parametrize("call_number", by_tier([1, 2, 4], [2]))
def test_killed_and_resumed_it_ends_the_same(here, monkeypatch, call_number):
    """Killed in each stage in turn."""
    run(here, home="other")
    calls, train = [], worker.work

    def dies(*started):
        calls.append(started)
        if len(calls) == call_number:
            raise KeyboardInterrupt
        return train(*started)

    with monkeypatch.context() as patch:
        patch.setattr(worker, "work", dies)
        run(here, code=130)
    assert len(calls) == call_number
    run(here)
    assert thetas() == thetas("other") and all(thetas()[name] for name in NAMES[1:])
    monkeypatch.setattr(worker, "work", lambda *_: pytest.fail("what is done is not trained again"))
    run(here)


def test_only_what_holds_goes_on(here):
    exact = {seed: trained(preset("57p"), RECIPE, seed, None).best_exact for seed in STUDY["seeds"]}
    middle = sorted(exact.values())[1]
    some = STUDY | {"name": "some", "configurations": [{}, {"recipe": FROZEN}]}
    run(here, some, go_on=middle)
    wanted = sorted(s for s, e in exact.items() if e >= middle)
    assert sorted(r["init_seed"] for r in rows_of("home", "some.2")) == wanted
    none = STUDY | {"name": "none", "configurations": [{}, {"recipe": FROZEN}]}
    assert "none: no seed goes on to stage 2, none.2" in run(here, none, go_on="grokked")
    assert rows_of("home", "none.2") == []


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"until": {"grokked": 1, "max_seeds": 8}}, "a cascade is a list of configurations"),
        ({"seeds": {"init": [1], "data": [2, 3]}}, "crossed seeds make no cascade"),
    ],
)
def test_a_bad_one_is_told(here, change, line):
    assert line in run(here, STUDY | change, 2)
