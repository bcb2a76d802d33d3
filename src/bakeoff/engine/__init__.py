"""Runs trials through ports; knows no adapter and no display."""
