"""Other people's checkpoints: read right, refused in words, and nothing in them is run.

Published files are the oracle for whole files. Settings that none of them has are tried with any tensors.
"""

import argparse
import json
import os
import pickle
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from adders.foreign import microadder as foreign_microadder
from adders.foreign.read import read_foreign
from model import PRESETS, verify
from model.families.low_rank.spec import SHARED, TIES, LowRank
from search.cli.options import counted_lines
from search.study.checkpoints import load_any
from tests import by_tier
from tests.adders.foreign import (
    FILE,
    NEW,
    SMALL,
    AnyState,
    microadder,
    parts,
    read_as,
    refused,
    repacked,
    report,
    written,
)
from tests.adders.golden_checkpoints import SPECS as GOLDEN
from tests.adders.golden_checkpoints import golden_file, published_file
from tests.commands import call, done, says
from trainer.checkpoints.checkpoint import JSON_FILE, THETA_FILE

pytestmark = pytest.mark.usefixtures("here")


# What is read


@pytest.mark.parametrize("name", by_tier(list(GOLDEN), ["226p", "57p"]))
def test_published_checkpoints(name):
    checkpoint = read_foreign(golden_file(name))
    assert checkpoint.spec == PRESETS[name] and checkpoint.spec.params == int(name[:-1])
    assert verify(checkpoint.spec, checkpoint.theta_P).correct == (10_008 if name == "226p" else 10_010)
    assert checkpoint.metrics == {"exact_match": 1.0, "token_accuracy": 1.0} and checkpoint.step >= 30_000
    seed = checkpoint.provenance["arguments"]["seed"]
    assert checkpoint.seed == {"init_seed": seed, "data_seed": seed}
    assert checkpoint.provenance["imported_from"] == f"microadder_{name}.pt"


OLDER_LADDER = yaml.safe_load("""
242p: {n_heads: 2}
226p: {pos_mode: spiral_correct}
214p: {attn_out_rank: 2}
203p: {pos_correction_mode: linear, freeze_special: eos}
187p: {tie_qk: true, q_phase: true}
170p: {tok_dim: 2, pos_dim: 4}
141p: {n_heads: 1, head_dim: 5, pos_dim: 3}
133p: {vocab_size: 10}
100p: {ffn_bias: false, attn_out_rank: 1, tok_emb_mode: parametric}
90p: {norm_mode: shared}
80p: {tie_vo: true}
78p: {pos_correction_mode: none}
75p: {freeze_special: plus_eos}
74p: {tie_tok_arc_ab: true}
72p: {tie_tok_arc_ab: false, freeze_z_hi: true}
71p: {freeze_spiral: slope}
70p: {freeze_spiral: 'amp,phase,slope,offset', tie_tok_arc_ab: true, freeze_z_hi: false}
67p: {qk_dim: 4}
""")
"""The older tree's settings, each with those of the models above it."""
SPIRAL = ("amp", "phase", "slope", "offset")
START = {"spiral_amp": 1.0, "spiral_slope": 1 / 9}


def older(name, **changes):
    settings = {}
    for preset, more in OLDER_LADDER.items():
        settings |= more
        if preset == name:
            return settings | changes
    raise AssertionError(name)


def read_settings(config, is_older):
    """Spec, θ and tensors' names of a file with these settings; a frozen spiral starts at START."""
    circular = config.get("tie_tok_arc_ab", not is_older)
    names = ["blocks.0.x"] * is_older + ["tok_arc_B"] * (not circular)
    state = AnyState(*names)
    spec, theta_P = foreign_microadder.read(config, state)
    frozen = ("spiral_amp", "spiral_slope") if spec.frozen_spiral else ()
    numbers = torch.cat([t.flatten() for name, t in state.taken.items() if name not in frozen])
    assert torch.equal(theta_P.sort().values, numbers), "θ has each number of the tensors once"
    return replace(spec, **START) if frozen else spec, state.taken, theta_P


