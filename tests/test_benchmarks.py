"""The throughput benchmark: its measurements on eager banks, its tally, its ceilings, its plot."""

import json
import os
from contextlib import nullcontext

import pytest
import torch

from benchmarks import baseline, ceilings, count, engine, plot, throughput
from model import matrices, preset
from search.study.file import parse_study
from tests.banks import EVERY, pair
from trainer import Bank, Recipe
from trainer.data.problems import sample
from trainer.files.installed import missing_for_compilation
from trainer.step import step

SIZES = ceilings.Sizes(matrix=32, copied=1_000, exponentials=1_000, products=1 << 12)
EAGER = throughput.Setup("57p", "cpu", batch=4, processes=2, threads=1, seconds=0.1, compiled=False)
LANES = () if missing_for_compilation() else ("lane_gflops_per_s", "lane_gexps_per_s")
ROW = {
    *("seeds", "ours_seed_steps_per_s", "measured_by", "baseline_seed_steps_per_s", "ratio"),
    *("together_seed_steps_per_s", "ratio_together", "of_arithmetic"),
    *("compile_cold_s", "compile_warm_s", "sampling", "step", "kernel", "evaluation", "peak_memory_bytes"),
    *("flops_per_seed_step", "exponentials_per_seed_step", "bytes_per_seed_step"),
    *("gflops_per_s", "gexps_per_s", "gbytes_per_s"),
    *("gflops_per_s_of_ceiling", "gexps_per_s_of_ceiling", "gbytes_per_s_of_ceiling"),
}
ABOUT = {
    *("rung", "device", "batch", "processes", "threads", "seconds", "compiled", "hardware", "cores", "cpu"),
    *("platform", "python", "torch", "code", "commit", "ceilings", "baseline_threads", "rows"),
}


def test_the_tally_is_what_one_counts_by_hand():
    a, b = torch.randn(3, 4), torch.randn(4, 5)
    for call, flops, exponentials in (
        (lambda: a @ b, 3 * 5 * 7, 0),
        (lambda: (a + a * 2) / 3 - 1, 4 * 12, 0),
        (lambda: a.sum(1), 12 - 3, 0),
        (lambda: a.mean(), 12, 0),
        (lambda: torch.softmax(a, 1), 3 * 12, 12),
        (lambda: torch.nn.functional.gelu(a).exp().log(), 4 * 12, 3 * 12),
        (lambda: (a.long() + 1, a > 1, a.T[0]), 0, 0),
    ):
        found = count.tally(call)
        assert (found.flops, found.exponentials) == (flops, exponentials)


@pytest.mark.parametrize(("name", "softmax"), [("57p", 12 * 33), ("170p", 2 * 12 * 33 * 256)])
def test_the_exponentials_of_a_step(name, softmax):
    """Attention's weights, of both heads or once a batch on a circle; the FFN; the loss."""
    spec = preset(name)
    hidden, loss = 2 * 12 * 256, (spec.vocabulary + 1) * 12 * 256
    table = count.train_step(spec, 256).exponentials - (softmax + hidden + loss)
    assert 0 <= table < 200  # sines and cosines of tokens and positions


def test_looking_tokens_up_is_no_arithmetic():
    """low_rank does it by products with one-hot rows."""
    entries = torch.randn(1, 2, 3, 14)
    hot = matrices.one_hot(torch.randint(14, (1, 3, 5)), 14, torch.float32)
    assert torch.equal(matrices.look_up(entries, hot), count._gathered(entries, hot))
    assert count.tally(lambda: matrices.look_up(entries, hot)).flops == 2 * 3 * 5 * 27
    assert count.tally(lambda: count._gathered(entries, hot)).flops == 0


def test_twice_the_problems_are_nearly_twice_the_work():
    one, two = (count.train_step(preset("456p"), batch) for batch in (256, 512))
    assert two.flops == pytest.approx(2 * one.flops, rel=0.05)
    assert two.exponentials == pytest.approx(2 * one.exponentials, rel=0.05)


def test_traffic_is_tokens_twice_and_three_arrays_of_parameters_twice():
    assert count.traffic(preset("57p"), 256) == 2 * 34 * 256 * 4 + 6 * 57 * 4


@pytest.mark.parametrize("name", ["170p", "57p", "54p", "456p"])
def test_the_baseline_sees_the_sequences_of_the_bank(name):
    spec, row = preset(name), torch.zeros(1, dtype=torch.int64)
    a, b = sample(row, row, row + 10, torch.ones(1), 50)
    wanted = step.tokens_of(spec, a, b)[0].T.tolist()
    pairs = zip(a[0].tolist(), b[0].tolist(), strict=True)
    assert [baseline.sequence(spec, int(x), int(y)) for x, y in pairs] == wanted


@pytest.mark.parametrize("name", ["57p", "456p"])
def test_the_baseline_trains(name):
    assert baseline.steps_per_s(preset(name), 0.01, batch=2) > 0


def test_ceilings_are_positive_and_measured_together():
    waited = []
    found = ceilings.ceilings("cpu", SIZES, lambda: waited.append(1))
    assert found.keys() == {"gflops_per_s", "gbytes_per_s", "gexps_per_s", *LANES}
    assert min(found.values()) > 0
    assert len(waited) == (4 if LANES else 3)


