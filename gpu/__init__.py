"""NVIDIA's GPUs: the CPU engine's text compiled for CUDA, with its bits; MPS; expected speeds of cards.

Not called cuda: that is NVIDIA's package of bindings, which torch imports.
"""
