"""The scheduler's extender: pods are ranked, and what was decided is logged and explained."""
