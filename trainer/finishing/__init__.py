"""Finishing: a θ that gets nearly everything right is taken to where it gets everything right."""
