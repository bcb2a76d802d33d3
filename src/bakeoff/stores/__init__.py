"""Adapters that keep runs."""
