"""Kernels that are recorded: a net in torch, without C++ of its own, trained by the engine all the same.

`Spec.apply` of one problem is recorded (recording.py) as a graph of operations on numbers and on rows of numbers
(graph.py, operations.py). As a header it is compiled with kernel.cpp to what model/cpp/kernel.h calls a kernel.
choice.py says when that pays. A family has such a kernel by `by_tape`, which its `kernel` returns.
"""

from own_modules.tapes.choice import by_tape as by_tape
