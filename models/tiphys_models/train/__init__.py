"""Offline training. The only package beside `nets` that imports torch."""
