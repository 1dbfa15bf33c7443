"""The low_rank family: the 456p report's small GPT."""

from model.families.low_rank.spec import LowRank

__all__ = ["LowRank"]
