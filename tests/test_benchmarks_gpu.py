"""The GPU's benchmark, rehearsed: its findings on a CPU, eager and tiny; its parts as processes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from benchmarks.gpu_parts import Part, findings, tiny

from benchmarks import gpu, gpu_parts
from model import preset
from model.families.split_subspace import SplitSubspace
from model.spec import Spec
from tests.specs import some_tokens
from trainer.engine import programs
from trainer.engine.native import EngineBackend
from trainer.files.installed import missing_for_compilation
from trainer.step import step

ROOT = Path(__file__).parents[1]


@pytest.fixture
def put_back(monkeypatch):
    """What a part changes in its process."""
    monkeypatch.setattr(programs, "Replay", programs.Replay)
    monkeypatch.setattr(SplitSubspace, "forward", Spec.forward)


def found_by(kind):
    rows = list(findings(tiny(Part(kind, "57p", 64, 256))))
    assert all((row["kind"], row["rung"], row["batch"]) == (kind, "57p", 4) for row in rows)
    return {name: value for row in rows for name, value in row.items()}, rows


def test_correctness_is_compared_with_the_cpu(put_back, few_selection_problems):
    found, _ = found_by("correctness")
    assert found["reference"] == "programs" and found["tokens_equal"]
    assert found["largest_relative_difference_of_loss_by_step"] == [0] * gpu_parts.REHEARSED_STEPS
    assert found["exact_of_the_first"] == 1, "the certificate's θ"
    assert found["evaluation_largest_difference"] == {"exact": 0, "token": 0, "loss": 0}
    assert found["same_with_graphs"] and found["same_again"] and found["largest_difference_by_slot"] < 1e-4


@pytest.mark.skipif(bool(missing_for_compilation()), reason=f"needs {missing_for_compilation()}")
def test_the_reference_is_the_engine_where_it_can_be_built(put_back, few_selection_problems):
    made = gpu_parts.make_bank(tiny(Part("correctness", "170p", 64, 256)))
    reference = gpu_parts.bank.programs_of(made.spec, made.pairs[0].recipe, "cpu", True)
    assert isinstance(reference, EngineBackend)
    found = gpu_parts.losses_of_first_steps(made, reference)
    assert 0 < max(found["largest_relative_difference_of_loss_by_step"]) < 1e-4
    apart = gpu_parts.evaluations(made, reference)
    assert apart["exact_of_the_first"] == 1 and apart["evaluation_largest_difference"]["exact"] == 0


def test_nothing_is_imported_that_a_machine_with_torch_lacks():
    """benchmarks/gpu.sh looks for torch, numpy, filelock and safetensors."""
    program = """
import sys
for name in ("ray", "optuna", "mlflow", "pandas", "yaml", "pydantic", "click", "sqlalchemy", "search"):
    sys.modules[name] = None
