"""The binder's process: calls, and streams where it stands at an access site."""
