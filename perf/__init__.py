"""Ratios against a floor in the same run; `python -m perf` prints them all."""
