"""Hints on pods: learned run times for those who evict pods, and costs of deletion for those who scale down."""
