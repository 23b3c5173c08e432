"""Names of deciders as custom resources hold them: open strings, for other packages bring deciders of their own.

The API server checks the form only. Whether somebody has a decider of that name is known where it is asked to decide: a condition says
what is unknown and what there is, and the fallback answers meanwhile.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, StringConstraints

from tiphys_models.placement.registry import as_named
from tiphys_models.seats.registry import NAME_MAX, NAME_PATTERN

DeciderName = Annotated[str, StringConstraints(pattern=NAME_PATTERN, min_length=1, max_length=NAME_MAX)]
"""A planner's, a selector's, an agent's or a stream policy's."""
PlacementPolicyName = Annotated[DeciderName, AfterValidator(as_named)]
"""One of `PolicyName`, or the name of another package's placement policy."""
