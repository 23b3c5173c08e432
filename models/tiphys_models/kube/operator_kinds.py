"""ScalingPolicies as the operator reads them, and all seven kinds together."""

from __future__ import annotations

from typing import Any

from tiphys_models.api import scaling_policy
from tiphys_models.api.base import API_VERSION
from tiphys_models.api.scaling_policy import ScalingPolicySpec, parse_scaling
from tiphys_models.api.scaling_status import ScalingPolicyStatus
from tiphys_models.kube import kinds
from tiphys_models.kube.objects import Kind

SCALING_POLICIES: Kind[ScalingPolicySpec, ScalingPolicyStatus] = Kind(
    scaling_policy.KIND, scaling_policy.PLURAL, parse_scaling, ScalingPolicyStatus, API_VERSION
)
ALL: tuple[Kind[Any, Any], ...] = (
    kinds.SCHEDULING_POLICIES, SCALING_POLICIES, kinds.LEARNED_MODELS, kinds.PLACEMENT_PLANS, kinds.INFERENCE_SITES, kinds.MODEL_VARIANTS,
    kinds.STREAM_POLICIES,
)  # fmt: skip
