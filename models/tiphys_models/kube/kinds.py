"""The kinds of tiphys.io that both services read; ScalingPolicies, which only the operator does, are in `operator_kinds`."""

from __future__ import annotations

from typing import Any

from tiphys_models.api import inference_site, learned_model, model_variant, placement_plan, scheduling_policy, stream_policy
from tiphys_models.api.base import API_VERSION, Api, parse
from tiphys_models.api.inference_site import InferenceSiteSpec, InferenceSiteStatus, parse_site
from tiphys_models.api.learned_model import LearnedModelSpec, LearnedModelStatus, parse_model
from tiphys_models.api.model_variant import ModelVariantSpec, ModelVariantStatus, parse_variant
from tiphys_models.api.placement_plan import PlacementPlanSpec
from tiphys_models.api.routing import Route, route_of
from tiphys_models.api.scheduling_policy import SchedulingPolicyStatus
from tiphys_models.api.stream_policy import StreamPolicySpec, StreamPolicyStatus, parse_stream_policy
from tiphys_models.kube.objects import Kind


def parse_plan(obj: dict[str, Any]) -> PlacementPlanSpec:
    """A PlacementPlan's spec; InvalidInput for an object without one."""
    return parse(PlacementPlanSpec, obj, "is missing")


SCHEDULING_POLICIES: Kind[Route, SchedulingPolicyStatus] = Kind(
    scheduling_policy.KIND, scheduling_policy.PLURAL, route_of, SchedulingPolicyStatus, API_VERSION
)
"""Its spec is read as a route: what decides, and for which pods."""
LEARNED_MODELS: Kind[LearnedModelSpec, LearnedModelStatus] = Kind(
    learned_model.KIND, learned_model.PLURAL, parse_model, LearnedModelStatus, API_VERSION
)
PLACEMENT_PLANS: Kind[PlacementPlanSpec, Api] = Kind(placement_plan.KIND, placement_plan.PLURAL, parse_plan, Api, API_VERSION)
"""It has no status: whoever obeys a plan tells so elsewhere."""
INFERENCE_SITES: Kind[InferenceSiteSpec, InferenceSiteStatus] = Kind(
    inference_site.KIND, inference_site.PLURAL, parse_site, InferenceSiteStatus, API_VERSION
)
MODEL_VARIANTS: Kind[ModelVariantSpec, ModelVariantStatus] = Kind(
    model_variant.KIND, model_variant.PLURAL, parse_variant, ModelVariantStatus, API_VERSION
)
STREAM_POLICIES: Kind[StreamPolicySpec, StreamPolicyStatus] = Kind(
    stream_policy.KIND, stream_policy.PLURAL, parse_stream_policy, StreamPolicyStatus, API_VERSION
)
