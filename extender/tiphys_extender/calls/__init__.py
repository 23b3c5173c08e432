"""Placement of calls for platforms that place calls, not pods."""
