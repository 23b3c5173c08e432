"""What planners, selectors, the simulator and the operator share: hosts, tasks, states, plans, and what they cost; numpy only."""