@pytest.mark.parametrize(
    ("config", "base", "options", "names"),
    [
        *[pytest.param(older(name), name, {}, [], id=name) for name in OLDER_LADDER],
        (older("242p"), "242p", {}, ["digit_pos", "special_pos"]),
        (older("133p", freeze_spiral="slope"), "133p", {"flat_spiral": True}, ["spiral_offset"]),
        (
            older("74p", spiral_init_amp=3.5, spiral_init_slope=0.15), "74p",
            {"spiral_amp": 3.5, "spiral_slope": 0.15}, [],
        ),
        (older("75p", norm_mode="fixed"), "75p", {"parameterless_norm": True}, []),
        (older("67p", ffn_dim=8), "67p", {"hidden": 8}, []),
        (older("187p", n_heads=3, pos_dim=6), "187p", {"heads": 3, "pos_dim": 6}, []),
        (older("67p", q_proj_mode="toeplitz"), "67p", {"toeplitz_q": True}, ["blocks.0.attn.q_proj.vals"]),
        (older("75p", num_kv_heads=1, token_init="normal", novelty=False, third=None, lr=0.02), "75p", {}, []),
    ],
)  # fmt: skip
def test_settings_of_microadders_older_tree(config, base, options, names):
    spec, taken, _ = read_settings(config, is_older=True)
    assert spec == replace(PRESETS[base], **START | options) and set(names) <= taken.keys()


LOW_RANK = {
    **{name: spec for name, spec in PRESETS.items() if spec.family == "low_rank"},
    **{f"{tie}, full": LowRank(tie_qkv=tie) for tie in TIES},
    **{f"{tie}, rank 3": LowRank(tie_qkv=tie, qkv_rank=3) for tie in (*TIES, *SHARED)},
}


@pytest.mark.parametrize("spec", [pytest.param(spec, id=name) for name, spec in LOW_RANK.items()])
def test_the_456p_report(spec):
    checkpoint = read_as(spec, written(report(spec)))
    assert checkpoint.provenance["format"] == "456p report" and checkpoint.metrics == {"val_exact": 1.0}
    assert checkpoint.seed == {"init_seed": 43, "data_seed": 43} and checkpoint.step == 34_000
    if spec == LowRank():
        assert read_foreign(written(report(spec) | {"model_config": {}})).spec == spec


def test_provenance_is_plain_and_written_as_ours():
    nested = argparse.Namespace(lr=0.02, wd=float("nan"))
    arguments = argparse.Namespace(seed=5, out=Path("/a/b"), big=2**70, extra=nested, t=torch.ones(2))
    content = microadder() | {"args": arguments, "metrics": {"exact_match": float("inf"), 3: 4}}
    content["model_state_dict"] = OrderedDict(content["model_state_dict"])
    checkpoint = read_as(NEW, written(content))
    assert checkpoint.provenance["arguments"] == {
        "seed": 5, "out": "/a/b", "big": 2**70, "extra": {"lr": 0.02, "wd": "nan"}, "t": "a Tensor",
    }  # fmt: skip
    assert checkpoint.metrics == {"exact_match": "inf"}
    checkpoint.save(Path("ours"))
    for path in (Path("ours"), Path("ours", JSON_FILE), Path("ours", THETA_FILE)):
        again = load_any(path)
        assert again.as_dict() == checkpoint.as_dict() and torch.equal(again.theta_P, checkpoint.theta_P)
    assert read_foreign(written(content | {"args": {"seed": "5"}})).seed == {}


# What programs put around a model


def renamed(content, rename):
    """A file's content with other names of its tensors."""
    (place,) = {"model_state_dict", "model_state"} & content.keys()
    return content | {place: {rename(name): tensor for name, tensor in content[place].items()}}


def inside(name):
    """A name where a module inside the model is compiled, or every one of them."""
    head, dot, last = name.rpartition(".")
    return f"{head}._orig_mod{dot}{last}" if dot else name


@pytest.mark.parametrize(
    "rename",
    [
        inside,
        *[
            lambda name, prefix=prefix: prefix + name
            for prefix in (
                "_orig_mod.", "module.", "module._orig_mod.", "_orig_mod.module.", "model.", "model.net.",
                "ema_model.", "_forward_module.model.", "adder.", "student.core.",
            )
        ],
    ],
)  # fmt: skip
def test_what_a_program_puts_around_a_model_is_not_of_it(rename):
    for content, spec in ((microadder(), NEW), (report(SMALL), SMALL)):
        read_as(spec, written(renamed(content, rename)))


