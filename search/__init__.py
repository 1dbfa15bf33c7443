"""How many are tried: study files, plans, Ray trials, Optuna, the ledger, MLflow, the command line."""
