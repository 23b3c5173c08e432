"""Calls on a cluster whose filter never overcommits: those that fit nowhere pend, and ends are seen at once."""