def averaged(state):
    return {f"module.{name}": tensor for name, tensor in state.items()} | {"n_averaged": torch.tensor(7)}


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda state, config: {"state_dict": state, "hyper_parameters": config, "epoch": 3},
        lambda state, config: {"state_dict": state, "hyper_parameters": {"config": config, "lr": 0.1}},
        lambda state, config: {"model": state, "config": argparse.Namespace(**config)},
        lambda state, config: {"ema_model": averaged(state), "model_config": config},
        lambda state, config: {"model_state_dict": state, "ema": {"other": 1}, "config": config},
        lambda state, config: {"net": OrderedDict(state), "hparams": config},
        lambda state, config: {"net": state, "config": "a.yaml", "hparams": config | {"config": "a.yaml", "steps": 9}},
    ],
)
def test_tensors_and_settings_under_other_keys(wrapped):
    content = microadder()
    read_as(NEW, written(wrapped(content["model_state_dict"], content["config"])))


def test_two_models_are_not_told_apart():
    content = microadder()
    both = {f"{holder}.{n}": t for n, t in content["model_state_dict"].items() for holder in ("model", "ema_model")}
    first = next(iter(content["model_state_dict"]))
    expected = f"model_state_dict has two models, as of model.{first} and ema_model.{first}; save one of them alone"
    assert refused(written(content | {"model_state_dict": both})) == expected
    content["model"] = content["ema"] = content.pop("model_state_dict")
    assert refused(written(content)) == "it has several models: model, ema; save one of them alone"


def test_an_error_has_the_files_own_names():
    content = renamed(microadder(), lambda name: f"_orig_mod.{name}")
    content["model_state_dict"]["_orig_mod.fc1.weight"] = torch.ones(1)
    assert "tensor _orig_mod.fc1.weight must have shape" in refused(written(content))


LAYER_NORM = "architecture not known here: LayerNorm, and its family here has RMSNorm"
SPELLED_OUT = {
    "pe_type": "learned", "pe_init_period": 11.0, "norm_type": "", "token_emb_rank": 0, "use_index_emb": False,
    "lm_head_rank": 0,
}  # fmt: skip


@pytest.mark.parametrize("settings", [SPELLED_OUT, *({name: value} for name, value in SPELLED_OUT.items())], ids=str)
def test_defaults_may_be_spelled_out(settings):
    assert read_foreign(written(report(SMALL, **settings))).spec == SMALL


@pytest.mark.parametrize(
    ("name", "params", "correct"),
    [("lichengliu_262", 262, 10_005), pytest.param("jack_242", 242, 9_917, marks=pytest.mark.full)],
)
def test_published_files_of_other_programs(name, params, correct):
    checkpoint = read_foreign(published_file(f"foreign/{name}.pt"))
    assert checkpoint.spec.params == params and verify(checkpoint.spec, checkpoint.theta_P).correct == correct


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("neelectric_211.npz", "architecture not known here: two layers: this reads one"),
        ("jack_234.pt", f"{LAYER_NORM}*"),
        ("fblissjr_trained_mask-none.pt", "a bare state dict: tensors without the settings*"),
    ],
)
def test_published_files_that_no_spec_can_say(name, expected):
    assert says(refused(published_file(f"foreign/{name}")), expected)


@pytest.mark.parametrize(
    ("name", "preset", "held"),
    [
        ("72p", "75p", ["z_hi"]),
        ("70p", "75p", ["spiral phase", "spiral offset", "z_hi"]),
        ("65p", "74p", ["arc start", "arc stride", *(f"spiral {n}" for n in SPIRAL), "z_hi"]),
    ],
)
def test_published_files_with_learned_values_frozen_on_the_way(name, preset, held):
    """A number that was learned counts, whenever it was frozen: what the files say is fewer."""
    checkpoint = read_foreign(published_file(f"foreign/micro_{name}.pt"))
    assert replace(checkpoint.spec, **START) == replace(PRESETS[preset], **START)
    assert checkpoint.provenance["frozen_on_the_way"] == held
    (line,) = counted_lines(checkpoint.spec, checkpoint.provenance)
    assert line.startswith(f"  its author may count {name[:-1]}: ")
    assert verify(checkpoint.spec, checkpoint.theta_P).verified


