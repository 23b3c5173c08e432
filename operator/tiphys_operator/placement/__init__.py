"""The controller of SchedulingPolicies and LearnedModels."""
