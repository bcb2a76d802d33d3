"""Workspaces of tasks: set up for an agent, taken as a patch, set up again for the grade."""
