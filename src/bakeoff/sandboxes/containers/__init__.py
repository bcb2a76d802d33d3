"""Boxes of docker and podman."""
