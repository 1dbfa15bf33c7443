"""The engine on a GPU: the CPU engine's text compiled for CUDA, with its bits."""
