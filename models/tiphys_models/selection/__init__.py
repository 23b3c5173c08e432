"""Selection of a planner every interval: the cloud that both see, planners, selectors."""
