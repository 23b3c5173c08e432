"""The conformance suite: what every decider must keep."""

from tiphys_models.seats.checks import KINDS, Checked, DeciderFailed, assert_decider, check_decider

__all__ = ["KINDS", "Checked", "DeciderFailed", "assert_decider", "check_decider"]
