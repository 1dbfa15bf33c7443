"""What SECURITY.md and docs/reliability.md promise, sentence by sentence, and the tests that hold it (promises.txt).

`python -m tests.promises` writes promises.txt anew, with a question mark where a sentence has no tests yet.
"""

import hashlib
import re
from pathlib import Path

from tests import PLUGINS, ROOT

PAGES = ("SECURITY.md", "docs/reliability.md")
NOTHING, UNKNOWN = "no promise", "?"
REGISTRY = ROOT / "tests" / "promises.txt"
SHOWN = 60
"""Characters of a sentence that stand in promises.txt, behind a digest of the whole."""


def sentences(page):
    """Return a page's sentences, and the rows of its tables, each as it stands in promises.txt."""
    text = (ROOT / page).read_text()
    text = re.sub(r"^\|.*\n\|[-|]+\|$|^#.*$", "", text, flags=re.MULTILINE)  # heads of tables, and headings
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text.replace("**", ""))
    found = []
    for block in re.split(r"\n\s*\n|\n(?=[-|])", text):
        words = " ".join(block.removeprefix("- ").split())
        ends = "$^" if words.startswith("|") else r"(?<=[.:]) (?=[A-Z`])"
        found += [part.strip("| ") for part in re.split(ends, words)]
    return [f"{hashlib.sha256(s.encode()).hexdigest()[:8]} {s[:SHOWN]}".rstrip() for s in filter(None, found)]


def registered():
    """Return the tests of each sentence of each page, as promises.txt has them."""
    pages = {}
    tests = []
    for line in filter(None, REGISTRY.read_text().splitlines()):
        if line.startswith("    "):
            tests.append(line.strip())
        elif line.startswith("# "):
            page = pages[line.removeprefix("# ")] = {}
        else:
            tests = page[line] = []
    return pages


def is_there(test):
    """True if a test, or a function of a shell script, is in the file that it names, or its plug-in is not here."""
    file, _, name = test.partition("::")
    path = ROOT / file
    plugin = Path(file).parts[1]
    if plugin in PLUGINS and not (ROOT / plugin).exists():  # it is deleted, and its tests with it
        return True
    return path.is_file() and re.search(rf"^(def )?{re.escape(name)}\(", path.read_text(), re.MULTILINE) is not None


if __name__ == "__main__":
    held, lines = registered(), []
    for page in PAGES:
        lines.append(f"# {page}\n")
        for sentence in sentences(page):
            lines.append("\n    ".join([sentence, *held.get(page, {}).get(sentence, [UNKNOWN])]))
        lines.append("")
    REGISTRY.write_text("\n".join(lines))
