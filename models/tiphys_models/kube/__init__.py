"""Transport to the API server and to Prometheus: raw JSON over aiohttp, shared by both services."""
