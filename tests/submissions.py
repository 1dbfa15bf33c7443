"""An exported submission as tests read it."""

import ast
from types import ModuleType


def loaded(source):
    module = ModuleType("submission")
    exec(compile(source, "submission.py", "exec"), module.__dict__)
    return module


def constant(source, name):
    """The value of a module constant, which must be a literal."""
    values = [
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name
    ]
    assert len(values) == 1 and values[0] is not None
    return ast.literal_eval(values[0])
