"""Clusters to run Tiphys on: a local control plane made of plain processes, an existing one, or kind.

The local one is real (etcd, API server, controller-manager, schedulers, RBAC); only its nodes are simulated by kwok.
"""
