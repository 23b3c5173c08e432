"""PlacementPlan, `tiphys.io/v1alpha1`: the published plan of an interval, which every extender obeys alike."""

from __future__ import annotations

from pydantic import Field

from tiphys_models.api.base import Api, Integer

KIND = "PlacementPlan"
PLURAL = "placementplans"
MAX_FUNCTIONS = 256
MAX_NODES = 256
"""Most nodes of one function in a plan."""
MAX_SLOTS = 4000
"""Lines of a whole plan: about 150 bytes each, and an object holds 1.5 MiB."""


class NodeSlots(Api):
    """Room of a function on a node."""

    node: str = Field(min_length=1, max_length=253, description="Name of the node.")
    slots: Integer = Field(
        ge=1, le=10_000, description="Unfinished pods of the function that the node may hold, those there already included."
    )


class FunctionSlots(Api):
    """Where the pods of one function go."""

    function: str = Field(min_length=1, max_length=512, description="namespace/function, as decisions name it.")
    nodes: list[NodeSlots] = Field(
        default_factory=list,
        max_length=MAX_NODES,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="In order of preference.",
    )


class PlacementPlanSpec(Api):
    """Spec of a PlacementPlan: the nodes and slots that one planner gave to functions for one interval."""

    policy_uid: str = Field(
        max_length=64, description="uid of the SchedulingPolicy of the same name; a plan of a former one is not obeyed."
    )
    policy_generation: Integer = Field(ge=0, description="Generation of its spec; a plan of another generation is not obeyed.")
    planner: str = Field(max_length=63, description="Who made it.")
    interval: Integer = Field(ge=0, description="Number of the interval.")
    valid_until: str = Field(
        max_length=64,
        json_schema_extra={"format": "date-time"},
        description="Afterwards the fallback decides: an operator that is gone must not place pods by an old load.",
    )
    functions: list[FunctionSlots] = Field(
        default_factory=list,
        max_length=MAX_FUNCTIONS,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description="Slots of the functions that had waiting or expected pods.",
    )
