"""Frozen types and small pure functions that everything else speaks in. Standard library only."""
