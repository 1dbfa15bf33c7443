"""Mirror images of a split_subspace adder: the same answers, its axes the usual way round."""

from pathlib import Path

import pytest
import torch

from compress.hessian import sample_of
from lab.scripts.mirror import mirrored
from model import preset
from tests.specs import some_theta
from trainer.checkpoints.checkpoint import Checkpoint

BASE = preset("46p")


def other_way_round(flip):
    """Some θ whose codes turn backwards, with negative norms on some position axes."""
    tensors = {name: t[0].double() for name, t in BASE.layout.split(some_theta(BASE)).items()}
    tensors["arc"][2] = -tensors["arc"][2].abs() - 0.1
    tensors["norm"] = tensors["norm"].abs() + 0.5
    for axis in flip:
        tensors["norm"][0, axis] *= -1
        tensors["head"][:, axis] = 0  # the FFN writes nothing there
    return BASE.layout.join(tensors)


def logits(theta_P):
    return torch.stack(BASE.forward(theta_P.double()[None], sample_of(BASE, 40)[:, :-1], first=BASE.prompt - 1))


@pytest.mark.parametrize("flip", [(), (2,), (3, 4)])
def test_a_mirror_image_answers_as_it_did(flip):
    theta_P = other_way_round(flip)
    made_P = mirrored(BASE, theta_P)
    tensors = {name: t[0] for name, t in BASE.layout.split(made_P[None]).items()}
    assert tensors["arc"][2] > 0 and bool((tensors["norm"] > 0).all())
    assert torch.allclose(logits(made_P), logits(theta_P), atol=1e-9)
    assert torch.equal(mirrored(BASE, made_P), made_P)


def test_what_is_the_usual_way_round_stays_to_the_bit():
    theta_P = Checkpoint.load(Path(__file__).parents[1] / "certificates" / "46p").theta_P
    assert torch.equal(mirrored(BASE, theta_P), theta_P)


def test_other_forms_are_refused():
    with pytest.raises(ValueError, match="46p alone"):
        mirrored(preset("54p"), torch.zeros(54))
