"""Streams over HTTP: what the binder answers to `POST /v1/bindings`. `tiphys_models.streams` decides; leases are kept here."""
