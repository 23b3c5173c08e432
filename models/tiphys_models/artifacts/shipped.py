"""The weights that come with the package: what serves without anything mounted or published."""

from __future__ import annotations

from tiphys_models.artifacts import files

WEIGHTS = files.SHIPPED
"""`faasrank` is the default model; `faasrank-paper` is trained exactly as the paper says, for comparison."""

SHIPPED = ("faasrank", "faasrank-paper")
"""Placement models, the default first."""
