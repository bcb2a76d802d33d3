"""Agents: adapters that solve tasks."""
