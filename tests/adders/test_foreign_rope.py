"""Checkpoints of Qwen-like adders: tbukic's settings and tensors, and tensors with Qwen3's names."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from adders.foreign.read import read_foreign
from adders.foreign.rope import GROUPS, PLACES, QWEN
from model import PRESETS
from model.families.rope import Rope
from tests.adders.foreign import parts, read_as, refused, written
from tests.commands import call
from tests.specs import any_tokens, some_theta

pytestmark = pytest.mark.usefixtures("here")


def _path(name):
    """A module as its groups name it: what is done to it, and where it is."""
    change, colon, module = name.rpartition(":")
    return f"{change}{colon}block.attn.{module}"


def tbukic(spec, **config):
    """A spec as the training code of Qwen-like adders writes it, shared modules under both of their names."""
    p = parts(spec)
    state = {PLACES[name]: t for name, t in p.items() if name != "arc"}
    state |= {place: state[place].reshape(()) for place in state if place.endswith(("alpha", "theta"))}
    if spec.arc:
        state |= dict(zip(("arc_A", "arc_start", "arc_stride"), p["arc"].unbind(), strict=True))
    again = {"kv": "block.attn.v_proj.weight", "qk_norm": "block.attn.k_norm.weight", "norm": "block.ln2.weight"}
    state |= {place: p[name].clone() for name, place in again.items() if name in p}
    state |= {"block.attn.o_proj.weight": p["q"].T.clone()} if spec.tie_oq else {}
    ties = [group.split(", ") for group, constraint in GROUPS.items() if getattr(spec, constraint)]
    settings = {
        "d_model": spec.width, "ff": spec.ffn, "n_heads": spec.heads, "n_kv_heads": 1, "head_dim": 4,
        "rope_theta": 3.0, "tie_kv": spec.tie_kv, "tie_qo": spec.tie_oq, "share_norms": spec.shared_norms,
        "share_block_norms": spec.shared_block_norms, "share_qk_norm": spec.shared_qk_norm,
        "tie_groups": [[_path(name) for name in group] for group in ties],
        **({"model_class": "arc"} if spec.arc else {}),
    }  # fmt: skip
    return {
        "state_dict": state, "config": settings | config, "step": 330_000, "accuracy": 1.0,
        "n_params": spec.params,
    }  # fmt: skip


def qwen(spec):
    return {QWEN[name]: t for name, t in parts(spec).items()}


def as_safetensors(state):
    save_file({name: t.contiguous() for name, t in state.items()}, "theirs.safetensors")
    return Path("theirs.safetensors")


def as_npz(state):
    np.savez("theirs.npz", **{name: t.numpy() for name, t in state.items()})
    return Path("theirs.npz")


PLAIN = [n for n, s in PRESETS.items() if isinstance(s, Rope) and not (s.sine_input or s.rank1_out or s.half_split)]


@pytest.mark.parametrize("name", PLAIN)
def test_settings_and_tensors_are_read(name):
    checkpoint = read_as(PRESETS[name], written(tbukic(PRESETS[name])))
    assert checkpoint.step == 330_000
    assert checkpoint.metrics == {"accuracy": 1.0, "n_params": PRESETS[name].params}


@pytest.mark.parametrize("form", [as_safetensors, as_npz, written])
@pytest.mark.parametrize("name", ["228p", "137p", "122p"])
def test_tensors_alone_are_read(name, form):
    spec = replace(PRESETS[name], half_split=True)
    read_as(spec, form(qwen(spec)))


HUB = {
    "model_type": "qwen3", "rope_theta": 10_000.0, "rms_norm_eps": 1e-6, "hidden_size": 3, "rope_scaling": None,
    "layer_types": ["full_attention"], "pad_token_id": 1, "pruned_heads": {}, "lr": 0.01, "steps": 5_000,
}  # fmt: skip


def test_settings_beside_qwens_tensors_are_read():
    spec = replace(PRESETS["122p"], half_split=True, rope_base=10_000.0)
    checkpoint = read_foreign(written({"state_dict": qwen(spec), "config": HUB}))
    assert checkpoint.spec == spec and "assumed" not in checkpoint.provenance
    line = "  assumed, as the file does not say: rope_theta 3"
    assert line in call("import", written(qwen(spec)), "-o", "ours").stdout.splitlines()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"rms_norm_eps": 1e-5}, "architecture not known here: rms_norm_eps=1e-05"),
        ({"hidden_act": "gelu"}, "architecture not known here: hidden_act=gelu"),
        ({"rope_scaling": {"type": "linear"}}, "architecture not known here: rope_scaling=a dict"),
        ({"layer_types": ["sliding_attention"]}, "architecture not known here: layer_types=a list"),
        ({"hidden_size": 5}, "hidden_size is 5, and its tensors have 3"),
        ({"rope_theta": "3"}, "rope_theta must be a finite number, got '3'"),
    ],
    ids=str,
)
def test_settings_beside_qwens_tensors_that_no_spec_can_express(config, message):
    file = {"state_dict": qwen(replace(PRESETS["122p"], half_split=True)), "config": HUB | config}
    assert refused(written(file)) == message


REFUSALS = {
    "embed of 11": (
        lambda f: f["state_dict"].update({"embed.weight": torch.zeros(11, 3)}),
        "tensor embed.weight must have shape (10, 3), found (11, 3)",
    ),
    "missing": (
        lambda f: f["state_dict"].pop("block.mlp.up_proj.weight"),
        "tensor block.mlp.up_proj.weight is missing",
    ),
    "unknown": (
        lambda f: f["state_dict"].update({"block.router.weight": torch.zeros(3)}),
        "tensors that are no part of this architecture: block.router.weight",
    ),
    "unequal": (
        lambda f: f["state_dict"].update({"block.attn.v_proj.weight": torch.zeros(4, 3)}),
        "tensor block.attn.v_proj.weight must be equal to block.attn.k_proj.weight, to which it is tied, and is not",
    ),
    "class": (lambda f: f["config"].update(model_class="spline"), "architecture not known here: model_class=spline"),
    "setting": (lambda f: f["config"].update(softcap=30.0), "architecture not known here: softcap=30.0"),
    "no group": (lambda f: f["config"].update(tie_groups=[[]]), "architecture not known here: tie_groups=a list"),
    "group": (
        lambda f: f["config"].update(tie_groups=[["block.mlp.up_proj", "negate:block.mlp.down_proj"]]),
        "architecture not known here: tie_groups=up_proj, negate:down_proj",
    ),
}  # fmt: skip


@pytest.mark.parametrize("change, message", REFUSALS.values(), ids=REFUSALS)
def test_what_no_spec_can_express_is_one_line(change, message):
    file = tbukic(PRESETS["89p"])
    change(file)
    assert refused(written(file)) == message


@pytest.mark.full  # transformers takes seconds to import; tests/contract compares what we compute with two other ways
@pytest.mark.parametrize("name", ["228p", "137p", "146p"])
def test_the_forward_pass_is_that_of_transformers(name):
    """Weights drawn at random. Their angles are float32, whatever the weights are."""
    transformers = pytest.importorskip("transformers")
    spec = read_foreign(as_safetensors(qwen(PRESETS[name]))).spec
    theta_1P, tokens_1TB = some_theta(spec).double(), any_tokens(spec)
    config = transformers.Qwen3Config(
        vocab_size=10, hidden_size=spec.width, intermediate_size=spec.ffn, num_hidden_layers=1,
        num_attention_heads=spec.heads, num_key_value_heads=1, head_dim=4, rope_theta=3.0, rms_norm_eps=1e-6,
        tie_word_embeddings=True, attention_bias=False, max_position_embeddings=64,
        attn_implementation="eager",
    )  # fmt: skip
    assert read_foreign(written({"state_dict": qwen(spec), "config": config.to_dict()})).spec == spec
    theirs = transformers.Qwen3ForCausalLM(config).double().eval()
    theirs.load_state_dict({n: t.double() for n, t in qwen(spec).items()}, strict=False)
    with torch.no_grad():
        logits_BTV = theirs(tokens_1TB[0].T.long()).logits
        ours = spec.forward(theta_1P, tokens_1TB, spec.prompt - 1)
    expected = logits_BTV[:, spec.prompt - 1 :].permute(2, 1, 0)
    torch.testing.assert_close(torch.stack([v[0] for v in ours]), expected, rtol=1e-5, atol=1e-5)
