"""The card that travels with weights: what they are, what decides with them, where they come from, and how to know them again."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tiphys_models.artifacts.files import Parts
from tiphys_models.base.errors import ArtifactRefused

Finite = Annotated[float, Field(allow_inf_nan=False)]
System = Literal["placement", "selection", "scaling", "streams"]
NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"


class Provenance(BaseModel):
    """The run that made the weights."""

    model_config = ConfigDict(extra="allow", frozen=True)

    command: str = Field(default="", description="Command line that makes them again.")
    commit: str = Field(default="", description="Commit of the repository at which it ran.")
    seeds: tuple[int, ...] = Field(default=(), description="Training seeds that were tried; the best on the validation split is shipped.")
    evidence: str = Field(default="", description="What speaks for them, in one line.")


class Card(BaseModel):
    """`NAME.json` beside `NAME.safetensors`. Every policy may ask for more; cards of earlier releases lack what has a default here."""

    model_config = ConfigDict(extra="allow", frozen=True)  # training adds its own evidence

    name: str = Field(min_length=1, max_length=63, pattern=NAME)
    policy: str = Field(description="Registry name of what decides with these weights.")
    feature_schema: str = Field(description="Version of the inputs, as in the module that encodes them.")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="Digest of the weights file.")
    system: System | None = Field(default=None, description="Where the policy decides; earlier cards leave it to the policy's name.")
    tensors: dict[str, tuple[int, ...]] | None = Field(default=None, description="Shape of every array; earlier cards do not say.")
    provenance: Provenance | None = Field(default=None, description="The run that made them; earlier cards have `training` only.")

    @property
    def origin(self) -> Provenance:
        """The run that made the weights, as far as an earlier card tells."""
        if self.provenance is not None:
            return self.provenance
        extra = self.model_extra or {}
        runs = extra.get("training_seeds") or [extra.get("training")]
        found = [run.get("seed") for run in runs if isinstance(run, dict)] if isinstance(runs, list) else []
        return Provenance(seeds=tuple(seed for seed in found if isinstance(seed, int)))

    def as_json(self) -> bytes:
        """The file; of what may be missing, only what is known."""
        missing = {name for name in ("system", "tensors", "provenance") if getattr(self, name) is None}
        return self.model_dump_json(indent=2, exclude=missing).encode() + b"\n"


AnyCard = TypeVar("AnyCard", bound=Card)


def read_card(parts: Parts, kind: type[AnyCard]) -> AnyCard:
    """The card of an artifact; ArtifactRefused names the field that is wrong."""
    try:
        return kind.model_validate_json(parts.card)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise ArtifactRefused("CardInvalid", f"{parts.origin}: {'.'.join(map(str, problem['loc']))}: {problem['msg']}") from error
