"""Tests. Helpers that assert are rewritten as tests are, so that a failure shows its values."""

from pathlib import Path

import pytest

from trainer.files.installed import missing_for_compilation

pytest.register_assert_rewrite("tests.commands", "tests.banks")

ROOT = Path(__file__).parents[1]
PLUGINS = "gpu", "own_modules", "reports", "tracking", "adders", "compress"
"""Packages beside the core."""
CERTIFICATES = ROOT / "lab/certificates"
needs_plugins = pytest.mark.skipif(
    not all((ROOT / name).exists() for name in PLUGINS), reason=f"needs {' and '.join(PLUGINS)}"
)
needs_compiler = pytest.mark.skipif(bool(missing_for_compilation()), reason=f"needs {missing_for_compilation()}")


def readable(studies):
    """The texts of studies by name, without those of modules where that plug-in is deleted."""
    is_there = (ROOT / "own_modules").exists()
    return {name: text for name, text in studies.items() if is_there or "module: " not in text}


def by_tier(values, quick):
    """Parameters of a test: `make test` takes the quick ones, `make test-full` all. values: a mapping has their ids."""
    named = values.items() if isinstance(values, dict) else ((None, value) for value in values)
    return [pytest.param(value, id=name, marks=() if value in quick else pytest.mark.full) for name, value in named]
