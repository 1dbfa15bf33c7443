"""Tests. Helpers that assert are rewritten as tests are, so that a failure shows its values."""

import pytest

pytest.register_assert_rewrite("tests.commands", "tests.banks")
