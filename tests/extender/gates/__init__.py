"""Pods that may wait: who is held, and when they are let go."""
