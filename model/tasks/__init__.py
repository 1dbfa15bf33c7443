"""Tasks: what a net is asked. Addition in base ten with ten digits is the default of every spec."""

from model.tasks.columns import ADDITION, Addition, Columns, Subtraction
from model.tasks.task import TASKS, Task, changed, make_task, only_addition, options_of

__all__ = [
    "ADDITION",
    "TASKS",
    "Addition",
    "Columns",
    "Subtraction",
    "Task",
    "changed",
    "make_task",
    "only_addition",
    "options_of",
]
