"""How many small mistakes the tests notice: mutants of modules of search/, each tested in a fork.

    pip install --target /tmp/cosmic cosmic-ray
    COSMIC_RAY=/tmp/cosmic .venv/bin/python lab/2026-11-20-reliability/mutation.py store/hold -o mutation.csv

A mutant is one change: an operator of cosmic-ray's (of the many ways to replace one operator at one place one
is drawn), or a statement left out. `--most N` takes so many of a module's, drawn; the same command goes on
where it was, and `--for S` ends it after S seconds. A mutant that outlasts three times what the tests take is
noticed.
"""

import argparse
import ast
import contextlib
import csv
import importlib
import importlib.abc
import importlib.util
import os
import pkgutil
import random
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import types
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = {
    "store/ledger": ["ledger", "ledger_rows"],
    "store/hold": ["ledger", "ledger_rows"],
    "store/outbox": ["outbox"],
    "store/part": ["power_cut", "worker", "cut_off"],
    "store/stats": ["stats", "allocation"],
    "store/database": ["database", "ledger"],
    "run/planner": ["planner", "configurations", "idle", "allocation", "proposals"],
    "run/driver": ["driver", "idle", "cut_off", "chains"],
    "run/packing": ["packing", "planner"],
    "record/recorder": ["power_cut", "cut_off"],
}
"""Those in seconds. What they let live others may still notice."""
SLOW = "tests/scenarios/test_power_cut.py::test_the_next_driver_takes_up_whatever_is_left"
OPTIONS = [
    "-xq", "--override-ini=addopts=", "--strict-markers", "--hypothesis-profile=ci",
    "-m", "not full and not faults",
    "-p", "no:cacheprovider", "-p", "no:xdist", "--deselect", SLOW,
]  # fmt: skip
FIELDS = ["module", "line", "column", "operator", "was", "becomes", "result", "seconds", "killed_by"]


def never_evaluated(tree):
    """Spans of annotations and of what only a type checker reads."""
    for node in ast.walk(tree):
        found = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            found.append(node)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript) and node.col_offset == 0:
            found.append(node.value)  # a name for a type
        for n in filter(None, found):
            yield (n.lineno, n.col_offset), (n.end_lineno, n.end_col_offset)


def may_be_left_out(node):
    """Calls whose result nobody takes, what is raised, what is put into something."""
    is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    into = isinstance(node, ast.Assign) and not any(isinstance(t, ast.Name) for t in node.targets)
    return is_call or into or isinstance(node, ast.Raise | ast.AugAssign | ast.Delete | ast.Break | ast.Continue)


def without(lines, node):
    """The source with `pass` in the place of a statement."""
    block = lines[node.lineno - 1 : node.end_lineno]
    tail = block[-1].encode()[node.end_col_offset :].decode()
    return "\n".join(
        [*lines[: node.lineno - 1], block[0][: node.col_offset] + "pass" + tail, *lines[node.end_lineno :]]
    )


def mutants(source, seed):
    """(line, column, operator, what makes the changed source), in an order drawn with a seed."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.operators.provider import OperatorProvider

    lines, tree, provider, found = source.splitlines(), ast.parse(source), OperatorProvider(), {}
    quiet, nodes = list(never_evaluated(tree)), list(ast_nodes(get_ast(source)))
    for name in sorted(n for n in provider if not re.search("variable|noop", n, re.I)):
        places = [place for node in nodes for place in provider[name]().mutation_positions(node)]
        family = name.split("/")[-1].split("_")[0]
        for index, (start, end) in enumerate(places):
            if not any(a <= start and end <= b for a, b in quiet):
                found.setdefault((start, end, family), []).append((name, index))
    draw, made = random.Random(seed), []
    for (start, _, _), ways in sorted(found.items()):
        name, index = draw.choice(ways)
        make = lambda name=name, index=index: mutate_code(source, provider[name](), index)  # noqa: E731
        made.append((*start, name.split("/")[-1], make))
    for node in filter(may_be_left_out, ast.walk(tree)):
        made.append((node.lineno, node.col_offset, "LeaveOut", lambda node=node: without(lines, node)))
    draw.shuffle(made)
    return made


def preload():
    """All that a test imports, and an MLflow store to copy, so that a fork has them."""
    import sqlalchemy as sa
    from mlflow.store.db import utils

    import search
    import trainer.bank.bank  # noqa: F401

    for found in pkgutil.walk_packages(search.__path__, "search."):
        if "__main__" not in found.name:
            importlib.import_module(found.name)
    for helper in (
        "commands",
        "homes",
        "reference",
        "in_process",
        "planners",
        "leases",
        "crashes",
        "made_up",
    ):
        importlib.import_module(f"tests.{helper}")
    made, template = utils._initialize_tables, sqlite3.connect(":memory:", check_same_thread=False)
    with tempfile.TemporaryDirectory() as folder:
        made(engine := sa.create_engine(f"sqlite:///{folder}/template.db"))
        with engine.connect() as connection:
            connection.connection.driver_connection.backup(template)
        engine.dispose()

    def initialize(engine):
        with engine.connect() as connection:
            template.backup(connection.connection.driver_connection)

    utils._initialize_tables = initialize


def known(value):
    """A class of a module's new code as the one that others have imported."""
    if isinstance(value, tuple):
        return tuple(map(known, value))
    if isinstance(value, type) and value.__module__ in sys.modules:
        return getattr(sys.modules[value.__module__], value.__name__, value)
    return value


