"""Checkpoints on disk: our own, and folded ones."""
