"""`spec.select` in a live cluster: every interval measure, choose, plan, publish, and learn from what earlier choices cost."""
