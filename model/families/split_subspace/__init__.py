"""The split_subspace family: MicroAdder's decoder."""

from model.families.split_subspace.spec import SplitSubspace

__all__ = ["SplitSubspace"]
