"""`tiphys bench selection`: planners, heuristics, selectors and bounds on the same tasks in the simulated cloud."""
