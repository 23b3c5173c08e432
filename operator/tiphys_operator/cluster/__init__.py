"""The one observed cluster of the operator: nodes, pods, workloads and who else scales them, as watches show them."""
