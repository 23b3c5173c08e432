"""The weights that come with the package: what serves without anything mounted or published."""

from __future__ import annotations

from tiphys_models.artifacts.files import SHIPPED

WEIGHTS = SHIPPED
"""`faasrank` is the default model; `faasrank-paper` is trained exactly as the paper says, for comparison."""
