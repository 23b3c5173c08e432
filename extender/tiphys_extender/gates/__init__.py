"""Pods that may wait: who is held behind the scheduling gate, for how long, and when it is taken off."""
