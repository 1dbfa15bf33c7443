"""The C++ engine: tapes of a step, kernels, their compilation and cache. Same bits on every CPU."""
