"""runner.py: agents and cases from TOML files."""
