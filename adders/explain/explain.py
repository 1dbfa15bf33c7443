"""The page of `adder-search explain`: one to three checkpoints add any two numbers, digit by digit."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adders.explain.net import program
from adders.proof.file import decide_soon
from model import preset_name
from reports.markup import STYLE, guarded
from search.plugins import part
from search.store.verdicts import SOON_S
from trainer.checkpoints.checkpoint import Checkpoint

MOST = 3
"""Checkpoints side by side."""
EXAMPLE = (4728391056, 1593846278)
HERE = Path(__file__).parent
TEMPLATE = HERE / "explain.html"
INCLUDE = re.compile(r"/\* include ([\w.]+) \*/\n?")
PLACEHOLDER = "{/* the model */}"


@dataclass(frozen=True)
class Shown:
    """A checkpoint, the name it goes by, and what is recorded of its training."""

    name: str
    checkpoint: Checkpoint
    training: dict[str, Any] | None = None
    carries: dict[str, Any] | None = None
    proof: dict[str, Any] | None = None
    """The verdict on all pairs, where it is known."""


def explain(shown: Sequence[Shown], landscape: bool = False) -> str:
    """Return the page of one to three checkpoints: HTML that needs nothing from elsewhere.

    landscape: add the loss on planes through the first one's θ, one of them toward the next one of its spec.
    """
    nets = [_net(net) for net in shown]
    planes = _planes(shown) if landscape else []
    return page(TEMPLATE, {"example": EXAMPLE, "nets": nets, "planes": planes})


def _planes(shown: Sequence[Shown]) -> list[dict[str, Any]]:
    """Return planes through the first θ. What makes them is another plug-in's, so it may be missing."""
    first, *others = (s.checkpoint for s in shown)
    alike = [other.theta_P for other in others if other.spec.trained() == first.spec.trained()]
    planes: list[dict[str, Any]] = part("planes", "--landscape")(first.spec, first.theta_P, *alike[:1])
    return planes


def _net(shown: Shown) -> dict[str, Any]:
    """Return what the page shows of a checkpoint, as plain values."""
    spec = shown.checkpoint.spec
    return {
        "name": shown.name,
        "model": preset_name(spec),
        "params": spec.params,
        "program": program(spec, shown.checkpoint.theta_P),
        "proof": _proof(shown),
        "training": shown.training,
        "carries": shown.carries,
    }


def _proof(shown: Shown) -> dict[str, Any] | None:
    """Return the verdict on all pairs and the pair with the smallest margin; None for families without proofs."""
    # no page waits for a proof that takes long
    proof = shown.proof or decide_soon(shown.checkpoint.spec, shown.checkpoint.theta_P, SOON_S)
    if not proof:
        return None
    wrong = proof["wrong"][0] if proof["wrong"] else None
    return {
        **{name: proof[name] for name in ("verdict", "level", "margin")},
        "pair": [wrong["a"], wrong["b"]] if wrong else proof["pair"],
        "digit": None if wrong else proof["digit"],
    }


def page(template: Path, model: Mapping[str, Any]) -> str:
    """Return the HTML of a template with its data in it."""
    data = json.dumps(model, allow_nan=False)
    # a name may hold `</script>`, which would end the page's program
    return whole(template).replace(PLACEHOLDER, data.replace("<", "\\u003c"))


def template_text() -> str:
    """Return the page as it is before its data are in it."""
    return whole(TEMPLATE)


def whole(template: Path) -> str:
    """Return a template with its policy and with the files that it includes: of this folder, or every page's style."""
    text = template.read_text("utf-8")
    return guarded(INCLUDE.sub(lambda name: _included(name[1]).read_text("utf-8"), text))


def _included(name: str) -> Path:
    return STYLE if name == STYLE.name else HERE / name
