"""One task across many models."""
