"""Training of scaling agents in the fluid simulator."""
