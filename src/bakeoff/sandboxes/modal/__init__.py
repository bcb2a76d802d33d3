"""Boxes on Modal."""
