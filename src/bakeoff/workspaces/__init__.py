"""Workspaces of tasks: set up for an agent, read as a patch, set up again for grading."""