def test_what_is_frozen_counts_unless_somebody_chose_it():
    whole = microadder()
    chosen = read_foreign(written(whole))
    assert chosen.spec == NEW and "frozen_on_the_way" not in chosen.provenance

    whole["model_state_dict"]["spiral_phase"] = torch.tensor(-0.3771967)  # learned, then frozen
    why = (
        f"  its author may count {NEW.params}: 4 more, learned and then frozen, count here: "
        "spiral amp, spiral phase, spiral slope, spiral offset\n"
    )
    assert why in call("import", written(whole), "-o", "ours").output
    assert all(why in call("verify", path).output for path in (written(whole), "ours"))
    learned = load_any(Path("ours"))
    assert learned.spec == replace(NEW, frozen_spiral=False) and learned.spec.params == NEW.params + 4
    assert torch.equal(learned.theta_P[3:7], torch.tensor([3.5, -0.3771967, 0.15, 0.0]))
    assert learned.provenance["frozen_on_the_way"] == [f"spiral {name}" for name in SPIRAL]

    assert not any(counted_lines(NEW, {"frozen_on_the_way": claimed}) for claimed in (None, [], [[1]], {"a": 1}, 1))

    whole = microadder(spiral_init_amp=1.0)  # chosen elsewhere: of few digits
    assert read_foreign(written(whole)).spec == NEW
    whole["model_state_dict"]["spiral_amp"] = torch.tensor(2.3609099)
    whole["config"]["freeze_tok_arc"] = "stride,start"
    assert read_foreign(written(whole)).provenance["frozen_on_the_way"][:3] == [
        "arc start", "arc stride", "spiral amp",
    ]  # fmt: skip


def ancestors(**more):
    """242p as JackCai1206's program leaves it: tensors alone."""
    p, last = parts(PRESETS["242p"]), {"plus": 0, "equals": 1, "eos": 2}
    state = {"digit_enc": p["digits"], "z10_enc": p["z_hi"][None], "special_enc": torch.stack([p[n] for n in last])}
    state |= {"tok_emb.weight": p["tokens"], "out_proj.weight": p["out"], "head_proj.weight": p["head"]}
    state |= {f"{name}.weight": p[name] for name in ("q_proj", "k_proj", "v_proj")}
    for ours, theirs in (("fc1", "ffn.0"), ("fc2", "ffn.2")):
        state |= {f"{theirs}.weight": p[ours], f"{theirs}.bias": p[f"{ours}_bias"]}
    state |= {f"{norm}.weight": p["norm"][n] for n, norm in enumerate(("ln1", "ln2", "ln_f"))}
    return state | {"causal_mask": torch.ones(34, 34), "_pos_indices": torch.ones(34)} | more


def test_an_ancestors_tensors_alone():
    state, spec = ancestors(), PRESETS["242p"]
    assert read_as(spec, written(state)).provenance["format"] == "JackCai1206"
    for wrapped in ({"model": state}, {f"module.{name}": tensor for name, tensor in state.items()}):
        read_as(spec, written(wrapped))
    shared = ancestors(**{"ln_f.bias": torch.zeros(6)})  # 248: two of three norms are one
    del shared["ln2.weight"]
    assert says(refused(written(shared)), f"{LAYER_NORM}, without means and biases; *verify --run-code tries*")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"alibi": True}, "architecture not known here: alibi=True"),
        ({"softmax1": True}, "architecture not known here: softmax1=True"),
        ({"ffn_dim": 5}, "ffn_dim is 5, and its tensors have 2"),
    ],
    ids=str,
)
def test_an_ancestors_settings_are_read_where_it_has_some(setting, message):
    file = {"model": ancestors(), "config": {"d_model": 6, "ffn_dim": 2}}
    assert read_foreign(written(file)).spec == replace(PRESETS["242p"], **START)
    file["config"] |= setting
    assert refused(written(file)) == message


