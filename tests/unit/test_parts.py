"""Parts of a net that can go one at a time (model/parts.py)."""

from dataclasses import replace
from itertools import islice

import pytest
import torch

from model import preset
from model.parts import inside, keep, only, orders
from model.presets import PRESETS
from model.tied import constrained, tie, untied

WIDE = {
    "split_subspace": replace(preset("67p"), hidden=5),
    "split_subspace with biases": replace(preset("242p"), hidden=4),
    "low_rank": replace(preset("262p"), ffn=4),
    "rope": replace(preset("62p"), ffn=4),
    "rope with heads": replace(preset("62p"), heads=4),
    "rope with heads and an output of their own": replace(preset("62p"), heads=4, tie_oq=False),
}


def logits(spec, theta_P):
    tokens_1TB = torch.randint(0, 9, (1, spec.prompt + 3, 50), generator=torch.Generator().manual_seed(3))
    wide = spec.expand(theta_P[None])
    return torch.stack(spec.apply(wide, tokens_1TB, spec.prompt - 1))


@pytest.mark.parametrize("name", WIDE)
def test_what_is_kept_computes_what_is_left_when_the_others_are_cut(name):
    spec, kind = WIDE[name], "heads" if "heads" in name else "units"
    theta_P = spec.initial(7) + 0.3 * torch.randn(spec.params, generator=torch.Generator().manual_seed(7))
    cut_P = theta_P.clone()
    cut_P[[k == 0 for k in only(spec, kind, [3, 1])]] = 0
    smaller, index = keep(spec, kind, [3, 1])
    assert smaller.params < spec.params
    assert torch.allclose(logits(smaller, theta_P[index]), logits(spec, cut_P), atol=1e-5)
    assert not torch.allclose(logits(spec, theta_P), logits(spec, cut_P), atol=1e-3)


def test_one_of_three_units_can_be_cut_where_a_net_has_at_least_two():
    spec = replace(preset("67p"), hidden=3)
    ties = only(spec, "units", [0, 2])
    cut = {entry for entry, k in zip(spec.layout.entries(), ties, strict=True) if k == 0}
    assert cut == {*(f"fc1[1,{n}]" for n in range(5)), *(f"fc2[{n},1]" for n in range(5))}


@pytest.mark.parametrize("spec", [*WIDE.values(), *PRESETS.values(), replace(preset("100p"), one_unit=True)])
def test_parts_that_trade_places_compute_the_same(spec):
    theta_P = spec.initial(7) + 0.3 * torch.randn(spec.params, generator=torch.Generator().manual_seed(7))
    first, *others = islice(orders(spec), 6)
    assert first == sorted(first)
    same = [torch.allclose(logits(spec, theta_P[order]), logits(spec, theta_P), atol=1e-5) for order in others]
    # Where the second layer is the head, units that trade places are another start (trainer/recipe/stages.py).
    is_tied = "tie_fc2_head" in spec.applied()
    assert same == [not is_tied] * len(others)


def test_all_orders_are_tried():
    assert len(list(orders(replace(preset("67p"), hidden=3)))) == 6


def test_a_preset_is_found_inside_a_larger_one():
    ties, order = inside(preset("67p"), preset("57p"))
    theta_P = preset("57p").initial(3)
    tied = tie(preset("67p"), ties)
    assert tied.params == 57
    assert torch.equal(logits(tied, theta_P[order]), logits(preset("57p"), theta_P))


def test_a_tied_spec_is_inside_its_base():
    base = preset("57p")
    smaller = tie(base, constrained(base, ["fc1[0,0] = 0", "fc1[1,0] = -fc1[0,1]"]))
    ties, order = inside(base, smaller)
    theta_P = smaller.initial(3)
    _, theta_of_base = untied(smaller, theta_P[order])
    assert (ties, order) == (smaller.ties, list(range(55)))
    assert torch.equal(logits(base, theta_of_base), logits(smaller, theta_P))


@pytest.mark.parametrize("target", ["74p", "62p", "54p", "262p"])
def test_what_is_not_inside_is_refused(target):
    with pytest.raises(ValueError, match=r"becomes? a|with ties|must have shape"):
        inside(preset("67p"), preset(target))
