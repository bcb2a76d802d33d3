"""How often and how many at once an endpoint is asked."""
