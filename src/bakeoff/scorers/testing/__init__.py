"""The scorer `tests`: how tests run in a grading box and how their report is believed."""
