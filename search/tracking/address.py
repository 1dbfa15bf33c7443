"""The address of a study's MLflow store. Without MLflow at import."""

from __future__ import annotations

import os

from search.errors import UserError, masked
from search.store.home import Home


def tracking_uri(home: Home, study_uri: str | None = None) -> str:
    """Return the study's own store, else the environment's, else the home's SQLite file.

    MLflow sends the environment's password to whatever store it is given, and a study may come from anywhere.
    Raises UserError if its own store is neither of the others, and the user did not say that it is trusted.
    """
    environment, local = os.environ.get("MLFLOW_TRACKING_URI"), f"sqlite:///{home.mlflow_db}"
    trusted = {uri.rstrip("/") for uri in (environment, local) if uri}
    if study_uri and not home.trust_store and study_uri.rstrip("/") not in trusted:
        raise UserError(
            f"tracking_uri: {masked(study_uri)} is not the store of your environment, and would get its password; "
            "set MLFLOW_TRACKING_URI to it, or say --trust-store"
        )
    return study_uri or environment or local
