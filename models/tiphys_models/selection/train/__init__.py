"""Training of learned planners and selectors."""
