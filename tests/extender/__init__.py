"""The extender: contract, decisions, faults."""
