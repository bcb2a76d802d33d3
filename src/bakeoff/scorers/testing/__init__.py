"""The scorer `tests`: running tests in a grading box, and verifying their report."""
