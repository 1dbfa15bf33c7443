"""The throughput benchmark: its measurements on eager banks, its counts, its ceilings, its plot."""

import json
import os

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks import baseline, ceilings, count, plot, throughput
from model import RUNGS, rung
from tests.banks import pair
from tests.specs import some_theta, some_tokens
from trainer import Bank, Recipe, step
from trainer.problems import sample
from trainer.schedule import hyper_of

SIZES = ceilings.Sizes(matrix=32, copied=1_000, exponentials=1_000)
EAGER = throughput.Setup("57p", "cpu", batch=4, processes=2, threads=1, seconds=0.1, compiled=False)
ROW = {
    *("seeds", "slots", "tile", "ours_seed_steps_per_s", "baseline_seed_steps_per_s", "ratio", "measured_by"),
    *("compile_cold_s", "compile_warm_s", "sampling", "step", "evaluation", "peak_memory_bytes"),
    *("flops_per_seed_step", "exponentials_per_seed_step", "bytes_per_seed_step"),
    *("gflops_per_s", "gexps_per_s", "gbytes_per_s"),
    *("gflops_per_s_of_ceiling", "gexps_per_s_of_ceiling", "gbytes_per_s_of_ceiling"),
}
ABOUT = {
    *("rung", "device", "batch", "processes", "threads", "seconds", "compiled", "hardware", "cores", "cpu"),
    *("platform", "python", "torch", "code", "commit", "ceilings", "baseline_threads", "rows"),
}


class Tally(TorchDispatchMode):
    """Counts what eager torch computes, as benchmarks.count does. `lookup`: length of one-hot products."""

    ELEMENTWISE = ("mul", "add", "sub", "div", "pow")

    def __init__(self, lookup):
        super().__init__()
        self.lookup, self.flops, self.exponentials = lookup, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out, name = func(*args, **(kwargs or {})), func.overloadpacket.__name__
        size = out.numel() if isinstance(out, torch.Tensor) else 0
        if name in self.ELEMENTWISE:
            self.flops += size
        elif name in ("sum", "mean"):
            self.flops += args[0].numel() - (size if name == "sum" else 0)
        elif name in ("mm", "bmm") and args[0].shape[-1] != self.lookup:
            self.flops += size * (2 * args[0].shape[-1] - 1)
        elif name == "_softmax":
            self.flops += 3 * size - size // args[0].shape[args[1]]
        elif name == "gelu":
            self.flops += 4 * size
        if name in ("exp", "log", "gelu", "_softmax"):
            self.exponentials += size
        return out


# The FFN of the wider low_rank rungs is as large as the vocabulary: their products are not told apart.
@pytest.mark.parametrize("name", [n for n, s in RUNGS.items() if s.family != "low_rank"] + ["311p", "262p"])
def test_the_count_by_hand_is_what_eager_torch_does(name):
    spec = rung(name)
    theta, tokens = some_theta(spec), some_tokens(spec, batch=256)
    with torch.no_grad(), Tally(spec.vocabulary if spec.family == "low_rank" else 0) as tally:
        step.loss(spec, theta, tokens)
    by_hand = count.forward(spec, 256)
    assert by_hand.flops == pytest.approx(tally.flops, rel=0.005)
    assert by_hand.exponentials == tally.exponentials


@pytest.mark.parametrize("name", ["170p", "57p", "47p", "311p"])
def test_a_whole_step_is_about_three_forward_passes(name):
    spec = rung(name)
    state = Bank(spec, [pair(777, batch=256)], compiled=False).state
    with Tally(spec.vocabulary if spec.family == "low_rank" else 0) as tally:
        step.train_step(spec, state, hyper_of([Recipe()]), some_tokens(spec, batch=256))
    assert count.train_step(spec, 256).flops == pytest.approx(tally.flops, rel=0.15)


@pytest.mark.parametrize("name", ["170p", "57p", "456p"])
def test_twice_the_problems_are_nearly_twice_the_work(name):
    one, two = (count.train_step(rung(name), batch) for batch in (4096, 8192))
    assert two.flops == pytest.approx(2 * one.flops, rel=0.02)
    assert two.exponentials == pytest.approx(2 * one.exponentials, rel=0.02)


def test_traffic_is_tokens_twice_and_three_arrays_of_parameters_twice():
    assert count.traffic(rung("57p"), 256) == 2 * 34 * 256 * 4 + 6 * 57 * 4


