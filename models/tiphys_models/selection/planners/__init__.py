"""Interval planners: `assign(state, tasks, seed)` gives every waiting task a host; numpy only, no torch, no numba."""
