"""The surfaces of older tools, thin, on the same api."""
