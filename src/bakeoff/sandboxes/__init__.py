"""Sandboxes: a plain folder on the host, bubblewrap, containers, and Modal."""
