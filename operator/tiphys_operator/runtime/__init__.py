"""What every controller of the operator runs on: watch, wake, due, back-off, fenced write, health."""
