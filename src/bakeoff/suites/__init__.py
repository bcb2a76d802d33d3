"""The front doors: files that become tasks."""
