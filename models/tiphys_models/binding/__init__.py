"""Binding of inference streams: offers, requirements, constraints, and the policies that choose among what is feasible. numpy only."""
