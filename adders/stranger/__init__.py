"""Strangers' submissions to AdderBoard, run locked up and judged by their answers."""
