"""Placement of pods and calls: what policies see, the rules, FaaSRank's inference, the state that events change."""
