"""The exported submission: an obvious reference model that must agree with the fast bank forward.

Axes: B problem, T position, A answer position, V vocabulary, P parameters.
"""

from __future__ import annotations

import ast
import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from model import RUNGS, Spec, add
from model.adderboard import official_pairs
from model.decode import DIGITS, LARGEST, columns
from model.export import export_source, tricks
from model.spec import FAMILIES
from model.split_subspace import SplitSubspace
from tests.golden import golden_theta

RUNNER = Path(__file__).with_name("adderboard_runner.py")
SPECS = {
    **RUNGS,
    "57p, ellipse": replace(RUNGS["57p"], circular=False),
    "57p, full out": replace(RUNGS["57p"], rank1_out=False),
    "57p, own values": replace(RUNGS["57p"], tie_vo=False),
    "57p, three norms": replace(RUNGS["57p"], shared_norm=False),
    "67p, odd qk": replace(RUNGS["67p"], qk_dim=3),
    "unconstrained": SplitSubspace(),
}


def noisy_theta(spec: Spec) -> Tensor:
    """θ [P] away from the symmetries of the initial values (phase 0, norms 1, out_B 0)."""
    noise_P = torch.randn(spec.params, generator=torch.Generator().manual_seed(5))
    return spec.initial(3) + 0.5 * noise_P


def source_of(spec: Spec, theta_P: Tensor, **changes: Any) -> str:
    texts = {"name": "a name", "author": "an author", "provenance": {"seed": 3}}
    return export_source(spec, theta_P, **(texts | changes))


def loaded(source: str) -> ModuleType:
    module = ModuleType("submission")
    exec(compile(source, "submission.py", "exec"), module.__dict__)
    return module


