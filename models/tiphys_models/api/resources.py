"""What every custom resource of the project is made of: names, models, printed columns, rules. `crd` makes manifests of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from tiphys_models.api import inference_site as ins
from tiphys_models.api import learned_model as lm
from tiphys_models.api import model_variant as mv
from tiphys_models.api import placement_plan as pp
from tiphys_models.api import scaling_policy as scp
from tiphys_models.api import selection
from tiphys_models.api import stream_policy as stp
from tiphys_models.api.base import GROUP, CelRule
from tiphys_models.api.learned_model import LearnedModelSpec, LearnedModelStatus
from tiphys_models.api.pod_selector import LABEL_KEYS_RULE, REQUIREMENT_RULES
from tiphys_models.api.scaling_status import ScalingPolicyStatus
from tiphys_models.api.scheduling_policy import CEL_RULES, KIND, PLURAL, SchedulingPolicySpec, SchedulingPolicyStatus
from tiphys_models.api.structural import cel

Column = tuple[str, str, str, str, int]
"""Name, type, JSON path, description, priority (1: only with -o wide)."""


@dataclass(frozen=True, slots=True)
class Resource:
    """What one CRD is made of."""

    kind: str
    plural: str
    short_name: str
    description: str
    source: str
    """Module of its models."""
    spec: type[BaseModel]
    status: type[BaseModel] | None
    """None: no status subresource."""
    spec_description: str
    columns: tuple[Column, ...]
    rules: Sequence[CelRule]
    """Validation rules (CEL) over the spec."""
    object_rules: Sequence[CelRule] = ()
    inner_rules: Callable[[dict[str, Any]], None] = lambda schema: None
    """Puts further rules into the schema of the spec."""

    @property
    def crd_name(self) -> str:
        """Name of the CustomResourceDefinition: plural.group."""
        return f"{self.plural}.{GROUP}"

    @property
    def file_name(self) -> str:
        """File of the manifest in manifests/crds."""
        return f"{GROUP}_{self.plural}.yaml"


def _selector_rules(schema: dict[str, Any]) -> None:
    # filled in by the API server, it would stand beside every `select`; who reads an object knows the default
    del schema["properties"]["policy"]["default"]
    selector = schema["properties"]["selector"]["properties"]
    selector["matchLabels"]["x-kubernetes-validations"] = cel([LABEL_KEYS_RULE])
    selector["matchExpressions"]["items"]["x-kubernetes-validations"] = cel(REQUIREMENT_RULES)


def _policy_rules(schema: dict[str, Any]) -> None:
    _selector_rules(schema)
    select = schema["properties"]["select"]
    select["x-kubernetes-validations"] = cel(selection.SELECT_RULES)
    select["properties"]["weights"]["x-kubernetes-validations"] = cel(selection.WEIGHTS_RULES)
    select["properties"]["canary"]["x-kubernetes-validations"] = cel(selection.CANARY_RULES)


def _weights_rules(schema: dict[str, Any]) -> None:
    schema["properties"]["weights"]["x-kubernetes-validations"] = cel(lm.WEIGHTS_RULES)


def _scaling_rules(schema: dict[str, Any]) -> None:
    parts = schema["properties"]
    parts["horizontal"]["x-kubernetes-validations"] = cel(scp.HORIZONTAL_RULES)
    parts["vertical"]["x-kubernetes-validations"] = cel(scp.VERTICAL_RULES)
    parts["canary"]["x-kubernetes-validations"] = cel(scp.CANARY_RULES)


def _site_rules(schema: dict[str, Any]) -> None:
    schema["properties"]["probe"]["x-kubernetes-validations"] = cel(ins.PROBE_RULES)


def _variant_rules(schema: dict[str, Any]) -> None:
    schema["properties"]["endpoint"]["x-kubernetes-validations"] = cel(mv.ENDPOINT_RULES)


def _of_condition(kind: str, field: str) -> str:
    return f'.status.conditions[?(@.type=="{kind}")].{field}'


_AGE: Column = ("Age", "date", ".metadata.creationTimestamp", "Time since creation.", 0)
SCHEDULING_POLICY = Resource(
    kind=KIND,
    plural=PLURAL,
    short_name="sp",
    description="Which pods of a namespace are placed by which policy, and how far that policy may go.",
    source="scheduling_policy.py",
    spec=SchedulingPolicySpec,
    status=SchedulingPolicyStatus,
    spec_description="What the user wants.",
    columns=(
        ("Policy", "string", ".spec.policy", "Policy that the spec asks for.", 0),
        ("Mode", "string", ".spec.mode", "Off, Shadow, Canary or Active.", 0),
        ("Active", "string", ".status.activePolicy", "Policy or planner that answers now.", 0),
        ("Selector", "string", ".spec.select.by", "Who chooses it.", 1),
        ("Canary", "string", ".status.selection.comparison.result", "What the last canary says of the selector against the rule.", 1),
        ("Ready", "string", _of_condition("Ready", "status"), "Whether the policy decides as its spec says.", 0),
        ("Reason", "string", _of_condition("Ready", "reason"), "Why.", 0),
        ("Model", "string", ".status.modelDigest", "sha256 of the weights.", 1),
        ("Pods", "integer", ".status.matchingPods", "Unfinished pods that the selector matches.", 0),
        _AGE,
    ),
    rules=CEL_RULES,
    inner_rules=_policy_rules,
)
LEARNED_MODEL = Resource(
    kind=lm.KIND,
    plural=lm.PLURAL,
    short_name="lm",
    description="Weights of a learned policy with their card, and which modes they may serve. Read in the namespace of the release only.",
    source="learned_model.py",
    spec=LearnedModelSpec,
    status=LearnedModelStatus,
    spec_description="What is published.",
    columns=(
        ("Policy", "string", ".spec.policy", "Learned policy it is for.", 0),
        ("Stage", "string", ".spec.stage", "candidate, shadow, canary, active or retired.", 0),
        ("Accepted", "string", _of_condition("Accepted", "status"), "Whether the artifact passed its checks.", 0),
        ("Loaded", "string", _of_condition("Loaded", "status"), "Whether the extenders serve these weights.", 0),
        ("Reason", "string", _of_condition("Accepted", "reason"), "Why it is accepted or refused.", 0),
        ("Served", "string", ".status.servedDigest", "sha256 of the weights in the extenders.", 1),
        ("Evaluation", "string", ".spec.evaluation.value", "What speaks for it.", 1),
        ("Metric", "string", ".spec.evaluation.metric", "What was measured.", 1),
        ("Measured-By", "string", ".spec.evaluation.source", "Command or run that measured it.", 1),
        _AGE,
    ),
    rules=lm.CEL_RULES,
    object_rules=(
        CelRule(
            f"size(self.metadata.name) <= {lm.NAME_MAX}",
            f"a name has at most {lm.NAME_MAX} characters: policies refer to it in spec.model",
            lambda obj: len(obj["metadata"]["name"]) <= lm.NAME_MAX,
        ),
    ),
    inner_rules=_weights_rules,
)
PLACEMENT_PLAN = Resource(
    kind=pp.KIND,
    plural=pp.PLURAL,
    short_name="pp",
    description="Where the pods of a SchedulingPolicy with `select` go in this interval. Written by the operator, obeyed by the extenders.",
    source="placement_plan.py",
    spec=pp.PlacementPlanSpec,
    status=None,
    spec_description="What was planned.",
    columns=(
        ("Planner", "string", ".spec.planner", "Who made it.", 0),
        ("Interval", "integer", ".spec.interval", "Number of the interval.", 0),
        ("Until", "string", ".spec.validUntil", "When extenders stop obeying it.", 0),
        _AGE,
    ),
    rules=(),
)
SCALING_POLICY = Resource(
    kind=scp.KIND,
    plural=scp.PLURAL,
    short_name="scp",
    description="How many pods a workload has and how much CPU each, decided together for a latency objective.",
    source="scaling_policy.py",
    spec=scp.ScalingPolicySpec,
    status=ScalingPolicyStatus,
    spec_description="What the user wants.",
    columns=(
        ("Target", "string", ".spec.targetRef.name", "The workload.", 0),
        ("Mode", "string", ".spec.mode", "Off, Recommend (Shadow), Canary or Active.", 0),
        ("Agent", "string", ".spec.agent.kind", "Who decides.", 0),
        ("Replicas", "integer", ".status.current.replicas", "Pods there are.", 0),
        ("CPU-M", "integer", ".status.current.cpuMilli", "CPU limit of each, in millicores.", 0),
        ("Want-Replicas", "integer", ".status.desired.replicas", "Pods there should be.", 0),
        ("Want-CPU-M", "integer", ".status.desired.cpuMilli", "CPU limit each should have.", 0),
        ("Ready", "string", _of_condition("Ready", "status"), "Whether decisions are made.", 0),
        ("Reason", "string", _of_condition("Ready", "reason"), "Why.", 0),
        ("Phase", "string", ".status.lastDecision.phase", "Fate of the last decision.", 1),
        ("Conflict", "string", _of_condition("Conflict", "reason"), "Who else scales it.", 1),
        ("Canary", "string", ".status.comparison.result", "What the last canary says of the agent against the rule.", 1),
        ("Rolled-Back", "string", _of_condition("RolledBack", "status"), "Whether the rule decides instead of its agent.", 1),
        _AGE,
    ),
    rules=scp.CEL_RULES,
    inner_rules=_scaling_rules,
)
INFERENCE_SITE = Resource(
    kind=ins.KIND,
    plural=ins.PLURAL,
    short_name="isite",
    description="A place where models run: its layer, how far it is from access sites, and whether it answers.",
    source="inference_site.py",
    spec=ins.InferenceSiteSpec,
    status=ins.InferenceSiteStatus,
    spec_description="What the user says of it.",
    columns=(
        ("Layer", "string", ".spec.layer", "antenna, co, dc or cloud.", 0),
        ("Access", "boolean", ".spec.access", "Whether streams enter here.", 0),
        ("Reachable", "string", _of_condition("Reachable", "status"), "Whether probes are answered.", 0),
        ("Reason", "string", _of_condition("Reachable", "reason"), "Why.", 0),
        ("Mean-Ms", "number", ".status.delays[0].meanMs", "Measured one-way delay.", 0),
        ("Sigma-Ms", "number", ".status.delays[0].sigmaMs", "Its deviation.", 1),
        _AGE,
    ),
    rules=(),
    inner_rules=_site_rules,
)
MODEL_VARIANT = Resource(
    kind=mv.KIND,
    plural=mv.PLURAL,
    short_name="mvar",
    description="A model as it runs at one site: what it does, how well, how fast, how often a second, and where it answers.",
    source="model_variant.py",
    spec=mv.ModelVariantSpec,
    status=mv.ModelVariantStatus,
    spec_description="What the user says of it.",
    columns=(
        ("Task", "string", ".spec.task", "What it does.", 0),
        ("Site", "string", ".spec.site", "Where it runs.", 0),
        ("Accuracy", "number", ".spec.accuracy", "How well.", 0),
        ("Delay-Ms", "number", ".spec.delayMs", "How long a query takes.", 0),
        ("QPS", "number", ".spec.capacityQps", "Capacity of a replica.", 0),
        ("Replicas", "integer", ".status.replicas", "Ready endpoints.", 0),
        ("Hardware", "string", ".spec.hardware", "What it runs on.", 1),
        ("Cost", "number", ".spec.cost", "Of one replica for an hour, in the owner's unit.", 1),
        ("Ready", "string", _of_condition("Ready", "status"), "Whether streams can be bound to it.", 0),
        ("Reason", "string", _of_condition("Ready", "reason"), "Why.", 1),
        _AGE,
    ),
    rules=mv.CEL_RULES,
    inner_rules=_variant_rules,
)
STREAM_POLICY = Resource(
    kind=stp.KIND,
    plural=stp.PLURAL,
    short_name="stp",
    description="Who binds the streams that enter at an access site, and how far capacities are given away.",
    source="stream_policy.py",
    spec=stp.StreamPolicySpec,
    status=stp.StreamPolicyStatus,
    spec_description="What the user wants.",
    columns=(
        ("Site", "string", ".spec.accessSite", "Where the streams enter.", 0),
        ("Mode", "string", ".spec.mode", "Off, Shadow, Canary or Active.", 0),
        ("Policy", "string", ".spec.policy", "Policy or agent that the spec asks for.", 0),
        ("Active", "string", ".status.activePolicy", "Policy that binds now.", 0),
        ("Streams", "integer", ".status.streams", "Streams that are bound now.", 0),
        ("Success", "number", ".status.shares.successPercent", "Percent of queries answered in time.", 0),
        ("Ready", "string", _of_condition("Ready", "status"), "Whether streams are bound as the spec says.", 0),
        ("Reason", "string", _of_condition("Ready", "reason"), "Why.", 0),
        _AGE,
    ),
    rules=stp.CEL_RULES,
)
RESOURCES = (SCHEDULING_POLICY, LEARNED_MODEL, PLACEMENT_PLAN, SCALING_POLICY, INFERENCE_SITE, MODEL_VARIANT, STREAM_POLICY)
