"""The TestRunner class."""
