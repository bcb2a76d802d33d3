"""Scorers: adapters that judge outcomes."""
