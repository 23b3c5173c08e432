"""The weights that come with the package: what serves without anything mounted or published."""

from __future__ import annotations

from pathlib import Path

import tiphys_models

WEIGHTS = Path(tiphys_models.__file__).resolve().parent / "weights"
"""`faasrank` is the default model; `faasrank-paper` is trained exactly as the paper says, for comparison."""

SHIPPED = ("faasrank", "faasrank-paper")
"""Placement models, the default first."""
