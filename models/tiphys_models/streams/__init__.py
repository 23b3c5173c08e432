"""Binding of inference streams to offers: constraints, policies, agents, and why a stream got its offer."""
