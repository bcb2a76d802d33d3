"""Adapters that decide where and when trials run."""