def test_a_small_bank_is_measured_in_whole_intervals(few_selection_problems):
    bank = Bank(preset("57p"), [pair(777 + n) for n in range(4)], slots=2, compiled=False, futility=None)
    interval = throughput.timings(bank, 0.01, 0.01)
    assert bank.seed_steps == 0
    assert interval.keys() == {"sampling", "step", "kernel", "evaluation"}
    assert throughput.intervals_rate(bank, 60) > 0  # until all pairs have ended
    assert bank.seed_steps == 4 * 2 * EVERY


@pytest.mark.skipif(not LANES, reason="needs a C++ compiler")
def test_the_engine_is_measured_part_by_part(few_selection_problems):
    bank = Bank(preset("57p"), [pair(777 + n) for n in range(3)], slots=3, futility=None)
    before = bank.state["theta"].clone()
    interval = throughput.timings(bank, 0.02, 0.02)
    assert torch.equal(bank.state["theta"], before)
    assert 0 < interval["kernel"] < interval["step"] and interval["sampling"] > 0 < interval["evaluation"]


@pytest.mark.full
def test_seeds_are_split_over_fresh_processes(monkeypatch):
    monkeypatch.delenv(throughput.CACHE, raising=False)
    row = throughput.measure(EAGER, 3)
    assert row["seeds"] == 3
    assert row["measured_by"] == "blocks"  # an eager interval of 1,000 steps takes seconds
    assert row["ours_seed_steps_per_s"] > 0
    assert row["sampling"] + row["step"] + row["evaluation"] == pytest.approx(1)
    assert row["peak_memory_bytes"] > 2e8
    assert throughput.CACHE not in os.environ


@pytest.mark.full
def test_a_process_that_fails_ends_the_run():
    """And not the others' wait for it."""
    with pytest.raises(AttributeError, match="matrix"):
        throughput.in_processes(throughput.ceilings_of, EAGER, [(SIZES,), ("no sizes",)])


def test_the_json_has_every_figure(tmp_path, monkeypatch, capsys, few_selection_problems):
    def here(function, setup, arguments):
        return [function(setup, int, *args) for args in arguments]

    monkeypatch.setattr(throughput, "in_processes", here)
    target = tmp_path / "run.json"
    words = "--eager --seconds 0.01 --seeds 1,2 --batch 2 --threads 1 --json"
    throughput.main([*words.split(), str(target)], SIZES)
    run = json.loads(target.read_text())
    assert run.keys() == ABOUT
    assert [row["seeds"] for row in run["rows"]] == [1, 2]
    for row in run["rows"]:
        assert row.keys() == ROW
        assert row["ratio"] == row["ours_seed_steps_per_s"] / row["baseline_seed_steps_per_s"]
        assert row["ratio_together"] == row["ours_seed_steps_per_s"] / row["together_seed_steps_per_s"]
        assert row["kernel"] is None, "torch's programs have none"
    assert len(capsys.readouterr().out.splitlines()) == 4
    plot.main([str(target), "-o", str(tmp_path / "run.png")])
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--seeds 1,x", "--seeds must be whole numbers"),
        ("--seeds 1 --processes 2", "each of 2 processes"),
        ("--rung 58p", "unknown preset '58p'"),
        ("--batch 0", "batch must be from 1"),
        ("--seconds nan", "must be above 0"),
        ("--json no-such-folder/x.json", "its folder does not exist"),
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


@pytest.mark.parametrize("text", ["{", '{"rows": []}', None])
def test_a_plot_of_what_is_no_run_is_refused(text, tmp_path, capsys):
    file = tmp_path / "run.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SystemExit) as exit:
        plot.main([str(file), "-o", str(tmp_path / "run.png")])
    said = capsys.readouterr().err
    assert exit.value.code == 2
    assert said.startswith(f"error: {file}: ") and said.count("\n") == 1


def test_specs_that_are_compared_differ():
    specs = engine.different()
    assert len(set(specs)) == engine.SPECS and {spec.family for spec in specs} == {
        "split_subspace",
        "low_rank",
    }


@pytest.mark.skipif(not LANES, reason="needs a C++ compiler")
def test_the_engines_figures(tmp_path, monkeypatch, capsys, few_selection_problems):
    """All of it, with one seed of one short run and three specs, here."""

    def here(function, setup, arguments):
        return [function(setup, int, *args) for args in arguments]

    monkeypatch.setattr(throughput, "in_processes", here)
    monkeypatch.setattr(throughput, "fresh_cache", nullcontext)
    monkeypatch.setattr(engine, "RUNS", {"57p-2x1": "--seeds 2 --batch 4 --processes 2 --threads 1"})
    memory, specs, run = engine.memory, engine.specs, throughput.main
    monkeypatch.setattr(engine, "memory", lambda: memory((1, 2)))
    monkeypatch.setattr(engine, "specs", lambda: specs(3, 2, studies=False))
    monkeypatch.setattr(throughput, "main", lambda words: run(words, SIZES))
    engine.main(["--output", str(tmp_path), "--seconds", "0.02"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("| 57p, batch 4 | two processes of a thread | 2 | **")
    found = json.loads((tmp_path / "engine-specs.json").read_text())
    assert found["ratios"]["banks"] == found["s"]["banks"] / found["s"]["one_bank"] > 0
    peaks = json.loads((tmp_path / "engine-memory.json").read_text())["peak_memory_bytes"]
    assert peaks.keys() == {"1", "2"} and min(peaks.values()) > 1e8


def test_a_study_of_many_specs_is_one():
    specs = engine.different(6)
    asked = parse_study(engine.study("many", specs, 2), "many.yaml")
    assert asked.listed() == [(spec, Recipe(**engine.SMOKE)) for spec in specs]
