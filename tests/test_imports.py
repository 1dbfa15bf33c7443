"""Imports go one way: between packages, the core's and those of plug-ins, and between the rooms of each."""

import ast
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter

import pytest

from tests import PLUGINS, ROOT

CORE = ("model", "trainer", "search")
PACKAGES = CORE + PLUGINS
TOOLS = {"ray", "optuna", "mlflow", "click", "pandas"}
OUTSIDE = {"lab", "tests", "benchmarks"}  # what imports the product, and is not imported by it
BELOW = {
    "gpu": (), "own_modules": (), "reports": (), "tracking": ("reports",), "adders": ("reports", "tracking"),
    "compress": ("reports", "tracking", "adders"),
}  # fmt: skip
"""Plug-ins from which a plug-in may import."""
FORBIDDEN = {
    "model": {"trainer", "search", *PLUGINS} | TOOLS | OUTSIDE,
    "trainer": {"search", *PLUGINS} | TOOLS | OUTSIDE,
    "search": {*PLUGINS, "mlflow"} | OUTSIDE,
    **{name: {*PLUGINS} - {name, *BELOW[name]} | OUTSIDE for name in PLUGINS},
}
FORBIDDEN["gpu"] |= TOOLS
FORBIDDEN["own_modules"] |= TOOLS | {"search"}
"""What a package must not import. The core finds plug-ins by entry points, as it does a stranger's package."""
ROOMS = {
    "search": [
        "errors", "plugins", "stats", "study", "store", "analysis", "run", "kinds", "cli",
    ],
    "trainer": [
        "fields", "outcomes", "stopping", "data", "files", "optimisers", "recipe", "step", "engine",
        "checkpoints", "finishing", "bank", "road",
    ],
    "adders": [
        "adderboard", "export", "proof", "foreign", "folding", "curvature", "finishing", "acceptance", "explain",
        "stranger", "registry", "commands",
    ],
}  # fmt: skip
"""Sub-packages and files of a package: each imports only from itself and those before it."""


MOST_ARROWS = {"search": 31}
"""Pairs of rooms of which one imports from the other: at most so many. Each is a reason to open a second room."""


def modules(root=ROOT):
    """Every module of the packages by its dotted name."""
    files = (f.relative_to(root) for name in PACKAGES for f in sorted((root / name).rglob("*.py")))
    return {".".join(f.with_suffix("").parts).removesuffix(".__init__"): root / f for f in files}


def imported(source, known=frozenset()):
    """What a module imports, wherever in it and for types alone too.

    `from a import b` is a.b where that is a known module, else a.
    """
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"relative import in line {node.lineno}"
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if name in known else node.module for name in whole}
    return names


def graph(files):
    """What of the packages each of their modules imports."""
    known = frozenset(files)
    return {name: imported(file.read_text(), known) & known for name, file in files.items()}


def room_of(name, package):
    """The sub-package or file of a package that a module is in; None for a module of another one."""
    return name.split(".")[1] if name.startswith(f"{package}.") else None


def arrows(edges, package):
    """By two rooms of a package, the first of which imports from the second: which modules do."""
    found = defaultdict(list)
    for name, others in edges.items():
        for other in others:
            one, two = room_of(name, package), room_of(other, package)
            if one and two and one != two:
                found[one, two].append(f"{name} imports {other}")
    return found


def backwards(edges):
    """Yield the imports inside a package that lead to a later room."""
    for package, rooms in ROOMS.items():
        for (one, two), lines in arrows(edges, package).items():
            if rooms.index(two) > rooms.index(one):
                yield from lines


FILES = modules()
EDGES = graph(FILES)


def test_what_is_wrong_would_be_found(tmp_path):
    texts = {
        "model/spec.py": "import torch",
        "search/store/ledger.py": "def f():\n    from search.run.driver import Driver",
        "search/run/driver.py": "if TYPE_CHECKING:\n    import search.run.worker",
        "search/run/worker.py": "from search.run import driver\nfrom model.spec import Spec",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    edges = graph(modules(tmp_path))
    assert list(backwards(edges)) == ["search.store.ledger imports search.run.driver"]
    with pytest.raises(CycleError) as error:
        TopologicalSorter(edges).prepare()
    assert set(error.value.args[1]) == {"search.run.driver", "search.run.worker"}


@pytest.mark.parametrize("package", [p for p in FORBIDDEN if p in CORE or (ROOT / p).exists()])
def test_packages_are_imported_one_way(package):
    files = [file for name, file in FILES.items() if name.split(".")[0] == package]
    assert files
    tops = {str(f): {name.split(".")[0] for name in imported(f.read_text())} for f in files}
    wrong = {name: names & FORBIDDEN[package] for name, names in tops.items()}
    assert not {name: names for name, names in wrong.items() if names}


def test_the_rooms_of_a_package_are_imported_one_way():
    assert list(backwards(EDGES)) == []


def test_few_rooms_import_from_one_another():
    edges = {"search.run.a": {"search.run.b", "search.store.c", "model.d"}, "search.run.b": {"search.store.d"}}
    assert arrows(edges, "search").keys() == {("run", "store")}
    for package, most in MOST_ARROWS.items():
        found = arrows(EDGES, package)
        assert len(found) <= most, sorted(found)


def test_no_module_imports_itself_by_way_of_others():
    assert sum(map(len, EDGES.values())) > len(EDGES)
    TopologicalSorter(EDGES).prepare()  # raises CycleError with the circle


def loaded_at_once(name):
    """Yield what a module of tests/ or benchmarks/ imports as soon as it is imported."""
    file = ROOT / f"{name.replace('.', '/')}.py"
    for node in ast.parse(file.read_text()).body if file.exists() else ():
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imported(ast.unparse(node))
            if isinstance(node, ast.ImportFrom) and node.module in ("tests", "benchmarks"):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_tests_of_the_core_can_be_imported_without_the_plug_ins_that_may_be_deleted():
    """But for tracking and reports: nobody else sees what a driver has written (tests/slow/test_core_alone.py)."""
    files = (f.relative_to(ROOT).with_suffix("") for f in (ROOT / "tests").rglob("*.py"))
    names = [".".join(f.parts) for f in files if f.parts[1] not in PLUGINS]
    seen, waiting = set(), names
    assert len(waiting) > 100
    while waiting := [name for name in waiting if name not in seen]:
        seen |= set(waiting)
        found = {one: set(loaded_at_once(one)) for one in waiting}
        wrong = {
            one: names
            for one, names in found.items()
            if {n.split(".")[0] for n in names} & {*PLUGINS} - {"reports", "tracking"}
        }
        assert not wrong, wrong
        waiting = [n for names in found.values() for n in names if n.startswith(("tests.", "benchmarks."))]
