"""The exported submission: an obvious reference model that must agree with the fast bank forward.

Axes: B problem, T position, A answer position, V vocabulary, P parameters.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from model import PRESETS, Spec, add
from model.export import export_source, tricks
from model.families.split_subspace import SplitSubspace
from model.spec import FAMILIES
from tests.golden_checkpoints import SPECS as GOLDEN
from tests.golden_checkpoints import golden_theta
from tests.specs import some_theta
from tests.submissions import constant, loaded

RUNNER = Path(__file__).parents[1] / "adderboard_runner.py"


def source_of(spec: Spec, theta_P: Tensor, **changes: Any) -> str:
    texts = {"name": "a name", "author": "an author", "provenance": {"seed": 3}}
    return export_source(spec, theta_P, **(texts | changes))


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([4, 3, 12], 34),
        ([4, 3, 13, 5, 12], 34),
        ([12], 0),
        ([7] * 12, 777777777777),
    ],
)
def test_an_answer_ends_at_the_first_token_that_is_no_digit(tokens: list[int], expected: int) -> None:
    """In the file and in our decoding alike: a stand-in says the tokens one by one, then nines."""
    said = tokens + [9] * (12 - len(tokens))

    def forward(theta_SP: Tensor, tokens_STB: Tensor, first: int) -> list[Tensor]:
        return [torch.full((1, 1, 1), float(v == said[first - 21])) for v in range(14)]

    spec, theta_P = PRESETS["242p"], PRESETS["242p"].initial(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(spec), "forward", lambda self, *args, first: forward(*args, first))
        assert add(spec, theta_P, [1], [2]) == [expected]
    submission = loaded(source_of(spec, theta_P))
    model, _ = submission.build_model()
    model.forward = lambda tokens_BT: torch.stack(
        [torch.eye(14)[said[max(i - 21, 0)]] for i in range(tokens_BT.shape[1])]
    )[None]
    assert submission.add(model, 1, 2) == expected


def test_weights_come_back_bit_by_bit() -> None:
    spec = PRESETS["57p"]
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


def test_metadata_says_what_was_applied() -> None:
    spec = PRESETS["67p"]
    _, metadata = loaded(source_of(spec, spec.initial(0))).build_model()
    assert list(metadata) == ["name", "author", "params", "architecture", "tricks"]
    tables = ["vocabulary=10", "arc", "circular", "spiral", "plain_spiral"]
    frozen, ties = ["frozen_spiral", "frozen_eos", "frozen_plus"], ["tie_qk", "qk_dim=4", "tie_vo"]
    assert metadata["tricks"] == [
        *tables, *frozen, *ties, "rank1_out", "shared_norm", "no_ffn_bias"
    ]  # fmt: skip
    assert metadata["architecture"].startswith("1-layer pre-norm decoder, width 5 (2 token, 3 position)")
    assert tricks(SplitSubspace()) == []


def score(spec: Spec, theta_P: Tensor, folder: Path, *first: str) -> dict[str, Any]:
    """What AdderBoard's protocol says of the exported file, in a process that cannot see this project."""
    (folder / "submission.py").write_text(source_of(spec, theta_P), encoding="utf-8")
    # One thread: the matrices are so small that a second one only waits.
    done = subprocess.run(
        [sys.executable, "-I", str(RUNNER), "submission.py", *first],
        check=False,
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1_200,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("name", "count"),
    [("226p", 50), *(pytest.param(name, 10_010, marks=pytest.mark.full) for name in GOLDEN)],
)
def test_published_checkpoints_add(name: str, count: int, tmp_path: Path) -> None:
    spec, theta_P = golden_theta(name)
    found = score(spec, theta_P, tmp_path, str(count))
    wrong = 2 if name == "226p" else 0  # 9999999999 + 9999999999, which is asked twice
    assert (found["params"], found["correct"], found["total"]) == (spec.params, count - wrong, count)
    assert found["metadata"]["params"] == spec.params


@pytest.fixture(scope="module")
def submission() -> ModuleType:
    return loaded(source_of(PRESETS["57p"], some_theta(PRESETS["57p"])[0]))


@pytest.mark.parametrize("bad", [-1, 10**10, 1.5, "3", True])
def test_add_refuses_what_is_no_operand(submission: ModuleType, bad: Any) -> None:
    model, _ = submission.build_model()
    for operands in ((bad, 1), (1, bad)):
        with pytest.raises(ValueError, match="operands must be integers from 0 to 9999999999"):
            submission.add(model, *operands)


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
    spec, theta_P = PRESETS["57p"], some_theta(PRESETS["57p"])[0]
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
    spec, theta_P = PRESETS["57p"], some_theta(PRESETS["57p"])[0]
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


def test_the_file_imports_torch_alone() -> None:
    source = source_of(PRESETS["57p"], some_theta(PRESETS["57p"])[0])
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {getattr(node, "module", None) or alias.name for node in imports for alias in node.names}
    assert {name.split(".")[0] for name in names} == {"__future__", "itertools", "math", "typing", "torch"}
