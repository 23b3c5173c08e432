"""The API server of the cluster that a kubeconfig names."""
