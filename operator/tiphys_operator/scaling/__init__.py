"""ScalingPolicies in a live cluster: every window measure, decide, clamp, mask, write the intent down, act, and say what was done."""
