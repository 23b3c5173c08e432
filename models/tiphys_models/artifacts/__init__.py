"""Weights and their cards: safetensors and JSON, checked before use, never unpickled."""
