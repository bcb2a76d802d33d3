"""Adapters that complete messages."""
