"""Proofs that a net adds all 10^20 pairs right, float32's rounding included. docs/proof.md says how.

`check.py` checks a proof alone: it imports nothing of this package, and nothing here imports it.
"""
