"""Benchmarks are tools: each command answers --help and refuses wrong use."""

import importlib

import numpy as np
import pytest

from benchmarks import count, stopping
from benchmarks.recorded import Run
from model import preset
from trainer.bank.futility import FutilityRule
from trainer.recipe import Seed

COMMANDS = ("cluster", "engine", "load", "plot", "screening", "startup", "stopping", "throughput")


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_answers_help(name, capsys, monkeypatch):
    main = importlib.import_module(f"benchmarks.{name}").main
    monkeypatch.setattr("sys.argv", [name, "--help"])
    with pytest.raises(SystemExit) as exit:
        main()
    assert exit.value.code == 0 and "usage:" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "softmax"), [("57p", 12 * 33), ("170p", 2 * 12 * 33 * 256)])
def test_the_exponentials_of_a_step(name, softmax):
    """Attention's weights, of both heads or once a batch on a circle; the FFN; the loss."""
    spec = preset(name)
    hidden, loss = 2 * 12 * 256, (spec.vocabulary + 1) * 12 * 256
    table = count.train_step(spec, 256).exponentials - (softmax + hidden + loss)
    assert 0 <= table < 200  # sines and cosines of tokens and positions


def test_a_rule_calls_a_plateau_at_its_first_checkpoint_and_a_winner_never():
    rule = FutilityRule(checkpoints=((0.3, 0.01, 0.2),))
    steps = np.arange(1_000, 11_000, 1_000)

    def run(token, grok_step):
        seed, zeros, tokens = Seed.of(1), np.zeros(10, np.float32), np.full(10, token, np.float32)
        return Run("a", "key", seed, 10_000, 0, 10_000, grok_step, steps, zeros, tokens)

    assert stopping.called_at(rule, run(0.1, None)) == 3_000
    assert stopping.called_at(rule, run(0.5, 8_000)) is None


def test_wrong_use_is_one_line_and_exit_code_2(tmp_path, capsys):
    with pytest.raises(SystemExit) as exit:
        stopping.main([str(tmp_path / "nowhere")])
    printed = capsys.readouterr()
    assert (exit.value.code, printed.out) == (2, "")
    assert printed.err.startswith("error: ") and printed.err.count("\n") == 1
