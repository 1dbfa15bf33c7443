"""The home: one folder with all that adder-search writes, `./adder-runs/` unless said otherwise."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from search.errors import UserError

DEFAULT = "adder-runs"


class Home:
    """Paths below the home. Absolute from the start: Tune changes the working directory of trials."""

    def __init__(self, folder: str | Path | None = None):
        self.path = Path(folder or os.environ.get("ADDER_SEARCH_HOME") or DEFAULT).absolute()

    @property
    def mlflow_db(self) -> Path:
        return self.path / "mlflow.db"

    @property
    def records_db(self) -> Path:
        """Optuna's studies and the ledger."""
        return self.path / "optuna.db"

    @property
    def records_url(self) -> str:
        """Where SQLAlchemy and Optuna find them."""
        return f"sqlite:///{self.records_db}"

    @property
    def artifacts(self) -> Path:
        return self.path / "artifacts"

    @property
    def ray(self) -> Path:
        return self.path / "ray"

    @property
    def cache(self) -> Path:
        """Compiled programs, shared by all trials."""
        return self.path / "cache"

    def trial(self, study: str, key: str) -> Path:
        """Where a trial keeps its bank's state and leaves its results until they are recorded."""
        return self.path / "trials" / study / key

    def exists(self) -> bool:
        return self.records_db.exists()

    def create(self) -> None:
        """Make the folder. Raises UserError if nothing can be written there."""
        try:
            for folder in (self.path, self.artifacts, self.ray, self.cache, self.path / "trials"):
                folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            raise UserError(
                f"{self.path}: cannot write there ({error.strerror}); choose another home with --home"
            ) from None
