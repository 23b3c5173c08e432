"""`tiphys model`: learned models in a cluster."""