import benchmarks.gpu
"""
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode == 0


def test_correctness_sees_what_differs(put_back, few_selection_problems, monkeypatch):
    """Another gradient, other problems and graphs that do not play."""
    whole, blocks = programs.TorchBackend.train_step, programs.TorchBackend.make_block

    def off(self, state, hyper, tokens):
        state, loss = whole(self, state, hyper, tokens)
        return {**state, "theta": state["theta"] * 1.01}, loss * (1.01 if self.graphs else 1)

    made = gpu_parts.make_bank(tiny(Part("correctness", "57p", 64, 256)))
    made.programs.graphs = True
    reference = gpu_parts.bank.programs_of(made.spec, made.pairs[0].recipe, "cpu", False)
    monkeypatch.setattr(programs.TorchBackend, "train_step", off)
    found = gpu_parts.losses_of_first_steps(made, reference)
    assert found["largest_relative_difference_of_loss_by_step"][0] == pytest.approx(0.01, rel=1e-3)
    monkeypatch.setattr(programs.TorchBackend, "make_block", lambda *args: blocks(*args) + args[0].graphs)
    assert not gpu_parts.same_tokens(made)


def test_throughput_has_a_row_with_graphs_and_one_without(put_back, few_selection_problems):
    _, rows = found_by("throughput")
    assert [row["graphs"] for row in rows] == [True, False]
    assert rows[0]["losses"] == rows[1]["losses"] > 0
    assert all(row["seed_steps_per_s"] > 0 and row["peak_memory_bytes"] > 0 for row in rows)


def test_bfloat16_gives_other_losses_that_are_near(put_back):
    spec, tokens = preset("57p"), some_tokens(preset("57p"), 1, 8)
    theta = spec.initial(1)[None].requires_grad_()
    exact = step.loss(spec, theta, tokens)
    gpu_parts.prepare(tiny(Part("precision", "57p", 64, 256, "bf16")))
    rounded = step.loss(spec, theta, tokens)
    assert exact.item() != rounded.item() == pytest.approx(exact.item(), rel=0.05)
    assert torch.autograd.grad(rounded.sum(), theta)[0].abs().sum() > 0


def test_a_part_that_fails_or_hangs_leaves_what_it_found():
    def ran(program, limit_s):
        found = gpu.run([sys.executable, "-c", f"print('{{\"a\": 1}}', flush=True)\n{program}"], limit_s)
        assert found["findings"] == [{"a": 1}]
        return found["ended"], found["said"]

    assert ran("print('no finding')", 20) == ("done", [])
    ended, said = ran("1 / 0", 20)
    assert ended == "failed" and said[-1] == "ZeroDivisionError: division by zero"
    assert ran("import time; time.sleep(60)", 0.5) == ("out of time", [])


def test_a_run_keeps_the_parts_of_the_one_before(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "run", lambda words, limit_s: {"ended": "done", "seconds": 1.0, "findings": []})
    target = tmp_path / "gpu.json"
    gpu.main(["--rehearse", "--only", "correctness", "--json", str(target)])
    gpu.main(["--rehearse", "--only", "precision,quarters", "--json", str(target)])
    gpu.main(["--rehearse", "--minutes", "0", "--json", str(target)])
    whole = json.loads(target.read_text())
    assert whole["rehearsed"] and whole["about"]["torch"] == torch.__version__
    ended = {name.split(":")[0]: part["ended"] for name, part in whole["parts"].items()}
    done = dict.fromkeys(("correctness", "precision", "quarters"), "done")
    assert ended == done | dict.fromkeys(("compile", "throughput"), "not reached")
    assert "quarters:57p:4: done in 1 s" in capsys.readouterr().out


def test_every_shape_is_compiled_before_it_is_wanted():
    def shape(part):
        return part.rung, part.seeds, part.batch, part.precision

    ready = set()
    for stage in gpu.plan():
        ready |= {shape(part) for part in stage if part.kind == "compile"}
        assert all(part.kind == "compile" or shape(part) in ready for part in stage)
    assert {n for name, n, *_ in ready if name == "57p"} == {64, 256, 1024, 4096, 8192}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--rehearse --only speed", "--only: speed: there is compile, correctness"),
        ("--rehearse --part x", "--part x: there is compile:57p:2"),
        pytest.param(
            "",
            "torch finds no CUDA device",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is one"),
        ),
    ],
)
def test_wrong_use_is_one_line(words, says, capsys):
    with pytest.raises(SystemExit) as exit:
        gpu.main(words.split())
    said = capsys.readouterr().err
    assert exit.value.code == 2 and said.startswith(f"error: {says}") and said.count("\n") == 1


@pytest.mark.full
def test_the_script_is_rehearsed(tmp_path):
    target = tmp_path / "gpu.json"
    script = [ROOT / "benchmarks" / "gpu.sh", "--rehearse", "--json", target]
    ran = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    parts = json.loads(target.read_text())["parts"]
    assert {part["ended"] for part in parts.values()} == {"done"}, parts
    assert {name.split(":")[0] for name in parts} == gpu.KINDS.keys()
    quarters = parts["quarters:57p:4"]["findings"]
    assert [row["processes"] for row in quarters] == [1, 4]
