"""Benchmarks: each prints one JSON object in a fixed shape, so that figures can be compared over time and quoted without copying."""
