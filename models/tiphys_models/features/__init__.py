"""The inputs of a decision: what they are called, where they are measured and how they become arrays."""
