"""One module per file format: its struct and its reader."""
