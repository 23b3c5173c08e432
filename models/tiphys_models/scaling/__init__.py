"""Scaling: what an agent sees of a workload at the end of a window, what it answers, rules and learned agents. numpy only."""
