"""The Tiphys extender: answers kube-scheduler's prioritize calls."""
