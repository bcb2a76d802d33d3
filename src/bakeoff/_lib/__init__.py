"""Tools with no domain knowledge; the standard library only."""
