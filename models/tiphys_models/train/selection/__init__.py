"""Training of selectors: episodes with counterfactual labels, fits in torch, validation by playing."""
