"""Streams bound over edge and cloud, simulated: topologies, applications, bindings one by one, queues per tick or query by query."""
