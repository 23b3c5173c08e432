"""Objects of binding as they were seen: of the three kinds, what the shared layer makes of them."""

from __future__ import annotations

from typing import TypeAlias

from tiphys_models.api.inference_site import InferenceSiteSpec, InferenceSiteStatus
from tiphys_models.api.model_variant import ModelVariantSpec, ModelVariantStatus
from tiphys_models.api.stream_policy import StreamPolicySpec, StreamPolicyStatus
from tiphys_models.kube.objects import ObjectSeen

SiteObject: TypeAlias = ObjectSeen[InferenceSiteSpec, InferenceSiteStatus]
VariantObject: TypeAlias = ObjectSeen[ModelVariantSpec, ModelVariantStatus]
PolicyObject: TypeAlias = ObjectSeen[StreamPolicySpec, StreamPolicyStatus]
