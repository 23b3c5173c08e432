"""Gymnasium environments over the simulators."""
