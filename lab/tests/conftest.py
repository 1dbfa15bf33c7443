"""Fixtures of the product's tests, which the notebook's share."""

from tests.conftest import *  # noqa: F403
