"""Kernels that are recorded: a net in torch, without C++ of its own, trained by the engine all the same.

`Spec.apply` of one problem is recorded (recording.py) as a graph of operations on numbers and on rows of numbers
(graph.py, operations.py). As a header it is compiled with kernel.cpp to what model/cpp/kernel.h calls a kernel.
choice.py says when that pays.
"""

from trainer.engine.modules.choice import Choice as Choice
from trainer.engine.modules.choice import choose as choose
