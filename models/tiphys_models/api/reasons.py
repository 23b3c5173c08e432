"""Every word a condition, an Event or a metric label may carry. Fixed, so that they can be documented, tested and alerted on."""

from __future__ import annotations

from enum import StrEnum


class ConditionType(StrEnum):
    """Conditions of a SchedulingPolicy."""

    READY = "Ready"
    CONFLICT = "Conflict"
    ROUTED = "Routed"
    MODEL_LOADED = "ModelLoaded"


class Reason(StrEnum):
    """Why a condition has its status."""

    ACCEPTED = "Accepted"
    """Ready: the policy decides, or watches in Shadow, as its spec says."""
    DISABLED = "Disabled"
    """Ready=False: mode Off."""
    INVALID_SPEC = "InvalidSpec"
    """Ready=False: something the schema cannot express is wrong; the message says what."""
    DEGRADED_TO_FALLBACK = "DegradedToFallback"
    """Ready=False: the policy cannot decide; `spec.fallback` does."""
    NO_CONFLICT = "NoConflict"
    OVERRIDDEN = "Overridden"
    """Conflict=True: pods this policy selects are decided by a more specific, older or first-named policy."""
    PODS_ROUTED = "PodsRouted"
    NOT_ROUTED = "NotRouted"
    """Routed=False: selected pods name another scheduler, so nobody asks us about them."""
    NO_PODS = "NoPods"
    """Routed=Unknown: the selector matches no pod at the moment."""
    PODS_UNKNOWN = "PodsUnknown"
    """Routed=Unknown: the operator could not list pods; the message says why."""
    MODEL_NOT_NEEDED = "ModelNotNeeded"
    MODEL_LOADED = "ModelLoaded"
    MODEL_MISSING = "ModelMissing"
    """ModelLoaded=False: no LearnedModel of that name, none among the mounted files, none shipped."""
    MODEL_REFUSED = "ModelRefused"
    """ModelLoaded=False: the artifact failed a check; the message names it."""
    MODEL_STAGE = "ModelStage"
    """ModelLoaded=False: the LearnedModel's stage does not serve the policy's mode."""


class ModelConditionType(StrEnum):
    """Conditions of a LearnedModel."""

    ACCEPTED = "Accepted"
    LOADED = "Loaded"


class ModelReason(StrEnum):
    """Why a condition of a LearnedModel has its status."""

    ACCEPTED = "Accepted"
    INVALID_SPEC = "InvalidSpec"
    WRONG_NAMESPACE = "WrongNamespace"
    """Accepted=False: models are read in the release's namespace only."""
    UNREADABLE = "Unreadable"
    """Accepted=Unknown: the operator may not read the ConfigMap."""
    MISSING = "Missing"
    FORBIDDEN_FORMAT = "ForbiddenFormat"
    TOO_LARGE = "TooLarge"
    CARD_INVALID = "CardInvalid"
    DIGEST_MISMATCH = "DigestMismatch"
    WEIGHTS_UNREADABLE = "WeightsUnreadable"
    SCHEMA_MISMATCH = "SchemaMismatch"
    SHAPE_MISMATCH = "ShapeMismatch"
    NOT_FINITE = "NotFinite"
    UNKNOWN_POLICY = "UnknownPolicy"
    POLICY_MISMATCH = "PolicyMismatch"
    """Accepted=False: the card is for another policy than the spec says."""
    LOADED = "Loaded"
    CANDIDATE = "Candidate"
    """Loaded=False: checked and kept, but at this stage it serves nobody."""
    RETIRED = "Retired"
    LAST_GOOD = "LastGood"
    """Loaded=False: extenders go on with an earlier version of this model."""
    NOT_LOADED = "NotLoaded"
    """Loaded=False: no extender has it yet."""
    STAGE_CHANGED = "StageChanged"
    """Event only: spec.stage was changed."""
    EXTENDERS_UNKNOWN = "ExtendersUnknown"
    """Loaded=Unknown: no extender could be asked."""


class NeutralReason(StrEnum):
    """Why an answer made no difference between nodes."""

    NO_POLICY = "no-policy"
    """No SchedulingPolicy routes this pod, or it is one of ours or of kube-system."""
    MODE_OFF = "mode-off"
    SHADOW = "shadow"
    CANARY = "canary"
    """Outside the canary's share."""
    NOT_SYNCED = "not-synced"
    """Watches have not listed everything yet."""
    NO_KNOWN_NODE = "no-known-node"
    DEADLINE = "deadline"
    BAD_SCORES = "bad-scores"
    """Policy and fallback both gave something that is no number."""
    INTERNAL_ERROR = "internal-error"
    DISABLED = "disabled"
    """The kill switch is on."""
    OTHER_SCHEDULER = "other-scheduler"
    """The pod names a scheduler that is not ours."""
    BAD_POD = "bad-pod"
    """The request's pod cannot be read; its candidates can."""
    TOO_MANY_NAMES = "too-many-names"
    """More candidates than the extender is set to judge."""


class FallbackReason(StrEnum):
    """Why the fallback policy answered instead of the chosen one."""

    MODEL_MISSING = "model-missing"
    READINGS_MISSING = "readings-missing"
    """More than half of the candidates have no fresh reading."""
    PROFILES_MISSING = "profiles-missing"
    """No runtime has reported what calls of any function are like, and the model was trained to know."""
    SCORES_NOT_FINITE = "scores-not-finite"
    SCORES_CONSTANT = "scores-constant"
    """A learned policy that makes no difference between different nodes."""
    POLICY_ERROR = "policy-error"
