"""A fence before MLflow, which has none: a driver that was paused finds out before it writes."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from mlflow import MlflowClient

WRITING = ("create_", "log_", "set_", "update_", "delete_", "finalize_")
"""How the names of MlflowClient's methods begin that change something."""


class FencedClient:
    """An MlflowClient that calls `verify` before each call that changes something."""

    def __init__(self, client: MlflowClient, verify: Callable[[], object]):
        self._client, self._verify = client, verify

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)
        if not name.startswith(WRITING):
            return call

        @wraps(call)
        def fenced(*args: Any, **options: Any) -> Any:
            self._verify()
            return call(*args, **options)

        return fenced
