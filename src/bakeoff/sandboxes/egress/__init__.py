"""The way out of a box: an allow-list proxy, and a network of its own."""
