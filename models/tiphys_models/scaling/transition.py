"""What the operator serves for learning: one decision of a ScalingPolicy, the window it was for, and what the agent saw then."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

TRANSITIONS_PATH = "/v1/scaling/transitions"
PAGE_MAX = 5_000
_Word = Annotated[str, StringConstraints(max_length=253)]
_Numbers = Annotated[list[float], Field(min_length=1, max_length=256)]
_Flags = Annotated[list[bool], Field(min_length=1, max_length=256)]


class _Served(BaseModel):
    """Base of what the operator serves as JSON."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


class Transition(_Served):
    """One step: `action` is what was there in the window, as the nearest of the agent's actions, whoever brought it about."""

    policy: str = Field(max_length=507, description="namespace/name.")
    number: int = Field(ge=0, description="Of the decision: windows of one policy whose numbers follow each other followed each other.")
    at: float = Field(description="End of the window, seconds since 1970.")
    window_seconds: float = Field(gt=0, description="Its length.")
    agent: _Word = Field(description="Whose inputs and actions these are.")
    digest: str = Field(default="", max_length=64, description="sha256 of the weights that decided; empty: a rule did.")
    feature_schema: _Word = Field(description="Version of the inputs.")
    price: float = Field(gt=0, description="Of a violation; one of the inputs.")
    inputs: _Numbers = Field(description="State that was decided for.")
    possible: _Flags = Field(description="Actions that were possible.")
    wanted: int = Field(ge=-1, description="Action that the agent chose; -1: it kept the rule, or was not asked.")
    action: int = Field(ge=0, description="Action that comes nearest to what was there.")
    off: float = Field(ge=0, description="How far it is from that: absolute logarithm of the ratio of both capacities.")
    cost: float = Field(ge=0, description="Of the window, in the service's own mean window.")
    late: float = Field(ge=0, le=1, description="Share of late requests.")
    reward: float = Field(description="Of both, at the price.")
    after: _Numbers = Field(description="State at the end of the window.")
    possible_after: _Flags = Field(description="Actions possible then.")

    @model_validator(mode="after")
    def _consistent(self) -> Transition:
        actions = len(self.possible)
        if len(self.after) != len(self.inputs) or len(self.possible_after) != actions or not max(self.wanted, self.action) < actions:
            raise ValueError("inputs, masks and actions must be of one shape")
        numbers = (*self.inputs, *self.after, self.reward, self.cost, self.price, self.off)
        if not all(map(math.isfinite, numbers)) or not any(self.possible_after):
            raise ValueError("a state must be finite and leave an action possible")
        return self


class LoggedTransition(_Served):
    """A transition with its place in the log."""

    seq: int = Field(ge=1, description="Number in this log, without gaps.")
    transition: Transition = Field(description="The step.")


class TransitionPage(_Served):
    """An answer to `GET /v1/scaling/transitions`."""

    epoch: str = Field(max_length=64, description="Of the log: another one starts with another process, and numbers anew.")
    first: int = Field(ge=1, description="Oldest number that is kept.")
    last: int = Field(ge=0, description="Newest number.")
    lost: int = Field(ge=0, description="How many after the one that was asked for are kept no longer.")
    next: int = Field(ge=0, description="Ask for what comes after this.")
    items: list[LoggedTransition] = Field(description="Oldest first.")
