"""Files become validated values; errors carry file, line and key."""
