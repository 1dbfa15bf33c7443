"""What `explain` shows of a trained adder besides itself: the loss around it, and when it learned carries."""

import pytest
import torch

from lab.carries import right_shares
from lab.landscape import RISE, SIDE, Landscape
from model import preset
from tests.banks import ADDER_P
from trainer.step import step

pytestmark = pytest.mark.compiled


@pytest.fixture(scope="module")
def landscape():
    return Landscape(preset("57p"), ADDER_P)


def test_losses_are_the_steps(landscape):
    theta_SP = ADDER_P.double() + 0.01 * landscape.random[:3]
    expected = step.loss(preset("57p"), theta_SP, landscape.tokens)
    torch.testing.assert_close(landscape.losses(theta_SP), expected, rtol=1e-3, atol=1e-4)


def test_a_basin_ends_sooner_where_the_loss_is_curved(landscape):
    basin = landscape.basin()
    assert 0 < basin.sharpest < basin.random < basin.flattest <= 1 and basin.curvature > 0
    (width,) = landscape.widths(landscape.sharpest[:1])
    moves = landscape.size * width * landscape.sharpest[0] * torch.tensor([[1.0], [-1.0], [0.5], [-0.5]])
    rises = landscape.losses(ADDER_P + moves) - landscape.loss
    assert rises[:2].max() > RISE and rises[2:].max() < RISE


def test_planes_go_through_theta_and_toward_another(landscape):
    away_P = ADDER_P + 0.5 * torch.randn(57, generator=torch.Generator().manual_seed(1))
    planes = landscape.planes(away_P)
    assert [p["name"] for p in planes] == ["sharpest", "flattest", "random", "toward the other"]
    middle = SIDE // 2
    for plane in planes:
        assert 10 ** plane["losses"][middle][middle] == pytest.approx(landscape.loss, rel=0.02)
    other = float(landscape.losses(away_P[None])[0].log10())
    assert planes[-1]["losses"][middle][middle + round(middle / 1.25)] == pytest.approx(other, abs=0.15)
    assert [p["name"] for p in landscape.planes(ADDER_P)] == ["sharpest", "flattest", "random"], "no way to itself"


def test_a_trained_adder_knows_carries_of_every_length():
    theta_SP = torch.stack([preset("57p").initial(777), ADDER_P])
    assert right_shares(preset("57p"), theta_SP).tolist() == [[0.0] * 11, [1.0] * 11]
