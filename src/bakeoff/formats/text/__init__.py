"""TOML, JSON, YAML and Markdown as values, with the file and line of every mistake."""
