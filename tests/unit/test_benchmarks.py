"""Benchmarks are tools: each command answers --help and refuses wrong use."""

import importlib

import pytest

from benchmarks import stopping

COMMANDS = ("cluster", "engine", "load", "plot", "screening", "startup", "stopping", "throughput")


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_answers_help(name, capsys, monkeypatch):
    main = importlib.import_module(f"benchmarks.{name}").main
    monkeypatch.setattr("sys.argv", [name, "--help"])
    with pytest.raises(SystemExit) as exit:
        main()
    assert exit.value.code == 0 and "usage:" in capsys.readouterr().out


def test_wrong_use_is_one_line_and_exit_code_2(tmp_path, capsys):
    with pytest.raises(SystemExit) as exit:
        stopping.main([str(tmp_path / "nowhere")])
    printed = capsys.readouterr()
    assert (exit.value.code, printed.out) == (2, "")
    assert printed.err.startswith("error: ") and printed.err.count("\n") == 1
