"""Folds of checkpoints that add, compared answer by answer with the original."""