def graft(old, new):
    """Give what others have imported the code of what is new."""
    while True:
        if (
            isinstance(old, types.FunctionType)
            and isinstance(new, types.FunctionType)
            and old.__code__.co_freevars == new.__code__.co_freevars
        ):
            old.__code__, old.__defaults__ = new.__code__, known(new.__defaults__)
            old.__kwdefaults__ = new.__kwdefaults__
        for inner in ("__wrapped__", "__func__", "fget", "func"):
            if hasattr(old, inner) and hasattr(new, inner):
                old, new = getattr(old, inner), getattr(new, inner)
                break
        else:
            return


def put_in(name, path, source):
    """Change functions of a module that all have imported already."""
    module, fresh = sys.modules[name], types.ModuleType(name)
    fresh.__dict__.update(__file__=str(path), __package__=module.__package__)
    exec(compile(source, str(path), "exec"), fresh.__dict__)
    for key, new in vars(fresh).items():
        if getattr(new, "__module__", None) == name:
            old = vars(module).get(key)
            graft(old, new)
            for part, value in vars(new).items() if isinstance(new, type) else ():
                graft(vars(old).get(part), value)


class Mutated(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Has a module imported anew, changed outside of functions."""

    def __init__(self, name, path, source):
        self.name, self.path, self.source = name, str(path), source
        for known in [m for m in sys.modules if m.split(".")[0] in ("search", "tests")]:
            del sys.modules[known]
        sys.meta_path.insert(0, self)

    def find_spec(self, name, path=None, target=None):
        if name == self.name:
            return importlib.util.spec_from_file_location(name, self.path, loader=self)
        return None

    def get_filename(self, name):
        return self.path

    def get_data(self, path):
        return self.source.encode()

    def path_stats(self, path):
        raise OSError  # no compiled file


def is_in_function(tree, place):
    functions = [node.body for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    spans = [((b[0].lineno, b[0].col_offset), (b[-1].end_lineno, b[-1].end_col_offset)) for b in functions]
    return any(first <= place < last for first, last in spans)


def in_fork(change, tests, limit_s, folder):
    """What became of a mutant, in how many seconds, and the test that noticed it. change: makes it."""
    begun, log, result = time.monotonic(), folder / "log", None
    pid = os.fork()
    if pid == 0:
        os.setsid()
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        code = 3
        try:
            change()
            import pytest

            code = int(pytest.main([*OPTIONS, f"--basetemp={folder / 'tests'}", *tests]))
        finally:
            os._exit(code)
    while result is None:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            result = "killed" if os.waitstatus_to_exitcode(status) else "survived"
        elif time.monotonic() - begun > limit_s:
            result = "timeout"
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if result == "timeout":
        os.waitpid(pid, 0)
    shutil.rmtree(folder / "tests", ignore_errors=True)
    by = re.findall(r"^(?:FAILED|ERROR) (?:tests/)?(\S+)", log.read_text(errors="replace"), re.M)
    return result, round(time.monotonic() - begun, 1), by[0] if by else ""


def difference(source, changed):
    """The first line that differs, before and after."""
    lines = zip(source.splitlines(), changed.splitlines(), strict=False)
    return next(((a.strip(), b.strip()) for a, b in lines if a != b), ("", ""))


def measure(module, given, done, writer, folder):
    path, name = ROOT / "search" / f"{module}.py", f"search.{module.replace('/', '.')}"
    source, tests = path.read_text(), [f"tests/test_{t}.py" for t in TESTS[module]]
    made = mutants(source, given.seed)
    print(f"{module}: {len(made)} mutants, {min(len(made), given.most)} of them taken", flush=True)
    left = [m for m in made[: given.most] if (module, str(m[0]), str(m[1]), m[2]) not in done]
    result, whole_s, by = (
        in_fork(lambda: put_in(name, path, source), tests, 600, folder) if left else ("survived", 0, "")
    )
    if result != "survived":
        said = re.findall(r"^E  .*", (folder / "log").read_text(errors="replace"), re.M)
        sys.exit("\n".join([f"{module}: its tests fail as it is: {by}", *said[:20]]))
    for line, column, operator, make in left:
        if time.monotonic() > given.end:
            return
        changed = make()
        put = put_in if is_in_function(ast.parse(source), (line, column)) else Mutated
        found = in_fork(lambda p=put, c=changed: p(name, path, c), tests, 3 * whole_s + 10, folder)
        writer(
            dict(
                zip(
                    FIELDS,
                    (module, line, column, operator, *difference(source, changed), *found),
                    strict=True,
                )
            )
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="+", choices=TESTS)
    parser.add_argument("-o", type=Path, required=True)
    parser.add_argument("--most", type=int, default=10**6)
    parser.add_argument("--for", dest="for_s", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=17)
    given = parser.parse_args()
    given.end = time.monotonic() + given.for_s
    os.chdir(ROOT)
    sys.path[:0] = [str(ROOT)]
    sys.path.append(os.environ["COSMIC_RAY"])
    preload()
    is_new = not given.o.exists()
    with given.o.open("a+", newline="") as file, tempfile.TemporaryDirectory() as folder:
        file.seek(0)
        done = {(r["module"], r["line"], r["column"], r["operator"]) for r in csv.DictReader(file)}
        writer = csv.DictWriter(file, FIELDS)
        if is_new:
            writer.writeheader()

        def write(row):
            writer.writerow(row)
            file.flush()

        for module in given.modules:
            measure(module, given, done, write, Path(folder))


if __name__ == "__main__":
    main()
