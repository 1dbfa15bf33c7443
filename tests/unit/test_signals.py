"""Signals that end a run, as its driver takes them."""

import os
import signal
import subprocess
import sys

import pytest

from search.cli.run import _interruptible
from search.run.driver import _signals
from search.run.terminal import ENDING


@pytest.mark.parametrize("number", ENDING)
def test_the_first_stops_the_second_interrupts_and_more_change_nothing(number):
    stopped = []
    before = signal.getsignal(number)
    with _signals(lambda: stopped.append(0)):
        os.kill(os.getpid(), number)
        assert stopped == [0]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        for _ in range(2):
            os.kill(os.getpid(), number)
    assert stopped == [0] and signal.getsignal(number) == before


def test_a_run_that_shall_outlive_its_terminal_does():
    """As nohup starts it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with _interruptible(), _signals(pytest.fail):
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_before_ray_is_up_they_end_a_run_as_ctrl_c_does(number):
    with pytest.raises(KeyboardInterrupt), _interruptible():
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) == signal.SIG_DFL


ENDED = """
import atexit, sys, time
import adder_search
atexit.register(lambda: (print("ending", flush=True), time.sleep(1)))
sys.argv = ["adder-search", "--version"]
adder_search.main()
"""
"""A command that takes a second to end once it has said all, as one with threads of Ray and MLflow may."""


@pytest.mark.parametrize("number", ENDING)
def test_one_that_comes_when_all_is_done_does_not_change_the_exit_code(number):
    command = [sys.executable, "-c", ENDED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith("adder-search") and process.stdout.readline() == "ending\n"
        process.send_signal(number)
        assert (process.stderr.read(), process.wait()) == ("", 0)
