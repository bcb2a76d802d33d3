"""Boxes that are containers of docker or podman."""
