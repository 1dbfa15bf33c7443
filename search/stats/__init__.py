"""Counts, rates and intervals. Numbers in, numbers out."""
