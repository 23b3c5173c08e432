"""Networks as torch trains them. What serves is arrays and numpy: see `tiphys_models.artifacts`."""
