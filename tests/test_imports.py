"""The import rule: search uses trainer, trainer uses model, never back."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOOLS = {"ray", "optuna", "mlflow", "click", "pandas"}
FORBIDDEN = {"model": {"trainer", "search"} | TOOLS, "trainer": {"search"} | TOOLS}


def imported(source):
    """The top-level packages that a module's source imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in line {node.lineno}"
            found.add(node.module.split(".")[0])
    return found


def test_every_kind_of_import_is_seen():
    source = "import a.b as c\ndef f():\n    from d.e import g\nif True:\n    import h, i"
    assert imported(source) == {"a", "d", "h", "i"}


@pytest.mark.parametrize("package", FORBIDDEN)
def test_imports_go_one_way(package):
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    wrong = {str(f.relative_to(ROOT)): imported(f.read_text()) & FORBIDDEN[package] for f in files}
    assert not {name: packages for name, packages in wrong.items() if packages}
