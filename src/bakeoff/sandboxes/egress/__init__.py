"""Egress of a box: an allow-list proxy, and its own network."""
