"""Finishing: a θ that gets nearly everything right is taken to where it gets everything right."""

from trainer.finishing.finish import METHODS, Finished, Turn, finish, finished

__all__ = ["METHODS", "Finished", "Turn", "finish", "finished"]
