"""Raw JSON access to the API server, shared by both services: a typed model per object costs seventy times more."""
