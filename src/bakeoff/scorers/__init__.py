"""Adapters that judge outcomes."""
