"""Finishing: a θ that gets nearly everything right is taken to where it gets everything right."""

METHODS = {
    "margin": "finishing.margin",
    "train": "finishing.methods",
    "levenberg_marquardt": "curvature.minimise",
    "targeted": "finishing.methods",
    "lbfgs": "curvature.minimise",
    "cma_es": "finishing.methods",
}
"""Name of each method -> the module of its function, which needs torch. In their default order; "margin" goes
first by lab/2026-11-26-margin-finish.
"""
