"""How many are tried: study files, plans, Ray trials, Optuna, the ledger, MLflow, the command line."""

import os

# Before MLflow and Ray are imported: nobody is told of this machine unless its user says so.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
