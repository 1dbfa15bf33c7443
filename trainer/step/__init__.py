"""One training step of a bank in torch: schedule, objective, gradient, update. The reference for the engine."""
