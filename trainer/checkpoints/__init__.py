"""Checkpoints on disk: our own, folded ones, and those of other projects."""
