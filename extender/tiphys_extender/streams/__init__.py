"""Streams over HTTP: what the binder answers to `POST /v1/bindings`. Decisions are `tiphys_models.binding`'s; here are leases and hands."""
