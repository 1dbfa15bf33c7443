"""Tasks: what a net is asked. Addition in base ten with ten digits is the default of every spec."""

from model.tasks.sums import ADDITION, Addition, Subtraction
from model.tasks.task import TASKS, Pairs, Task, changed, make_task, only_addition, options_of

__all__ = [
    "ADDITION",
    "TASKS",
    "Addition",
    "Pairs",
    "Subtraction",
    "Task",
    "changed",
    "make_task",
    "only_addition",
    "options_of",
]
