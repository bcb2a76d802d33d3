"""A Python session in the box, and the agent that works in it."""
