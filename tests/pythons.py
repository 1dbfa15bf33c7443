"""Environments of other minor versions of Python, in which this tree is installed as well."""

import os
import re
import sys
from pathlib import Path

from tests import ROOT

VARIABLE = "ADDER_SEARCH_PYTHONS"
WHY_NONE = f"needs the environment of another Python: make test PYTHON=python3.12, or its folder in {VARIABLE}"


def find_others(environment=os.environ, root=ROOT):
    """Return the folders of virtual environments with adder-search by their Pythons, as "3.12"; not this Python's.

    Those that ADDER_SEARCH_PYTHONS names, else those that `make` made in this tree; not that of `make test-latest`.
    """
    named = environment.get(VARIABLE)
    made = (folder for folder in root.glob(".venv*") if re.fullmatch(r"\.venv(-3\.\d+)?", folder.name))
    folders = [Path(folder) for folder in named.split(os.pathsep)] if named else sorted(made)
    found = {version_of(folder): folder for folder in folders if (folder / "bin/adder-search").exists()}
    return {version: folder for version, folder in found.items() if version != here()}


def here():
    """Return the minor version of this Python, as "3.12"."""
    return "{}.{}".format(*sys.version_info)


def version_of(folder):
    """Return the minor version of a virtual environment's Python."""
    found = re.search(r"^version = (\d+\.\d+)", (folder / "pyvenv.cfg").read_text(), re.MULTILINE)
    assert found, f"{folder} does not say its version"
    return found[1]
