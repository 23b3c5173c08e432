"""Training of the learned placement policy."""
