"""Tasks with tools and scripted conversations: the loop around a bare model, and what answers calls."""
