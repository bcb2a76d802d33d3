"""One module per provider API, with its wire format."""
