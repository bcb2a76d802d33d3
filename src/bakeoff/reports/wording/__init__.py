"""Results in words, shared by every report."""
