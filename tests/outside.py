"""The 15-number adder of Tencent Hunyuan's agent Hyra (Hyra-results, AI4Science/smallest_adder), as a tied spec."""

import math

import torch

from model.families.rope import Rope
from model.tied import Tied

BASE = Rope(
    arc=True, frozen_arc=True, arc_radius=160.0, arc_start=1.0, arc_stride=math.pi / 48, tie_oq=True,
    turned_k=True, frozen_k_angle=True, first_k_angle=0.5, tie_vq=True, shared_norms=True,
    turned_down=True, frozen_down_angle=True, first_down_angle=1.8, shared_qk_norm=True, fixed_qk_norm=True,
)  # fmt: skip
NUMBERS = [
    27.105110, 63.809837, 0.39488417, 0.99401253, -4.1691523, 1.4061664, -1.3576299, 19.130640, 4.9790192,
    -0.32894805, 0.30185667, -0.47672614, 13.129644, -18.786934, -72.524231,
]  # fmt: skip
# Each entry's number from 1 on, and 0 for zero.
TIES = {
    "q": [3, 7, 0, 4, 5, 6, 7, 6, 8, 7, 9, 0],
    "gate": [10, 11, 12, 12, 4, 7],
    "up": [13, 14, 1, 15, 13, 14],
    "qk_norm": [13],
    "norm": [8, 1, 2],
}
WRONG = [
    (7114501283, 160349715, 7274860998),
    (4999862501, 7450152549, 12450015060),
    (5902527701, 6122907849, 12025435560),
    (6398214012, 2977224494, 9375438606),
    (5646916012, 5904854496, 11551770608),
]


def hyra():
    """Its spec and θ, whose numbers stand in the order in which the entries first read them."""
    spec = Tied.from_values(base=BASE.as_dict(), ties=TIES)
    order = dict.fromkeys(k for name in BASE.layout.names for k in TIES[name] if k)
    return spec, torch.tensor([NUMBERS[k - 1] for k in order])
