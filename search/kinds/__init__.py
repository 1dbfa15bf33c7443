"""Our kinds of study, each one class in one file (search/study/kind.py); of a search also what Optuna does for it."""
