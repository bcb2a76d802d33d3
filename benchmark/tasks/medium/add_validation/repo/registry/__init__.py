"""People and how to reach them."""