def test_an_ancestor_with_other_hidden_units():
    wider = {"ffn.0.weight": torch.ones(3, 6), "ffn.0.bias": torch.ones(3), "ffn.2.weight": torch.ones(6, 3)}
    assert read_foreign(written(ancestors(**wider))).spec == replace(PRESETS["242p"], hidden=3)


def test_an_ancestors_spiral():
    state = ancestors(**{f"pos_spiral_{name}": torch.tensor(n + 0.5) for n, name in enumerate(SPIRAL)})
    del state["digit_enc"]
    checkpoint = read_foreign(written(state))
    expected = replace(PRESETS["242p"], spiral=True, plain_spiral=True)
    assert checkpoint.spec == expected and expected.params == 216
    spiral = expected.layout.split(checkpoint.theta_P[None])["spiral"]
    assert spiral.tolist() == [[0.5, 1.5, 2.5, 3.5]]
    learned = {"model": state, "config": {"pos_mode": "learned"}}
    assert refused(written(learned)) == "pos_mode is 'learned', and its tensors have 'spiral_correct'"


# What is refused: settings and tensors

UNKNOWN = "architecture not known here: "


def untied():
    content = report(SMALL)
    content["model_state"]["lm_head.weight"][3, 2] += 1e-6
    return content


def without_numbers():
    content = microadder()
    content["model_state_dict"]["spiral_phase"] = torch.zeros((), device="meta")
    return content


