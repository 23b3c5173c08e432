"""The Tiphys operator: reconciles the custom resources with kopf, under a Lease."""
