"""The address of a home's MLflow store. Without MLflow at import."""

from __future__ import annotations

import os

from search.store.home import Home


def tracking_uri(home: Home) -> str:
    """Return the environment's store, else the home's SQLite file.

    MLflow sends the environment's password to whatever store it is given: a study cannot name one.
    """
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{home.mlflow_db}"