def constant(source: str, name: str) -> Any:
    """The value of a module constant, which must be a literal."""
    values = [
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name
    ]
    assert len(values) == 1 and values[0] is not None
    return ast.literal_eval(values[0])


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_reference_agrees_with_the_bank_forward(spec: Spec) -> None:
    theta_P = noisy_theta(spec)
    model, metadata = loaded(source_of(spec, theta_P)).build_model()
    assert sum(p.numel() for p in model.parameters()) == metadata["params"] == spec.params

    numbers = torch.randint(LARGEST + 1, (2, 64), generator=torch.Generator().manual_seed(1))
    x, y, z = columns(numbers[0], DIGITS), columns(numbers[1], DIGITS), columns(numbers.sum(0), DIGITS + 1)
    tokens_TB = torch.stack(spec.sequence(x, y, z))[:-1]
    fast = spec.forward(theta_P[None], tokens_TB[None], first=spec.prompt - 1)
    fast_BAV = torch.stack([v[0] for v in fast]).permute(2, 1, 0)
    plain_BTV = model(tokens_TB.T)
    assert fast_BAV.std() > 0.1
    torch.testing.assert_close(plain_BTV[:, spec.prompt - 1 :], fast_BAV, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_add_agrees_with_our_decoding(spec: Spec) -> None:
    theta_P = noisy_theta(spec)
    submission = loaded(source_of(spec, theta_P))
    model, _ = submission.build_model()
    rng = random.Random(4)
    a, b = ([rng.randint(0, LARGEST) for _ in range(200)] for _ in range(2))
    ours = add(spec, theta_P, a, b)
    assert len(set(ours)) > 1
    assert [submission.add(model, *pair) for pair in zip(a, b, strict=True)] == ours


def test_weights_come_back_bit_by_bit() -> None:
    spec = RUNGS["57p"]
    theta_P = torch.randn(57, generator=torch.Generator().manual_seed(2)) * 10.0 ** torch.linspace(
        -44, 38, 57
    )
    theta_P[:3] = torch.tensor([-0.0, torch.finfo(torch.float32).max, 2.0**-149])
    source = source_of(spec, theta_P)
    model, _ = loaded(source).build_model()
    assert list(constant(source, "WEIGHTS")) == list(spec.layout.names)
    back_P = spec.layout.join(dict(model.weights))
    assert back_P.dtype == torch.float32 and torch.equal(back_P.view(torch.int32), theta_P.view(torch.int32))
    assert source_of(spec, theta_P.double()) == source


def test_file_is_torch_only_and_readable() -> None:
    source = source_of(SplitSubspace(qk_dim=16), noisy_theta(SplitSubspace(qk_dim=16)))
    data = source.split("# ---- data ----\n")[1].split("# ---- end of data ----\n")[0]
    assert max(map(len, data.splitlines())) < 100
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {getattr(node, "module", None) or alias.name for node in imports for alias in node.names}
    assert {name.split(".")[0] for name in names} == {"__future__", "math", "typing", "torch"}


def test_metadata_says_what_was_applied() -> None:
    _, metadata = loaded(source_of(RUNGS["67p"], noisy_theta(RUNGS["67p"]))).build_model()
    assert list(metadata) == ["name", "author", "params", "architecture", "tricks"]
    assert metadata["tricks"] == [
        "circular",
        "frozen_spiral",
        "qk_dim=4",
        "tie_vo",
        "rank1_out",
        "shared_norm",
    ]
    assert tricks(SplitSubspace()) == [] and "decoder" in metadata["architecture"]


def test_published_checkpoint_scores_10010(tmp_path: Path) -> None:
    spec, theta_P = golden_theta("57p")
    (tmp_path / "submission.py").write_text(source_of(spec, theta_P), encoding="utf-8")
    # One thread: the matrices are so small that a second one only waits.
    done = subprocess.run(
        [sys.executable, "-I", str(RUNNER), "submission.py"],
        check=False,
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["params"], found["correct"], found["total"]) == (57, 10_010, 10_010)
    assert found["metadata"]["params"] == 57


def test_published_75p_adds() -> None:
    """A learned spiral and an ellipse, trained elsewhere."""
    submission = loaded(source_of(*golden_theta("75p")))
    model, metadata = submission.build_model()
    assert metadata["params"] == 75
    pairs = official_pairs()[:100]
    assert [submission.add(model, a, b) for a, b in pairs] == [a + b for a, b in pairs]


@pytest.fixture(scope="module")
def submission() -> ModuleType:
    return loaded(source_of(RUNGS["57p"], noisy_theta(RUNGS["57p"])))


@pytest.mark.parametrize("bad", [-1, 10**10, 1.5, "3", True, None])
@pytest.mark.parametrize("first", [True, False])
def test_add_refuses_what_is_no_operand(submission: ModuleType, bad: Any, first: bool) -> None:
    model, _ = submission.build_model()
    with pytest.raises(ValueError, match="operands must be integers from 0 to 9999999999"):
        submission.add(model, *((bad, 1) if first else (1, bad)))


@pytest.mark.parametrize(
    "text",
    [
        '"""); import os; os.system("x")',
        "'); raise SystemExit #",
        "# ---- end of data ----\nimport os\n",
        "line\r\nbreaks\x0b\x0c\x85\u2028and \\ \\N{BULLET} {braces} \ud800 \u202e" + " many words" * 20,
        "no_blanks" * 30,
    ],
)
def test_text_stays_data(text: str) -> None:
    spec, theta_P = RUNGS["57p"], noisy_theta(RUNGS["57p"])
    hostile = source_of(spec, theta_P, name=text, author=text, provenance={text: [text]})
    metadata = constant(hostile, "METADATA")
    assert (metadata["name"], metadata["author"]) == (text, text)
    assert constant(hostile, "PROVENANCE") == {text: [text]}

    def code(source: str) -> list[str]:
        """All statements but the data."""
        nodes = ast.parse(source).body
        return [ast.dump(n) for n in nodes if not isinstance(n, ast.AnnAssign)]

    assert code(hostile) == code(source_of(spec, theta_P))
    assert loaded(hostile).build_model()[1]["name"] == text


def test_bad_input_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, theta_P = RUNGS["57p"], noisy_theta(RUNGS["57p"])
    with pytest.raises(ValueError, match=r"theta must have shape \(57,\), got \(56,\)"):
        source_of(spec, theta_P[:-1])
    with pytest.raises(ValueError, match=r"theta must have shape \(57,\), got \(1, 57\)"):
        source_of(spec, theta_P[None])
    for worst in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="theta must be finite in float32, it is not in norm"):
            source_of(spec, torch.cat([theta_P[:-1], torch.tensor([worst])]))
    with pytest.raises(ValueError, match="name must be text"):
        source_of(spec, theta_P, name=3)
    for provenance in ({"loss": float("nan")}, {"where": object()}):
        with pytest.raises(ValueError, match="provenance must hold only plain, finite values"):
            source_of(spec, theta_P, provenance=provenance)
    with pytest.raises(ValueError, match="provenance must be a dictionary"):
        source_of(spec, theta_P, provenance=["a list"])
    monkeypatch.setattr(SplitSubspace, "family", "unheard_of")
    with pytest.raises(ValueError, match="family 'unheard_of' has no submission file"):
        source_of(spec, theta_P)
    assert "unheard_of" not in FAMILIES
