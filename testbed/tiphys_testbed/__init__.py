"""The test bed of Tiphys: local control planes, kind clusters, tools, workloads and the demo."""
