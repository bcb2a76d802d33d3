"""Results in words, shared by all reports."""
