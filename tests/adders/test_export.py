"""The exported submission as a file, and that it answers as the fast forward pass does."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from adders.export import export_source
from model import PRESETS, add
from model.adderboard import official_pairs
from model.spec import FAMILIES
from tests import by_tier
from tests.adders.golden_checkpoints import SPECS as GOLDEN
from tests.adders.golden_checkpoints import golden_theta
from tests.specs import bases, some_theta
from tests.submissions import constant, loaded
from tests.unit.test_tied import every_base
from tests.unit.test_tied import tied as tied_spec

RUNNER = Path(__file__).parents[1] / "adderboard_runner.py"


def source_of(spec, theta_P, **changes):
    return export_source(spec, theta_P, **({"name": "a name", "author": "a", "provenance": {"seed": 3}} | changes))


@pytest.mark.parametrize(
    ("name", "tokens", "expected"),
    [
        ("242p", [4, 3, 12], 34),
        ("242p", [4, 3, 13, 5, 12], 34),
        ("242p", [12], 0),
        ("242p", [7] * 12, 777777777777),
        ("763p", [4, 3, 13, 5], 34),
        ("763p", [10], 0),
        ("763p", [1] * 12, 11111111111),
    ],
)
def test_an_answer_ends_at_the_first_token_that_is_no_digit(name, tokens, expected, monkeypatch):
    """In the file and in our decoding alike: a stand-in says the tokens one by one, then nines."""
    said = tokens + [9] * (12 - len(tokens))
    spec, theta_P = PRESETS[name], PRESETS[name].initial(0)

    def forward(_self, theta_SP, tokens_STB, first):
        return [torch.full((1, 1, 1), float(v == said[first - 21])) for v in range(14)]

    submission = loaded(source_of(spec, theta_P))
    model, _ = submission.build_model()
    model.forward = lambda tokens_BT: torch.stack(
        [torch.eye(14)[said[max(i - 21, 0)]] for i in range(tokens_BT.shape[1])]
    )[None]
    assert submission.add(model, 1, 2) == expected
    monkeypatch.setattr(type(spec), "forward", forward)
    assert add(spec, theta_P, [1], [2]) == [expected]


def test_weights_come_back_bit_by_bit():
    spec = PRESETS["57p"]
    gen = torch.Generator().manual_seed(2)
    theta_P = torch.randn(57, generator=gen) * 10.0 ** torch.linspace(-44, 38, 57)
    theta_P[:3] = torch.tensor([-0.0, torch.finfo(torch.float32).max, 2.0**-149])
    source = source_of(spec, theta_P)
    model, _ = loaded(source).build_model()
    back_P = spec.layout.join(dict(model.weights))
    assert back_P.dtype == torch.float32 and torch.equal(back_P.view(torch.int32), theta_P.view(torch.int32))
    assert source_of(spec, theta_P.double()) == source


def test_metadata_says_what_was_applied_and_the_file_imports_torch_alone():
    source = source_of(PRESETS["67p"], PRESETS["67p"].initial(0))
    _, metadata = loaded(source).build_model()
    assert list(metadata) == ["name", "author", "params", "architecture", "tricks"]
    assert metadata["tricks"] == [
        "vocabulary=10", "arc", "circular", "spiral", "plain_spiral", "frozen_spiral", "frozen_eos", "frozen_plus",
        "tie_qk", "qk_dim=4", "tie_vo", "rank1_out", "shared_norm", "no_ffn_bias",
    ]  # fmt: skip
    assert metadata["architecture"].startswith("1-layer pre-norm decoder, width 5 (2 token, 3 position)")
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {getattr(node, "module", None) or alias.name for node in imports for alias in node.names}
    assert {name.split(".")[0] for name in names} == {"__future__", "itertools", "math", "typing", "torch"}


@pytest.mark.parametrize(
    ("name", "count"),
    [("226p", 50), *(pytest.param(name, 10_010, marks=pytest.mark.full) for name in GOLDEN)],
)
def test_published_checkpoints_add(name, count, tmp_path):
    """By AdderBoard's protocol on the exported file, in a process that cannot see this project."""
    spec, theta_P = golden_theta(name)
    (tmp_path / "submission.py").write_text(source_of(spec, theta_P), encoding="utf-8")
    command = [sys.executable, "-I", str(RUNNER), "submission.py", str(count)]
    # One thread: the matrices are so small that a second one only waits.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, timeout=1_200, check=True)
    score = json.loads(done.stdout)
    wrong = 2 if name == "226p" else 0  # 9999999999 + 9999999999, which is asked twice
    assert (score["params"], score["correct"], score["total"]) == (spec.params, count - wrong, count)
    assert score["metadata"]["params"] == spec.params


