"""The study file: its sections, seeds, space, and the configurations it asks for."""
