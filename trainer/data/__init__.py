"""The problems that a step trains on: sampled additions, and the seed's own errors drawn again."""
