"""Long-lived pods on nodes that are opened when nothing fits and go when they are empty."""
