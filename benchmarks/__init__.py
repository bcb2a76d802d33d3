"""Ratios against a floor in the same run; `python -m benchmarks` prints them all."""
