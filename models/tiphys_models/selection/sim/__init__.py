"""The interval-driven cloud simulator, its workloads, and what rolls it forward (bounds, labels)."""