@pytest.mark.parametrize("bad", [-1, 10**10, 1.5, "3", True])
def test_add_refuses_what_is_no_operand(bad):
    """In the file as in our own."""
    spec = PRESETS["57p"]
    submission = loaded(source_of(spec, spec.initial(0)))
    model, _ = submission.build_model()
    for a, b in ((bad, 1), (1, bad)):
        with pytest.raises(ValueError, match="operands must be integers from 0 to 9999999999"):
            submission.add(model, a, b)
        with pytest.raises(ValueError, match="integers from 0 to 9999999999"):
            add(spec, spec.initial(0), [a], [b])


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
def test_text_stays_data(text):
    spec, theta_P = PRESETS["57p"], some_theta(PRESETS["57p"])[0]
    hostile = source_of(spec, theta_P, name=text, author=text, provenance={text: [text]})
    metadata = constant(hostile, "METADATA")
    assert (metadata["name"], metadata["author"]) == (text, text)
    assert constant(hostile, "PROVENANCE") == {text: [text]}

    def code(source):
        """All statements but the data."""
        nodes = ast.parse(source).body
        return [ast.dump(n) for n in nodes if not isinstance(n, ast.AnnAssign)]

    assert code(hostile) == code(source_of(spec, theta_P))
    assert loaded(hostile).build_model()[1]["name"] == text


# What it answers

SMALLEST = [bases(family)[-1] for family in FAMILIES]


def talkative_theta(spec):
    """The first θ [P] of many random ones that gives at least five different answers to forty pairs."""
    a, b = zip(*official_pairs()[:40], strict=True)
    for seed in range(100):
        noise_P = torch.randn(spec.params, generator=torch.Generator().manual_seed(seed))
        theta_P = spec.initial(seed) + noise_P
        if len(set(add(spec, theta_P, a, b))) >= 5:
            return theta_P
    raise AssertionError(f"every one of them says the same to all: {spec}")


@pytest.mark.parametrize("spec", by_tier(PRESETS, SMALLEST))
def test_the_exported_file_answers_what_verify_counts(spec):
    """In float64: in single precision one of many thousand random choices is a tie."""
    theta_P, pairs = talkative_theta(spec), official_pairs()[:60]
    submission = loaded(source_of(spec, theta_P))
    model, metadata = submission.build_model()
    assert metadata["params"] == spec.params == sum(p.numel() for p in model.parameters())
    assert metadata["architecture"] and len(metadata["tricks"]) == len(spec.applied())
    model.double()
    a, b = zip(*pairs, strict=True)
    ours = add(spec, theta_P.double(), a, b)
    assert [submission.add(model, *pair) for pair in pairs] == ours
    assert len(set(ours)) > 1


@every_base
def test_an_export_has_each_number_once_and_answers_alike(name):
    spec = tied_spec(name)
    theta = some_theta(spec)[0]
    source = source_of(spec, theta)
    numbers, ties = constant(source, "NUMBERS"), constant(source, "TIES")
    assert len(numbers) == spec.params and "WEIGHTS" not in source and "from model" not in source
    assert {n: torch.tensor(t).flatten().tolist() for n, t in ties.items()} == spec.by_tensor()
    submission = loaded(source)
    model, metadata = submission.build_model()
    assert metadata["params"] == sum(p.numel() for p in model.parameters()) == spec.params
    assert spec.spelt()[0] in metadata["tricks"]
    a, b = [3, 9_999_999_999, 1_234_567_890], [4, 1, 9_876_543_210]
    assert [submission.add(model, *pair) for pair in zip(a, b, strict=True)] == add(spec, theta, a, b)
