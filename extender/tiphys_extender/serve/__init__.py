"""Listeners and their edge: bytes in, bytes out, who may call and how much."""
