"""An exported submission as tests read it."""

import ast
from types import ModuleType


def loaded(source):
    module = ModuleType("submission")
    exec(compile(source, "submission.py", "exec"), module.__dict__)
    return module


def constant(source, name):
    """The value of a module constant, which must be a literal."""
    (value,) = [
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name
    ]
    return ast.literal_eval(value)
