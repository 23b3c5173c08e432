"""A cluster of containers made by kind: on Docker, or on podman with images of our own where there is neither Docker nor a registry."""
