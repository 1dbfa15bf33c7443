"""`export --format arena`, by a harness of our own after the rules of benedictbrady/addition-challenge.

The harness decodes: a submission says what the tokens are and what they mean.
"""

import importlib.util
import inspect
import random
import shutil
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from adders.export import export_source
from model import PRESETS, add
from model.families.low_rank.spec import LowRank
from search.study.checkpoints import load_any
from tests import CERTIFICATES, by_tier
from tests.adderboard_runner import problems
from tests.adders.golden_checkpoints import published_file
from tests.commands import done
from tests.specs import some_theta

pytestmark = pytest.mark.usefixtures("here")
EXPORTS = {"build_model", "encode", "decode", "VOCAB_SIZE", "MAX_OUTPUT_LEN"}


def loaded(path):
    """A file as the harness loads it: by its path, with its source to be read."""
    found = importlib.util.spec_from_file_location(f"submission_{path.stem}", path)
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    return module


def decoded(submission, model, pairs):
    """Greedy decoding of all pairs at once, all MAX_OUTPUT_LEN tokens of each."""
    tokens_BT = torch.tensor([submission.encode(a, b) for a, b in pairs])
    prompt = tokens_BT.shape[1]
    with torch.no_grad():
        for _ in range(submission.MAX_OUTPUT_LEN):
            next_B = model(tokens_BT)[:, -1].argmax(-1)
            tokens_BT = torch.cat([tokens_BT, next_B[:, None]], dim=1)
    return [submission.decode(tokens) for tokens in tokens_BT[:, prompt:].tolist()]


def counted(model):
    """Parameters, frozen ones too, and numbers in buffers, each storage once."""
    tensors = [*model.parameters(), *(b for b in model.buffers() if b.dtype != torch.bool)]
    return sum({t.data_ptr(): t.numel() for t in tensors}.values())


def checked(submission):
    """The model of a submission that keeps the rules, and the number of its parameters."""
    public = {name for name in vars(submission) if name in EXPORTS | {"add", "generate"}}
    assert public == set(submission.__all__) == EXPORTS
    assert type(submission.VOCAB_SIZE) is int and 2 <= submission.VOCAB_SIZE <= 256
    assert type(submission.MAX_OUTPUT_LEN) is int and 1 <= submission.MAX_OUTPUT_LEN <= 30
    model, metadata = submission.build_model()
    assert isinstance(model, nn.Module) and type(metadata) is dict
    inner = [module for name, module in model.named_modules() if name]
    seen = []
    for module in inner:
        if "attention" in type(module).__name__.lower():
            module.register_forward_hook(lambda *_: seen.append(1))

    rng, size = random.Random(42), submission.VOCAB_SIZE
    tokens = [rng.randrange(size) for _ in range(8)]
    other = [*tokens[:-1], (tokens[-1] + 1) % size]
    one, two = (model(torch.tensor([t]))[0] for t in (tokens, other))
    assert one.shape == (8, size) and len(seen) == 2, "it attends in a module"
    assert float((one[:-1] - two[:-1]).detach().abs().max()) < 1e-3, "it does not look ahead"

    for a, b in ((0, 0), (9_999_999_999, 9_999_999_999), (12_345, 67_890), (1, 9_999_999_999)):
        encoded = submission.encode(a, b)
        assert type(encoded) is list and len(encoded) <= 35 and all(0 <= t < size for t in encoded)
        assert encoded == submission.encode(a, b) != submission.encode(a, b - 1 if b else 1)
    for _ in range(10):
        garbage = [rng.randrange(size) for _ in range(rng.randint(1, submission.MAX_OUTPUT_LEN))]
        assert submission.decode(garbage) not in (123 + 456, 10_000_000_000, 9_999)
    for function in (submission.encode, submission.decode):
        source = inspect.getsource(function)
        assert not {"global", "nonlocal", "import", "eval", "exec"} & set(source.split())
    return model, counted(model)


def qualified():
    """The parameters of s.py, which keeps the rules, and how many of AdderBoard's pairs it adds."""
    submission, pairs = loaded(Path("s.py")), problems()
    model, count = checked(submission)
    return count, sum(answer == a + b for answer, (a, b) in zip(decoded(submission, model, pairs), pairs, strict=True))


@pytest.mark.parametrize("name", by_tier(["6p", "7p", "133p"], ["6p"]))
def test_what_adds_qualifies(name):
    """The larger ones with their verdicts, which `export` decides."""
    folder = CERTIFICATES / name
    if name == "6p":
        folder = Path(shutil.copytree(folder, name, ignore=shutil.ignore_patterns("proof.json")))
    said = done("export", folder, "--format", "arena", "-o", "s.py")
    params = load_any(folder).spec.params
    assert said == f"s.py: {params} parameters, build_model() and encode(a, b) and decode(tokens)\n"
    assert qualified() == (params, 10_010)


@pytest.mark.full
def test_a_published_net_qualifies():
    """Of another family, and not right on all."""
    done("import", published_file("foreign/lichengliu_262.pt"), "-o", "ours")
    done("export", "ours", "--format", "arena", "-o", "s.py")
    assert qualified() == (262, 10_005)


@pytest.mark.parametrize("name", by_tier([*PRESETS, "low_rank"], ["242p", "46p", "36p", "low_rank"]))
def test_each_preset_keeps_the_rules_and_says_what_we_decode(name):
    spec = PRESETS.get(name) or LowRank()
    theta_P = some_theta(spec)[0]
    file = Path("s.py")
    file.write_text(export_source(spec, theta_P, name="n", author="a", provenance={}, arena=True), encoding="utf-8")
    submission = loaded(file)
    model, count = checked(submission)
    assert count == spec.params
    pairs = problems()[:30]
    ours = add(spec, theta_P.double(), *zip(*pairs, strict=True))
    assert decoded(submission, model.double(), pairs) == ours
