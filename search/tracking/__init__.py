"""MLflow: runs, artifacts, the outbox, the UI's views; and Optuna's mirror."""
