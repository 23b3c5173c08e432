"""Scaling: what an agent sees of a service, what it wants, and the limits around it."""
