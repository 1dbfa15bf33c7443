"""MLflow: runs, artifacts, the outbox and the UI's views."""
