"""Search for constraints that a trained theta can bear, round after round."""
