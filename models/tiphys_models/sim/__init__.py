"""An event-driven simulation of a FaaS cluster. For training and benchmarks only: no service imports it."""
