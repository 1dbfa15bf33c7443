"""Tests. Helpers that assert are rewritten as tests are, so that a failure shows its values."""

from itertools import zip_longest
from pathlib import Path

import pytest

from trainer.files.installed import missing_for_compilation

pytest.register_assert_rewrite("tests.commands", "tests.banks")

ROOT = Path(__file__).parents[1]
PLUGINS = "adders", "compress"
"""Packages beside the core, and folders of tests: the core passes its tests without them."""
CERTIFICATES = ROOT / "lab/certificates"
needs_plugins = pytest.mark.skipif(
    not all((ROOT / name).exists() for name in PLUGINS), reason=f"needs {' and '.join(PLUGINS)}"
)


def by_tier(values, quick):
    """Parameters of a test: `make test` takes the quick ones, `make test-full` all. values: a mapping has their ids."""
    names = values if isinstance(values, dict) else {}
    values = names.values() if names else values
    marked = [(value, () if value in quick else pytest.mark.full) for value in values]
    return [pytest.param(value, marks=marks, id=name) for (value, marks), name in zip_longest(marked, names)]


needs_compiler = pytest.mark.skipif(bool(missing_for_compilation()), reason=f"needs {missing_for_compilation()}")
