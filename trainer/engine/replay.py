"""A program of (state, numbers) recorded once and played back: a CUDA graph with buffers of its own.

A step of a bank is a few dozen short kernels; launched one by one from Python they would leave a GPU idle
most of the time. Nothing here has been measured on a GPU yet (docs/determinism.md).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from trainer.step.schedule import Hyper
from trainer.step.step import State

Program = Callable[[State, Hyper], tuple[State, Tensor]]
Body = Callable[[], None]


def record_cuda(body: Body) -> Body:
    """Capture the launches of `body`. It runs three times before, since compilation must not be captured."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            body()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    return graph.replay


class Replay:
    """`program` on fixed buffers, ready to be played. `record` turns its body into a replay."""

    def __init__(
        self, program: Program, state: State, hyper: Hyper, record: Callable[[Body], Body] = record_cuda
    ):
        self.state = {name: t.clone() for name, t in state.items()}
        self.hyper = {name: t.clone() for name, t in hyper.items()}
        self.loss_S = torch.zeros_like(state["wd_scale"])

        def body() -> None:
            new, loss_S = program(self.state, self.hyper)
            self.loss_S += loss_S
            for name, t in new.items():
                self.state[name].copy_(t)

        self.play = record(body)

    def run(self, state: State, hyper: Hyper, times: int) -> tuple[State, Tensor]:
        """Run the program `times` times. Return the new state and the summed losses [S]."""
        for buffers, values in ((self.state, state), (self.hyper, hyper)):
            for name, t in values.items():
                buffers[name].copy_(t)
        self.loss_S.zero_()
        for _ in range(times):
            self.play()
        return {name: t.clone() for name, t in self.state.items()}, self.loss_S.clone()
