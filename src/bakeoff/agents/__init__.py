"""Adapters that solve tasks with a model."""
