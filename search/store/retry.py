"""Retries: waiting for a database or an MLflow store that is away."""

import logging
from collections.abc import Callable
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

R = TypeVar("R")

log = logging.getLogger(__name__)


def retry(call: Callable[[], R], patience_s: float, errors: type[Exception] = OSError, pause_s: float = 1.0) -> R:
    """Return what `call` returns, called again while it raises one of `errors`, for `patience_s` seconds.

    Logs once that it waits, and once that this is over. Raises the last error.
    """

    def log_first(state: RetryCallState) -> None:
        if state.attempt_number == 1 and state.outcome:
            log.warning("%s; waiting for it, for up to %.0f s", state.outcome.exception(), patience_s)

    attempts = Retrying(
        retry=retry_if_exception_type(errors),
        stop=stop_after_delay(patience_s),
        wait=wait_fixed(pause_s),
        before_sleep=log_first,
        reraise=True,
    )
    result = attempts(call)
    if attempts.statistics["attempt_number"] > 1:
        log.warning("what was waited for is back")
    return result
