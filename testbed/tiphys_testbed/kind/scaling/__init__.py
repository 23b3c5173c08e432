"""Autoscalers compared on real kubelets: one service, one load, one after the other."""
