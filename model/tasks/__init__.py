"""Tasks: what a net is asked. Addition in base ten with ten digits is the default of every spec."""

from model.tasks.columns import Columns, in_columns
from model.tasks.rows import Modular, Parity, Permutations, Rows, Table
from model.tasks.sequences import Copy, Prefix, Reverse, Sequences
from model.tasks.sums import ADDITION, Addition, Subtraction, Sums
from model.tasks.task import TASKS, Pairs, Task, changed, make_task, only_addition, options_of

__all__ = [
    "ADDITION",
    "TASKS",
    "Addition",
    "Columns",
    "Copy",
    "Modular",
    "Pairs",
    "Parity",
    "Permutations",
    "Prefix",
    "Reverse",
    "Rows",
    "Sequences",
    "Subtraction",
    "Sums",
    "Table",
    "Task",
    "changed",
    "in_columns",
    "make_task",
    "only_addition",
    "options_of",
]