@pytest.mark.parametrize("name", ["170p", "57p", "54p", "456p"])
def test_the_baseline_sees_the_sequences_of_the_bank(name):
    spec, row = rung(name), torch.zeros(1, dtype=torch.int64)
    a, b = sample(row, row, row + 10, torch.ones(1), 50)
    wanted = step.tokens_of(spec, a, b)[0].T.tolist()
    pairs = zip(a[0].tolist(), b[0].tolist(), strict=True)
    assert [baseline.sequence(spec, int(x), int(y)) for x, y in pairs] == wanted


@pytest.mark.parametrize("name", ["57p", "456p"])
def test_the_baseline_trains(name):
    assert baseline.steps_per_s(rung(name), 0.01, batch=2) > 0


def test_ceilings_are_positive_and_measured_together():
    waited = []
    found = ceilings.ceilings("cpu", SIZES, lambda: waited.append(1))
    assert found.keys() == {"gflops_per_s", "gbytes_per_s", "gexps_per_s"}
    assert min(found.values()) > 0
    assert len(waited) == 3


def test_a_small_bank_is_measured_in_whole_intervals(few_selection_problems):
    bank = Bank(rung("57p"), [pair(777 + n) for n in range(4)], slots=2, compiled=False, hopeless=None)
    interval = throughput.timings(bank, 0.01, 0.01)
    assert bank.seed_steps == 0
    assert interval.keys() == {"sampling", "step", "evaluation"}
    assert throughput.intervals_rate(bank, 60) > 0  # until all pairs have ended
    assert bank.seed_steps == 4 * 40


def test_seeds_are_split_over_fresh_processes(monkeypatch):
    monkeypatch.delenv(throughput.CACHE, raising=False)
    row = throughput.measure(EAGER, 3)
    assert (row["seeds"], row["slots"], row["tile"]) == (3, 3, 2)
    assert row["measured_by"] == "blocks"  # an eager interval of 1,000 steps takes seconds
    assert row["ours_seed_steps_per_s"] > 0
    assert row["sampling"] + row["step"] + row["evaluation"] == pytest.approx(1)
    assert row["peak_memory_bytes"] > 2e8
    assert throughput.CACHE not in os.environ


def test_a_process_that_fails_ends_the_run():
    """And not the others' wait for it."""
    with pytest.raises(AttributeError, match="matrix"):
        throughput.in_processes(throughput.ceilings_of, EAGER, [(SIZES,), ("no sizes",)])


def test_the_json_has_every_figure(tmp_path, monkeypatch, capsys, few_selection_problems):
    def here(function, setup, arguments):
        return [function(setup, int, *args) for args in arguments]

    monkeypatch.setattr(throughput, "in_processes", here)
    target = tmp_path / "run.json"
    words = "--eager --seconds 0.05 --seeds 1,2 --batch 2 --threads 1 --json"
    throughput.main([*words.split(), str(target)], SIZES)
    run = json.loads(target.read_text())
    assert run.keys() == ABOUT
    assert [row["seeds"] for row in run["rows"]] == [1, 2]
    for row in run["rows"]:
        assert row.keys() == ROW
        assert row["ratio"] == row["ours_seed_steps_per_s"] / row["baseline_seed_steps_per_s"]
    assert len(capsys.readouterr().out.splitlines()) == 4
    plot.main([str(target), "-o", str(tmp_path / "run.png")])
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--seeds 1,x", "--seeds must be whole numbers"),
        ("--seeds 1 --processes 2", "each of 2 processes"),
        ("--seeds 0", "got 0"),
        ("--rung 58p", "unknown rung '58p'"),
        ("--batch 0", "batch must be from 1"),
        ("--threads 0", "must be above 0"),
        ("--seconds nan", "must be above 0"),
        ("--json no-such-folder/x.json", "its folder does not exist"),
        ("--device tpu", "invalid choice"),
        ("--seed 1", "unrecognized arguments"),
    ],
)
def test_wrong_use_is_one_line(words, says, capsys):
    with pytest.raises(SystemExit) as exit:
        throughput.main(words.split())
    said = capsys.readouterr()
    assert (exit.value.code, said.out) == (2, "")
    assert said.err.startswith("error: ") and said.err.count("\n") == 1
    assert says in said.err


@pytest.mark.parametrize("text", ["{", "[]", '{"rows": []}', None])
def test_a_plot_of_what_is_no_run_is_refused(text, tmp_path, capsys):
    file = tmp_path / "run.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SystemExit) as exit:
        plot.main([str(file), "-o", str(tmp_path / "run.png")])
    said = capsys.readouterr().err
    assert exit.value.code == 2
    assert said.startswith(f"error: {file}: ") and said.count("\n") == 1
