"""The binder: places calls, not pods, for platforms that ask over HTTP. The same decision, another door."""
