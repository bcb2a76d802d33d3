"""Boxes of Linux namespaces."""
