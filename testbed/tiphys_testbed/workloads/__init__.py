"""Small real services to scale and place, and the open-loop load for them. Standard library only: they run in the project's own images."""
