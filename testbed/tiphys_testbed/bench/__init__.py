"""Benchmarks that start processes of the services: speed, floods, and what happens on a control plane."""
