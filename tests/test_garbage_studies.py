"""Garbage for study files, as tests/unit/test_garbage.py has it for checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import strategies as st

from search.errors import UserError
from search.study.file import parse_study, shipped_studies
from search.study.schema import Study
from tests.garbage import (
    BITES,
    NESTED,
    SHARES,
    VALUES,
    Raw,
    as_yaml,
    check_lines,
    complaint,
    damaged,
    feed,
)

pytestmark = pytest.mark.usefixtures("here")

WHOLE = yaml.safe_load(
    """
    {name: x, about: a b, model: {rung: 57p, qk_dim: 4, tie_qk: false}, seeds: {first: 1, count: 3},
     recipe: {steps: 100, batch: 8, eval_every: 10, lr: 0.02, curriculum: [[3, 10], [6, 20]], fade_start: 10,
       fade_end: 20},
     space: {recipe.lr: {float: [0.01, 0.1], log: true}, recipe.warmup: {int: [1, 9], step: 2},
       model.tie_vo: {choice: [true, false]}, recipe.fade_end: {int: [1, 9], after: recipe.fade_start},
       recipe.clip: {choice: [0.5, 1.0], when: {model.tie_vo: [true]}}},
     sampler: {name: tpe, configurations: 3, seed: 1, objectives: [grok_rate]},
     until: {}, stop: {hopeless: true}, allocation: {threshold: 0.2, most: 8, budget: 99},
     confirm: {configurations: 2, seeds: {init: [100, 101], data: [102]}},
     resources: {cpu: 1, gpu: 0.25, slots: 2, seeds_per_trial: 4, compiled: false, save_every: 1}}
    """
)
LISTED = yaml.safe_load(
    """
    {name: y, model: 57p, seeds: [1, 2, 5], until: {grokked: 1, max_seeds: 9},
     configurations: [{recipe: {lr: 0.01}}, {model: 67p}, {model: {qk_dim: 5}, recipe: {batch: 16}}],
     toggle: [tie_vo, qk_dim=4], recipe: {steps: 100, eval_every: 10}, tracking_uri: "http://127.0.0.1:5000"}
    """
)
SNIPPETS = st.sampled_from(
    ["!!python/object/apply:os.system [touch made]", "!!python/name:os.system", "&a [*a]", "*a", "<<: {a: 1}",
     "!!binary aGk=", "!!set {a, b}", "!!timestamp 2020-01-01", "1" + ":59" * 3_000, "1:59:59.5",
     "0b1" + "0" * 99, "0x" + "f" * 5_000, "!!float x", "? [a]", "0o7", "2020-99-99", "|\n a", "!!null x",
     "- a", "1e999", "'", "\t", "%YAML 9.9"]
).map(Raw)  # fmt: skip
STRUCTURES = st.builds(
    lambda damage, whole: as_yaml(damage(whole)),
    damaged(VALUES | SNIPPETS),
    st.sampled_from([WHOLE, LISTED]),
)
TEXT = st.builds(
    lambda damage, text: damage(text.encode()).decode("utf-8", "replace"),
    BITES,
    st.sampled_from([*shipped_studies().values(), yaml.safe_dump(WHOLE), yaml.safe_dump(LISTED)]),
)

SYNTAX = st.text(alphabet="{}[]:,-?!&*#|>'\"%@`\\ \n\tab1.e<=~\0\x1b\ud800é", max_size=60)
ODD = [
    "? [a]\n: 1", "!!set {a, b}", "!!omap [a: 1]", "!!pairs [a]", "<<: 3", "!!binary é",
    "name: x\nmodel: 57p\nseeds: [1]\nrecipe: !!float ''", "recipe: {lr: =}",
    "name: x\nmodel: 57p\nseeds: [1]\n0o8: 1\n08: 1\n0x: 1\n0b2: 1\n1__2: 190:20:30",
]  # fmt: skip


def read_study(text: str) -> str | None:
    def read() -> None:
        study = parse_study(text, "some.yaml")
        again = Study.model_validate_json(study.model_dump_json(by_alias=True))  # as MLflow keeps it
        assert again.listed() == study.listed() and again.planned == study.planned

    said = complaint(read, UserError)
    if said is not None:
        check_lines(said)
    return said


def test_studies() -> None:
    assert read_study(as_yaml(WHOLE)) is None and read_study(as_yaml(LISTED)) is None
    assert all(map(read_study, ODD))
    feed(STRUCTURES | TEXT | SYNTAX | NESTED.map(as_yaml), SHARES["studies"], read_study)
    assert not list(Path().iterdir())


BEGIN = "name: x\nmodel: 57p\n"
ONE = BEGIN + "seeds: [1]\n"
LONG = "0x" + "f" * 5_000
BOMBS = {
    **{f"a number of 6,000 digits, {where[-12:]}": BEGIN + where.format(LONG) for where in (
        "seeds: [{}]", "seeds: {{first: {}, count: 1}}", "seeds: {{first: 1, count: {}}}",
        "seeds: [1]\nrecipe: {{lr: {}}}", "seeds: [1]\nrecipe: {{steps: {}}}",
        "seeds: [1]\nresources: {{cpu: {}}}", "seeds: [1]\nresources: {{gpu: {}}}",
        "seeds: [1]\nresources: {{slots: {}}}", "seeds: [1]\nresources: {{save_every: {}}}",
        "seeds: [1]\nabout: {}", "seeds: [1]\nuntil: {{grokked: {}}}", "seeds: [1]\n{}: 1",
        "seeds: [1]\nspace: {{recipe.lr: {{float: [0, {}]}}}}",
        "seeds: [1]\nspace: {{recipe.lr: {{choice: [{}]}}}}", "seeds: [1]\ntoggle: [qk_dim={}]",
    )},
    "10^30 seeds": BEGIN + f"seeds: {{first: 0, count: {10**30}}}",
    "10^30 rounds": ONE + f"until: {{grokked: 1, max_seeds: {10**30}}}",
    "10^30 slots": ONE + f"resources: {{slots: {10**30}}}",
    "10^30 seeds a trial": ONE + f"resources: {{seeds_per_trial: {10**30}}}",
    "4 million crossed seeds": BEGIN + f"seeds: {{init: {[*range(2_000)]}, data: {[*range(2_000)]}}}",
    "4 million to confirm": ONE
    + f"confirm: {{seeds: {{init: {[*range(2_000)]}, data: {[*range(2, 2_002)]}}}}}",
    "a grid of 2 billion": ONE + "sampler: {name: grid}\nspace: {recipe.hold: {int: [0, 2000000000]}}",
    "a step of nothing": ONE + "space: {recipe.lr: {float: [0.1, 0.2], step: 1.0e-300}}",
    **{f"1 MiB of {sign}": sign * ((1 << 20) // len(sign))
       for sign in ("[", "{a: ", "- ", "? ", "!!set {")},
    "1 MiB of indentation": "".join(f"{' ' * i}a:\n" for i in range(1_400)),
}  # fmt: skip


@pytest.mark.parametrize("case", BOMBS)
def test_a_study_that_asks_for_too_much_is_refused(case: str) -> None:
    assert read_study(BOMBS[case]), "taken"
