"""One piece of code for what placements change: used by the extender, by snapshots and by simulators alike."""
