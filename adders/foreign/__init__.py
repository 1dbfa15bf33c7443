"""Other projects' checkpoints, read as ours."""
