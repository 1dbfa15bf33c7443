"""Write what is between the markers of pages from the tables of seeds: `python -m lab.pages [--check]`.

<!-- rate: FILE where QUERY + ...; counting: QUERY -->5 of 128 (3.9 %, 1.7–8.8 %)<!-- / -->
<!-- k of n: FILE where QUERY -->5 of 128<!-- / -->
<!-- vectors: FILE where QUERY -->5 of 300 (1.7 %, 0.7–3.8 %)<!-- / -->      of the initial vectors that runs began with
<!-- table: NAME -->      what the function NAME of the folder's make.py returns; FOLDER/NAME: another's
<!-- printed: adder-search WORD ... -->      what a command prints
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from click.testing import CliRunner

from lab import tables
from lab.plans import LAB
from search.cli import main as adder_search

ROOT = LAB.parent
MARKER = re.compile(r"<!-- (rate|k of n|vectors|table|printed): (.*?) -->(.*?)<!-- / -->", re.DOTALL)


def pages() -> list[Path]:
    """Return the Markdown files that may have markers."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted(LAB.rglob("*.md"))]


@cache
def maker(folder: Path) -> ModuleType:
    """Return a folder's make.py as a module."""
    spec = spec_from_file_location(f"make_{folder.name}", folder / "make.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rate(page: Path, source: str) -> str:
    rows, _, counting = source.partition("; counting: ")
    return tables.with_interval(tables.rate(rows, counting or tables.GROKKED))


def k_of_n(page: Path, source: str) -> str:
    rows, _, counting = source.partition("; counting: ")
    k, n = tables.count(rows, counting or tables.GROKKED)
    return f"{k} of {n}"


def vectors(page: Path, source: str) -> str:
    return tables.with_interval(tables.vectors(tables.rows_of(source)))


def table(page: Path, source: str) -> str:
    folder, _, name = source.rpartition("/")
    text: str = getattr(maker(LAB / folder if folder else page.parent), name)()
    return f"\n{text.strip()}\n"


def printed(page: Path, source: str) -> str:
    words = []
    for word in shlex.split(source)[1:]:
        words += sorted(map(str, ROOT.glob(word))) if "*" in word else [word]
    paths = [str(ROOT / word) if (ROOT / word).exists() and word else word for word in words]
    result = CliRunner().invoke(adder_search, paths)
    if result.exit_code:
        raise ValueError(f"{source}: {result.output}")
    return f"\n{result.stdout.strip()}\n"


KINDS: dict[str, Callable[[Path, str], str]] = {
    "rate": rate,
    "k of n": k_of_n,
    "vectors": vectors,
    "table": table,
    "printed": printed,
}


def generated(page: Path, text: str) -> str:
    """Return a page's text with everything between markers made anew. Raises ValueError naming the marker."""

    def fill(match: re.Match[str]) -> str:
        kind, source = match.group(1), " ".join(match.group(2).split())
        try:
            body = KINDS[kind](page, source)
        except Exception as error:
            raise ValueError(f"{page}: {kind}: {source}: {error}") from error
        return f"<!-- {kind}: {source} -->{body}<!-- / -->"

    return MARKER.sub(fill, text)


def main(check: bool) -> int:
    """Write the pages, or with `check` print those that would change. Return the number of these."""
    changed = 0
    for page in pages():
        text = page.read_text("utf-8")
        if (fresh := generated(page, text)) != text:
            changed += 1
            print(page.relative_to(ROOT))
            if not check:
                page.write_text(fresh, "utf-8")
    return changed


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments not in ([], ["--check"]):
        sys.exit(__doc__)
    changed = main(bool(arguments))
    sys.exit(1 if arguments and changed else 0)
