"""The card that travels with weights: what they are, what they were trained for, and how to know them again."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Finite = Annotated[float, Field(allow_inf_nan=False)]


class ModelCard(BaseModel):
    """`NAME.json` beside `NAME.safetensors`."""

    model_config = ConfigDict(extra="allow", frozen=True)  # training adds its own evidence

    name: str = Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    policy: str = Field(description="Registry name of the policy these weights are for.")
    feature_schema: str = Field(description="Version of the encoder, as in tiphys_models.features.schema.SCHEMA.")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="Digest of the weights file.")
    scrape_windows_s: list[int] = Field(min_length=1, description="Rate windows the weights were trained and tested for.")
    mean: list[Finite] = Field(description="Per feature, on the training split; a missing input is replaced by it.")
    scale: list[Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(description="Standard deviation per feature.")
    clip: float = Field(default=5.0, gt=0, description="Bound of a normalised input.")
    epsilon: float = Field(default=1e-3, gt=0, description="Scores closer than this are equal.")
