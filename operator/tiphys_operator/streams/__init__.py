"""InferenceSites, ModelVariants and StreamPolicies: who answers, how far it is, and what the binders report."""
