"""Scripts of the notebook, and benchmarks: what they import of the product is there, though no test runs them all."""

import ast
from functools import cache

from tests import PLUGINS, ROOT

OURS = {"model", "trainer", "search", "lab", "tests", "benchmarks", *PLUGINS}
EVERYTHING = "*"


@cache
def file_of(module):
    """The file or folder of a module by its dotted name; None if there is none."""
    place = ROOT.joinpath(*module.split("."))
    found = (place.with_suffix(".py"), place / "__init__.py", place)
    return next((path for path in found if path.exists()), None)


@cache
def names_of(file):
    """Every name that a file defines, assigns or imports somewhere."""
    names = {EVERYTHING}
    for node in ast.walk(ast.parse(file.read_text())) if file.is_file() else ():
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def missing(text):
    """Yield what a text imports of ours that is not there."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ImportFrom) or node.module.split(".")[0] not in OURS:
            continue
        file = file_of(node.module)
        known = names_of(file) if file else set()
        for name in [alias.name for alias in node.names]:
            if name not in known and not file_of(f"{node.module}.{name}"):
                yield f"line {node.lineno}: {node.module} has no {name}"


def test_what_scripts_import_is_there():
    wrong = "from search.store.depot import Shared\nfrom search.run.worker import run_trial\nfrom model import Spec\n"
    assert [line.split(":")[0] for line in missing(wrong)] == ["line 1", "line 2"]

    files = [path for top in ("lab", "benchmarks") for path in sorted((ROOT / top).rglob("*.py"))]
    assert len(files) > 100
    found = {str(path.relative_to(ROOT)): list(missing(path.read_text())) for path in files}
    assert not {name: lines for name, lines in found.items() if lines}
