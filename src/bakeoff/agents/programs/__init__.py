"""Coding agents that are programs of their own: which there are, how they are run and read."""
