"""Finishing: a θ that gets nearly everything right is taken to where it gets everything right."""

METHODS = {
    "margin": "adders.finishing.margin",
    "train": "adders.finishing.methods",
    "levenberg_marquardt": "adders.curvature.minimise",
    "targeted": "adders.finishing.methods",
    "lbfgs": "adders.curvature.minimise",
    "cma_es": "adders.finishing.methods",
}
"""Name of each method -> the module of its function, which needs torch. In their default order; "margin" goes
first by lab/2026-11-26-margin-finish.
"""
