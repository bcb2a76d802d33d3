"""The viewer: pages over the runs in a folder, served to one person's browser."""