def endless():
    content = microadder()
    content["config"]["config"] = content["config"]
    return content


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        *[
            ({name: value}, f"{UNKNOWN}{name}={value}")
            for name, value in {
                "n_layers": 2, "alibi": True, "vocab_size": 12, "norm_mode": "scalar", "d_model": 6,
                "freeze_spiral": "slope,tilt", "num_kv_heads": 2, "novelty": "yes", "tie_fc2_head": True,
                "freeze_tok_arc": "C", "head_dim": 4, "pos_correction_mode": "some",
            }.items()
        ],
        ({"q_proj_mode": "toeplitz", "n_heads": 5, "head_dim": 1}, f"{UNKNOWN}q_proj_mode=toeplitz with n_heads=5"),
        ({"ffn_dim": 1}, f"{UNKNOWN}hidden must be from 2 to 16, got 1"),
        ({"n_layers": "1"}, "n_layers must be like 1, got '1'"),
        ({"spiral_init_amp": float("nan")}, "spiral_init_amp must be a finite number, got nan"),
    ],
    ids=str,
)  # fmt: skip
def test_settings_of_the_older_tree_that_no_spec_can_say(changes, expected):
    with pytest.raises(ValueError) as error:
        read_settings(older("75p", **changes), is_older=True)
    assert says(str(error.value), expected)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (microadder(norm_mode="shared"), f"{UNKNOWN}norm_mode=shared"),
        (
            microadder(equals_spiral_idx=9.5, freeze_spiral=""),
            f"{UNKNOWN}equals_spiral_idx=9.5 with a learned spiral",
        ),
        (
            microadder(equals_spiral_idx=9.5),
            "tensor special_pos_equals must be on the spiral where it is frozen, and is not",
        ),
        (microadder() | {"step": "84000"}, "step must be an integer, got '84000'"),
        (microadder() | {"config": [1]}, "config must be a dictionary, got a list"),
        (
            report(SMALL, pe_type="rotary", n_layer=2, act="relu", sparse=True, extra="on", more=7),
            f"{UNKNOWN}act=relu, sparse=True, extra=on, more=7 and 2 more",
        ),
        (microadder(n_layers=2, alibi=True, qk_input="tok"), f"{UNKNOWN}alibi=True, n_layers=2, qk_input=tok"),
        (microadder()["model_state_dict"], "a bare state dict: tensors without the settings of their model*"),
        ({"state_dict": report(SMALL)["model_state"]}, "a bare state dict: tensors without the settings*"),
        (
            renamed(report(SMALL), lambda name: name.replace("blocks.0", "blocks.1")),
            f"{UNKNOWN}two layers: this reads one",
        ),
        (report(SMALL, tie_qkv="vk"), f"{UNKNOWN}tie_qkv=vk"),
        (report(SMALL, qkv_rank=0), f"{UNKNOWN}tie_qkv=shareA_tieKV needs a qkv_rank above 0, got qkv_rank=0"),
        (report(SMALL, attn_out_rank=3), "tensor blocks.0.attn.proj.A must have shape (7, 3), found (7, 2)"),
        (report(SMALL) | {"params": 455}, "params is 455, but its settings and tensors make 456"),
        (untied(), "tensor lm_head.weight must be token_emb.weight, to which it is tied, and is not"),
        (without_numbers(), "spiral_phase must be a dense tensor, got a Tensor"),
        (endless(), "its settings are nested more than 8 deep"),
        ({}, "a checkpoint of no known format: MicroAdder's has *"),
        (torch.ones(2), "its content must be a dictionary, got a Tensor"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_contents_that_no_spec_can_say(content, expected):
    assert says(refused(written(content)), expected)


# What is refused: files


class Runs:
    """A pickle of it makes a file when it is read."""

    def __reduce__(self):
        return os.system, (f"touch {Path('was-run').resolve()}",)


def test_nothing_is_run():
    content = microadder()
    for hostile in (
        Runs(),
        content | {"optimizer_state_dict": {"state": [Runs()]}},
        content | {"model_state_dict": content["model_state_dict"] | {"fc1.weight": Runs()}},
    ):
        assert refused(written(hostile)).startswith("its pickle asks for posix.system, as no known")
    FILE.write_bytes(pickle.dumps(Runs()))
    assert refused(FILE) == "a plain pickle, not a PyTorch checkpoint; nothing of it was run"
    assert not Path("was-run").exists()


def test_files_that_are_no_checkpoints():
    whole = written(microadder()).read_bytes()
    damaged = "truncated or damaged: it begins like a PyTorch file and is not whole"
    for content, expected in (
        (b"", "empty"),
        (b"hello", "not a checkpoint: no folder of ours, no PyTorch archive"),
        (whole[:-1], damaged),
        (whole[:4], damaged),
        (whole.replace(b"tok_arc_A", b"tok_arc_X"), damaged),
        (b"PK\x03\x04" * 2**21, f"larger than any checkpoint known here ({2**23:,} bytes)"),
    ):
        FILE.write_bytes(content)
        assert refused(FILE) == expected
    program = Path("submission.py")
    program.write_text("def add(model, a, b): return a + b")
    assert refused(program).startswith("a program, not a checkpoint; nothing of it was run.")
    more = repacked(whole, lambda pickled: pickled.replace(b"K\x02K\x05", b"K\x02K\x7f"))
    FILE.write_bytes(more)  # than its storage holds
    assert refused(FILE) == "damaged: its pickle cannot be read"
    Path("folder").mkdir()
    assert refused(Path("folder")) == "not a file" and refused(Path("nowhere")) == "no such file"


# The commands


def test_import_then_verify_and_export():
    written(microadder())
    result = call("import", FILE, "-o", "ours", code=0)
    assert not result.stderr
    first, second = result.stdout.splitlines()
    assert first == "ours: from a MicroAdder checkpoint"
    assert second.startswith("  57p, 57 parameters: ") and second.endswith("/10,010 NOT QUALIFIED")
    assert sorted(f.name for f in Path("ours").iterdir()) == [JSON_FILE, THETA_FILE]
    for path in ("ours", FILE):
        assert call("verify", path).stdout.startswith(second.strip())
    done("export", "ours", "-o", "s.py")
    Path("empty").mkdir()
    about = json.loads(done("import", FILE, "-o", "empty", "--json"))
    assert about["checkpoint"] == "empty" and about["format"] == "MicroAdder" and about["params"] == 57
    assert about["spec"] == NEW.as_dict() and about["total"] == 10_010 and not about["verified"]
    for target in ("ours", "."):
        line = call("import", FILE, "-o", target).stderr
        assert line == f"error: {target}: exists and is not empty; choose another folder with -o\n"
