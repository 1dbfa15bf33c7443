"""What only addition has: proofs, other projects' files, finishing, explanations, and commands on them."""
