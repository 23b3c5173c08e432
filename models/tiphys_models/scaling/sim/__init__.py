"""A simulated service under load, its replicas and their CPU: request by request, and as a fast fluid."""
